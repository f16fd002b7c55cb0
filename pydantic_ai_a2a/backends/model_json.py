"""Model messages, usage and records of conversations as JSON, complete for Pydantic AI to load again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import ConversationRecord
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest, ModelResponse, TextPart
from pydantic_ai.usage import RequestUsage, RunUsage
from pydantic_core import to_json

__all__ = (
    'dump_message',
    'dump_messages',
    'dump_record',
    'dump_usage',
    'load_message_rows',
    'load_messages',
    'load_record',
    'load_usage',
    'prepare',
)


T = TypeVar('T')


@cache
def _record_ta() -> TypeAdapter[ConversationRecord]:
    return TypeAdapter(ConversationRecord)


@cache
def _usage_ta() -> TypeAdapter[RunUsage]:
    return TypeAdapter(RunUsage)


@cache
def _request_ta() -> TypeAdapter[ModelRequest]:
    return TypeAdapter(ModelRequest)


@cache
def _response_ta() -> TypeAdapter[ModelResponse]:
    return TypeAdapter(ModelResponse)


def prepare() -> None:
    """Build the schemas of stored values before the first task: building takes tens of milliseconds."""
    _record_ta()
    _request_ta()
    _response_ta()
    dump_messages(())


def dump_messages(messages: Sequence[ModelMessage]) -> bytes:
    """Return model messages as a JSON array."""
    return ModelMessagesTypeAdapter.dump_json([*messages])


def dump_message(message: ModelMessage) -> bytes:
    """Return a model message as JSON, for `load_message_rows`."""
    # Pydantic serializes a message twice as a member of a union, so the adapters are of one kind of message.
    if not isinstance(message, ModelResponse):
        absent = _NO_INSTRUCTIONS if message.instructions is message.metadata is None else None
        return _request_ta().dump_json(message, exclude=absent)
    match message.parts:
        case [TextPart(id=None, provider_name=None, provider_details=None, citations=None)]:
            return _dump(_response_ta(), message, message.usage, {'parts': {0: _NO_DETAILS}})
        case _:
            return _dump(_response_ta(), message, message.usage)


def load_messages(body: bytes) -> list[ModelMessage]:
    """The inverse of `dump_messages`."""
    return ModelMessagesTypeAdapter.validate_json(body)


def load_message_rows(bodies: Iterable[bytes]) -> list[ModelMessage]:
    """The inverse of `dump_message` for several messages."""
    return load_messages(b'[' + b','.join(bodies) + b']')


def dump_usage(usage: RunUsage | RequestUsage) -> bytes:
    """Return a usage as JSON, with the fields that were set."""
    # The adapter of a usage calls Python to find values beyond its fields. All values are plain: none is needed.
    return to_json(vars(usage), exclude=None if usage.details else _DETAILS, inf_nan_mode='null')


def load_usage(body: bytes) -> RunUsage:
    """The inverse of `dump_usage`."""
    return _usage_ta().validate_json(body)


def dump_record(record: ConversationRecord) -> bytes:
    """Return the record of a conversation as JSON."""
    return _dump(_record_ta(), record, record.usage)


_DETAILS = {'details'}
_NO_INSTRUCTIONS = {'instructions', 'metadata'}
"""Fields of a request that are mostly None."""
_NO_DETAILS = {'id', 'provider_name', 'provider_details', 'citations'}
"""Fields of a text that are mostly None."""


def _dump(
    adapter: TypeAdapter[T], value: T, usage: RunUsage | RequestUsage, absent: Mapping[str, Any] = MappingProxyType({})
) -> bytes:
    """Return a value as JSON without the fields that are None: nearly half of a response.

    Args:
        adapter: The adapter.
        value: The value.
        usage: Usage in the value.
        absent: Further fields to leave out, as Pydantic's `exclude`.
    """
    # Keep `head_id`, also as None: the field has no default, so a record without it cannot be read.
    unset = {name: True for name, field in vars(value).items() if field is None and name != 'head_id'}
    body = adapter.dump_json(value, exclude={'usage': True, **unset, **absent})
    return b''.join((memoryview(body)[:-1], b',"usage":', dump_usage(usage), b'}'))


def load_record(body: bytes) -> ConversationRecord:
    """The inverse of `dump_record`."""
    return _record_ta().validate_json(body)
