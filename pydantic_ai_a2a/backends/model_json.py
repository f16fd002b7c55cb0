"""Model messages, usage and records of conversations as JSON, complete for Pydantic AI to load again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import ConversationRecord
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.usage import RunUsage
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
    if isinstance(message, ModelResponse):  # as one of a union, a response is written twice
        return _response_ta().dump_json(message)
    return dump_messages([message])[1:-1]


def load_messages(body: bytes) -> list[ModelMessage]:
    """The inverse of `dump_messages`."""
    return ModelMessagesTypeAdapter.validate_json(body)


def load_message_rows(bodies: Iterable[bytes]) -> list[ModelMessage]:
    """The inverse of `dump_message` for several messages."""
    return load_messages(b'[' + b','.join(bodies) + b']')


def dump_usage(usage: RunUsage) -> bytes:
    """Usage as JSON."""
    # Its schema calls Python to find what it has beyond its fields, and all of it is plain values.
    return to_json(vars(usage), inf_nan_mode='null')


def load_usage(body: bytes) -> RunUsage:
    """The inverse of `dump_usage`."""
    return _usage_ta().validate_json(body)


def dump_record(record: ConversationRecord) -> bytes:
    """Return the record of a conversation as JSON."""
    body = _record_ta().dump_json(record, exclude={'usage'})
    return body[:-1] + b',"usage":' + dump_usage(record.usage) + b'}'


def load_record(body: bytes) -> ConversationRecord:
    """The inverse of `dump_record`."""
    return _record_ta().validate_json(body)
