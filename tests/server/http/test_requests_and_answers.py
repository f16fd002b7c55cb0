"""Requests and answers: headers, bodies, and what of them is kept."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from pydantic_core import to_json
from starlette.types import Message

from pydantic_ai_a2a import to_a2a
from pydantic_ai_a2a.server.auth.request_info import header
from pydantic_ai_a2a.server.http.cached_answers import CachedAnswer
from pydantic_ai_a2a.server.http.client_watch import ClientWatch
from pydantic_ai_a2a.server.http.request_bodies import read_body


@pytest.mark.parametrize(
    ('name', 'value'), [(b'one', '1'), (b'several', '2,3,4'), (b'none', None)], ids=['one', 'several', 'none']
)
def test_repeated_header_values_are_joined(name: bytes, value: str | None) -> None:
    headers = [(b'several', b'2'), (b'one', b'1'), (b'several', b'3'), (b'several', b'4')]
    assert header(headers, name) == value


async def test_reading_a_body_releases_its_chunks() -> None:
    """A list of small chunks would need many times the memory of their bytes."""
    chunks = [bytes([n % 251, n % 241]) for n in range(1000)]
    messages = iter([*zip(chunks, repeat(True)), (b'end', False)])
    references = [sys.getrefcount(chunk) for chunk in chunks]
    left = list[int]()

    async def receive() -> Message:
        body, more = next(messages)
        if not more:
            left.extend(sys.getrefcount(chunk) for chunk in chunks)
        return {'type': 'http.request', 'body': body, 'more_body': more}

    assert await read_body({'headers': []}, receive, 10**6) == b''.join([*chunks, b'end'])
    assert left[:-1] == references[:-1]  # the reader still has the last one


@pytest.mark.parametrize('known', [[], [(b'if-none-match', b'*')]], ids=['200', '304'])
async def test_middleware_adding_headers_does_not_change_cached_answer(
    known: list[tuple[bytes, bytes]],
) -> None:
    """OpenTelemetry's middleware for ASGI does so, with the ids of a trace."""
    answer, sent = CachedAnswer(b'{}', []), list[int]()

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        headers: list[Any] = message.get('headers', [])
        sent.append(len(headers))
        headers.append((b'traceresponse', b'1'))

    for _ in range(2):
        await answer({'type': 'http', 'method': 'GET', 'headers': known}, receive, send)
    assert sent[:2] == sent[2:]


async def test_messages_received_during_disconnect_watch_are_kept() -> None:
    messages: asyncio.Queue[Message] = asyncio.Queue()
    listener = ClientWatch(messages.get)
    first = asyncio.create_task(listener.gone())
    await asyncio.sleep(0)
    second = asyncio.create_task(listener.gone())  # waits for the same message
    await asyncio.sleep(0)
    await messages.put({'type': 'http.request', 'body': b'a', 'more_body': True})
    await messages.put({'type': 'http.request', 'body': b'b'})
    for _ in range(10):
        await asyncio.sleep(0)
    assert [first.done(), second.done(), messages.qsize()] == [False, False, 1]
    assert [(await listener.receive())['body'] for _ in range(2)] == [b'a', b'b']
    third = asyncio.create_task(listener.gone())
    await messages.put({'type': 'http.disconnect'})
    await third
    for task in (first, second):
        task.cancel()
    listener.close()


class Lost(OSError):
    """The connection is lost."""


@pytest.fixture
def no_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures('no_collections')
async def test_broken_stream_exception_is_freed() -> None:
    """The frames of its traceback hold parts of the request and of the answer."""
    message = {'role': 'ROLE_USER', 'messageId': '1', 'parts': [{'text': 'Hi'}]}
    request = {'type': 'http.request', 'body': to_json({'message': message})}
    received, sent = iter([request, {'type': 'http.disconnect'}]), list[Message]()
    kept = list[weakref.ref[Lost]]()
    scope: dict[str, Any] = {
        'type': 'http',
        'method': 'POST',
        'path': '/message:stream',
        'query_string': b'',
        'headers': [(b'a2a-version', b'1.0'), (b'content-type', b'application/json')],
    }

    async def receive() -> Message:
        return next(received)

    async def send(message: Message) -> None:
        sent.append(message)
        if len(sent) == 2:
            raise Lost

    app = to_a2a(Agent(TestModel()))
    async with app.router.lifespan_context(app):
        try:
            await app(scope, receive, send)
        except Lost as lost:
            kept.append(weakref.ref(lost))
        assert [reference() for reference in kept] == [None]
