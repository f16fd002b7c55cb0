"""Client spans of the requests to a remote agent. The requests are sent within them, and so carry their trace."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeAlias

from opentelemetry.trace import Span
from opentelemetry.util.types import AttributeValue

from ..telemetry import client_span, inside, name_task, recording
from ..types import StreamResponse
from .cards import Interface
from .urls import origin

P = ParamSpec('P')
Call: TypeAlias = Callable[Concatenate[Any, str, Any, P], Coroutine[Any, Any, Any]]
Events: TypeAlias = AsyncGenerator[tuple[StreamResponse, int | None, int], None]
Stream: TypeAlias = Callable[Concatenate[Any, str, Any, P], Events]

_ABOUT_TASKS = frozenset({'SendMessage', 'GetTask', 'CancelTask'})
"""Operations whose answer is a task or a message."""


def attributes_of(interface: Interface) -> dict[str, AttributeValue]:
    """Return the attributes that the spans of all requests to an interface have."""
    host, _, port = origin(interface.url).partition('://')[2].rpartition(':')
    return {
        'a2a.protocol.version': interface.version,
        'a2a.tenant': interface.tenant,
        'gen_ai.agent.name': interface.agent,
        'server.address': host.strip('[]'),
        'server.port': int(port or 0),
    }


def traced(call: Call[P]) -> Call[P]:
    """Give each call of a transport's method a span: it performs an operation, and returns the answer.

    The transport has `attributes`, of `attributes_of`.
    """

    @wraps(call)
    async def within_span(transport: Any, name: str, params: Any, *args: P.args, **options: P.kwargs) -> Any:
        if not recording():
            return await call(transport, name, params, *args, **options)
        with inside(client_span(name, params, transport.attributes), end=True) as span:
            answer = await call(transport, name, params, *args, **options)
            if name in _ABOUT_TASKS:
                _name_task(span, answer)
            return answer

    return within_span


def traced_stream(stream: Stream[P]) -> Stream[P]:
    """Give each call of a transport's method a span, as `traced`: it performs an operation, and yields the events."""

    @wraps(stream)
    def within_span(transport: Any, name: str, params: Any, *args: P.args, **options: P.kwargs) -> Events:
        events = stream(transport, name, params, *args, **options)
        return _followed(events, name, params, transport.attributes) if recording() else events

    return within_span


async def _followed(events: Events, name: str, params: Any, attributes: Mapping[str, AttributeValue]) -> Events:
    span = client_span(name, params, attributes)
    try:
        async with aclosing(events):
            while True:
                # Between the events, the code of the reader runs, whose spans are not within this one.
                with inside(span, end=False):
                    event = await anext(events, None)
                if event is None:
                    return
                _name_task(span, event[0])
                yield event
    finally:
        span.end()


def _name_task(span: Span, answer: Any) -> None:
    """Name the task of an answer or an event in its span. Pieces of artifacts name nothing new."""
    found = answer.get('task') or answer.get('message') or answer.get('status_update') or answer
    state = found.get('status', {}).get('state')
    name_task(span, found.get('task_id') or found.get('id'), found.get('context_id'), state)
