"""Model messages, usage and records of conversations as JSON, complete for Pydantic AI to load again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TypeVar

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import ConversationRecord
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse
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
def _response_ta() -> TypeAdapter[ModelResponse]:
    return TypeAdapter(ModelResponse)


def prepare() -> None:
    """Build the schemas of stored values before the first task: building takes tens of milliseconds."""
    _record_ta()
    _response_ta()
    dump_messages(())


def dump_messages(messages: Sequence[ModelMessage]) -> bytes:
    """Return model messages as a JSON array."""
    return ModelMessagesTypeAdapter.dump_json([*messages])


def dump_message(message: ModelMessage) -> bytes:
    """Return a model message as JSON, for `load_message_rows`."""
    if not isinstance(message, ModelResponse):
        return dump_messages([message])[1:-1]
    # Pydantic serializes a response twice as a member of a union, so the adapter is of the response alone.
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
    return to_json(vars(usage), inf_nan_mode='null')


def load_usage(body: bytes) -> RunUsage:
    """The inverse of `dump_usage`."""
    return _usage_ta().validate_json(body)


def dump_record(record: ConversationRecord) -> bytes:
    """Return the record of a conversation as JSON."""
    return _dump(_record_ta(), record, record.usage)


def _dump(adapter: TypeAdapter[T], value: T, usage: RunUsage | RequestUsage) -> bytes:
    """Return a value as JSON without the fields that are None: nearly half of a response."""
    # Keep `head_id`, also as None: the field has no default, so a record without it cannot be read.
    absent = {name for name, field in vars(value).items() if field is None and name != 'head_id'}
    body = adapter.dump_json(value, exclude={'usage', *absent})
    return b''.join((memoryview(body)[:-1], b',"usage":', dump_usage(usage), b'}'))


def load_record(body: bytes) -> ConversationRecord:
    """The inverse of `dump_record`."""
    return _record_ta().validate_json(body)
