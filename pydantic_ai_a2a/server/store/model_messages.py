"""Model messages and records of conversations as JSON, complete for Pydantic AI to load again."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import ConversationRecord
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, TextPart
from pydantic_ai.usage import RequestUsage, RunUsage
from pydantic_core import to_json

from ...json_values import without_surrogates
from .ports.failed_tries import Tried
from .run_usage import dump_usage, load_usage, plain_usage

logger = logging.getLogger('pydantic_ai_a2a')

_PLAIN_REQUEST = {0: {'instructions', 'metadata', 'state'}}
"""Pydantic's `exclude` for a list of one request: its fields that mostly have the default."""
_NO_DETAILS = {'id', 'provider_name', 'provider_details', 'citations'}
"""Fields of a text that are mostly None."""


@cache
def _record_ta() -> TypeAdapter[ConversationRecord]:
    return TypeAdapter(ConversationRecord)


@cache
def _tried_ta() -> TypeAdapter[Tried]:
    return TypeAdapter(Tried)


def prepare() -> None:
    """Build the schemas of stored values before the first task: building takes tens of milliseconds."""
    _record_ta()
    _dump([])


def dump_messages(messages: Sequence[ModelMessage]) -> bytes:
    """Return model messages as a JSON array."""
    return _dump([message if message.kind == 'request' else _with_plain_usage(message) for message in messages])


def _with_plain_usage(response: ModelResponse) -> ModelResponse:
    usage = plain_usage(response.usage)
    return response if usage is response.usage else replace(response, usage=usage)


def _dump(messages: list[ModelMessage], exclude: Any = None) -> bytes:
    try:
        return ModelMessagesTypeAdapter.dump_json(messages, exclude=exclude)
    except ValueError:
        values = ModelMessagesTypeAdapter.dump_python(messages, exclude=exclude)
    # What the model never sees, such as `ToolReturn.metadata`, may be any object; texts may have lone surrogates.
    return to_json(without_surrogates(values), bytes_mode='base64', inf_nan_mode='constants', fallback=_as_text)


def _as_text(value: object) -> str:
    logger.warning('An object of the type %s in a model message is stored as text.', type(value).__qualname__)
    return f'<{type(value).__qualname__}>'


def dump_message(message: ModelMessage) -> bytes:
    """Return a model message as JSON, for `load_message_rows`."""
    # One adapter for all kinds: two more, for requests and responses, take 40 ms at the start and save 2 us a message.
    if not isinstance(message, ModelResponse):
        plain = message.instructions is message.metadata is None and message.state == 'complete'
        return _dump([message], _PLAIN_REQUEST if plain else None)[1:-1]
    absent = _unset(message)
    if message.state == 'complete':
        absent['state'] = True
    match message.parts:
        case [TextPart(id=None, provider_name=None, provider_details=None, citations=None)]:
            absent['parts'] = {0: _NO_DETAILS}
        case _:
            pass
    body = _dump([message], {0: absent})
    return _with_usage(memoryview(body)[1:-1], message.usage)


def load_messages(body: bytes) -> list[ModelMessage]:
    """The inverse of `dump_messages`."""
    return ModelMessagesTypeAdapter.validate_json(body)


def load_message_rows(bodies: Iterable[bytes]) -> list[ModelMessage]:
    """The inverse of `dump_message` for several messages."""
    return load_messages(b'[' + b','.join(bodies) + b']')


def dump_tried(tried: Tried) -> bytes:
    """Return the failed tries of a run as JSON."""
    return _tried_ta().dump_json(replace(tried, usage=load_usage(dump_usage(tried.usage))))


def load_tried(body: bytes) -> Tried:
    """The inverse of `dump_tried`."""
    return _tried_ta().validate_json(body)


def dump_record(record: ConversationRecord) -> bytes:
    """Return the record of a conversation as JSON."""
    return _with_usage(memoryview(_record_ta().dump_json(record, exclude=_unset(record))), record.usage)


def _unset(value: ModelResponse | ConversationRecord) -> dict[str, Any]:
    """Return Pydantic's `exclude` for a value: its usage, and its fields that are None, nearly half of a response."""
    # Keep `head_id`, also as None: the field has no default, so a record without it cannot be read.
    unset = {name: True for name, field in vars(value).items() if field is None and name != 'head_id'}
    return {'usage': True, **unset}


def _with_usage(body: memoryview, usage: RunUsage | RequestUsage) -> bytes:
    """Return a JSON object with a usage as its last member."""
    return b''.join((body[:-1], b',"usage":', dump_usage(usage), b'}'))


def load_record(body: bytes) -> ConversationRecord:
    """The inverse of `dump_record`."""
    return _record_ta().validate_json(body)
