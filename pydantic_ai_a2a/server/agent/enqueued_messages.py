"""Messages that code has enqueued in a run and that the model has not got yet, stored with each step of the run.

`ctx.enqueue` keeps a message in the memory of the run, until the next request to the model, or with `when_idle` until
the run would end. `ctx.load_capability` keeps its parts of the next request there, too. If the run is tried again or
goes on in another process, both are enqueued again from the last stored step. There they stand in the metadata of the
step's last model message, which no model sees. A conversation gets the message itself, once the model has got it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cache
from typing import Literal, NamedTuple

from pydantic import ConfigDict, TypeAdapter
from pydantic_ai.messages import ModelMessage, ModelRequestPart
from pydantic_ai.run import AgentRun

from .pydantic_ai_internals import add_capability_loads, capability_loads_of, queue_of

_KEY = 'a2a_enqueued'
"""Key in the metadata of a stored model message."""


class _Enqueued(NamedTuple):
    messages: list[tuple[Literal['asap', 'when_idle'], list[ModelMessage]]]
    loads: list[ModelRequestPart]


@cache
def _enqueued_ta() -> TypeAdapter[_Enqueued]:
    return TypeAdapter(_Enqueued, config=ConfigDict(ser_json_bytes='base64', val_json_bytes='base64'))


def enqueued_in(run: AgentRun[object, object], without: Collection[str | None]) -> str:
    """Return as JSON what waits in a run, without the messages of some ids; empty if nothing waits."""
    queue, loads = queue_of(run), capability_loads_of(run)
    if not queue and not loads:
        return ''
    messages = [(entry.priority, entry.messages) for entry in queue if entry.enqueue_id not in without]
    return _enqueued_ta().dump_json(_Enqueued(messages, loads)).decode() if messages or loads else ''


def with_enqueued(messages: Sequence[ModelMessage], enqueued: str) -> list[ModelMessage]:
    """Return the messages of a step with what waits after the step."""
    return [
        *messages[:-1],
        *(replace(message, metadata={**(message.metadata or {}), _KEY: enqueued}) for message in messages[-1:]),
    ]


def without_enqueued(message: ModelMessage) -> ModelMessage:
    """Return a message of a step as the run has it."""
    metadata = message.metadata
    if metadata is None or _KEY not in metadata:
        return message
    own = {name: value for name, value in metadata.items() if name != _KEY}
    return replace(message, metadata=own or None)


def enqueued_after(last: ModelMessage) -> str:
    """Return what waits after a step, by the last stored message of the step; empty if nothing waits."""
    return (last.metadata or {}).get(_KEY, '')


def enqueue_again(run: AgentRun[object, object], enqueued: str) -> None:
    """Enqueue what has waited after a step."""
    if not enqueued:
        return
    stored = _enqueued_ta().validate_json(enqueued)
    for priority, messages in stored.messages:
        run.enqueue(*messages, priority=priority)
    add_capability_loads(run, stored.loads)
