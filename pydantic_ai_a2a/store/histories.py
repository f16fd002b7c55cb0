"""A cache of recently used contexts: a turn reads only newer messages from the store.

An entry of a conversation never changes, so cached messages stay valid.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextvars import Context
from dataclasses import fields, replace
from decimal import Decimal
from functools import cache
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import ConversationEntry, ConversationRecord
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, TextPart
from pydantic_ai.usage import RequestUsage, RunUsage
from pydantic_core import SchemaValidator, core_schema, to_json

from ..types import LARGEST, as_object, bounded, count_of, without_surrogates
from .ports.queue import Tried

UsageT = TypeVar('UsageT', bound=RunUsage | RequestUsage)

_LIMIT = 32_000_000
"""Limit of the memory of the cache, in bytes as `memory_of` estimates them."""
_UNUSED = 300.0
"""Seconds until an unused context leaves the cache. Another process may have erased it, and tells nobody."""


class StoredEntry(NamedTuple):
    """A stored entry of a conversation."""

    id: str
    parent_id: str | None
    message: bytes


def load_entries(entries: Sequence[StoredEntry]) -> list[ConversationEntry]:
    """Return stored entries with the messages loaded."""
    messages = load_message_rows(entry.message for entry in entries)
    return [
        ConversationEntry(id=entry.id, parent_id=entry.parent_id, message=message)
        for entry, message in zip(entries, messages, strict=True)
    ]


class EntryReader(Protocol):
    """The conversations of one owner in a store."""

    async def read_since(self, head_id: str, known_id: str | None) -> Sequence[StoredEntry]:
        """Return the entries up to the head, oldest first; only newer entries, if a known entry is in the list."""
        ...


_Key: TypeAlias = tuple[str, str]


class _Kept(NamedTuple):
    head: str | None = None
    messages: Sequence[ModelMessage] = ()
    size: int = 0
    used: float = 0.0
    """Time of the last use, by the monotonic clock."""


_NOTHING = _Kept()


class Histories:
    """Reads the messages of contexts, with a cache of recently used contexts.

    Args:
        limit: Limit of the memory of the cache; a longer context is read anew for each turn.
        unused: Seconds until an unused context leaves the cache.
    """

    def __init__(self, limit: int = _LIMIT, unused: float = _UNUSED) -> None:
        self._limit = limit
        self._unused = unused
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        """The contexts in the order of their last use."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop that calls `_drop_unused` later."""
        self._size = 0
        self._lock = Lock()

    async def read(self, store: EntryReader, owner: str, context_id: str, head: str) -> list[ModelMessage]:
        """Return the messages of an owner's context up to an entry: shared objects, which callers must not change.

        A copy would make a turn slower with each message of the conversation.

        Raises:
            LookupError: The context has no such entry.
        """
        key = owner, context_id
        entry = self._kept.get(key, _NOTHING)
        if entry.head != head:
            entry = await _grown(store, entry, head)
        self._keep(key, entry)
        return [*entry.messages]

    def forget(self, owner: str, context_id: str | None = None) -> None:
        """Drop an erased context, or all contexts of an owner, from the cache."""
        with self._lock:
            for key in [(owner, context_id)] if context_id else [key for key in self._kept if key[0] == owner]:
                self._drop(key)

    def _keep(self, key: _Key, entry: _Kept) -> None:
        with self._lock:
            self._drop(key)
            self._size += entry.size
            self._kept[key] = entry._replace(used=monotonic())
            while self._size > self._limit:
                self._drop(next(iter(self._kept)))
            if self._loop is None or self._loop.is_closed():
                self._wait(self._unused)

    def _drop(self, key: _Key) -> None:
        self._size -= self._kept.pop(key, _NOTHING).size

    def _drop_unused(self) -> None:
        with self._lock:
            self._loop = None
            while self._kept:
                key, entry = next(iter(self._kept.items()))
                if (left := entry.used + self._unused - monotonic()) > 0:
                    return self._wait(left)
                self._drop(key)

    def _wait(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        # Without a new context, the event loop would keep that of the request.
        self._loop.call_later(seconds, self._drop_unused, context=Context())


async def _grown(store: EntryReader, entry: _Kept, head: str) -> _Kept:
    rows = await store.read_since(head, entry.head)
    if rows[0].parent_id is None:
        entry = _NOTHING
    messages = load_message_rows(row.message for row in rows)
    return _Kept(head, [*entry.messages, *messages], entry.size + sum(memory_of(row.message) for row in rows))


def memory_of(message: bytes) -> int:
    """Return about the bytes of memory of a stored message once loaded: 0.9 to 4 times the true number.

    Python stores a text in 1, 2 or 4 bytes a character, as its widest character needs, and each JSON value as an
    object. The commas of a text in CSV count as values, so its number is higher.
    """
    # UTF-8 begins characters of four bytes, such as emojis, with 0xF0.
    width = 1 if message.isascii() else 4 if b'\xf0' in message else 2
    values = sum(map(message.count, (b',', b'[', b'{'))) - message.count(b', ')  # JSON is stored without spaces
    return width * len(message) + 120 * values


# --- model messages, usage and records of conversations as JSON, complete for Pydantic AI to load again ---------------

logger = logging.getLogger('pydantic_ai_a2a')


@cache
def _record_ta() -> TypeAdapter[ConversationRecord]:
    return TypeAdapter(ConversationRecord)


@cache
def _usage_ta() -> TypeAdapter[RunUsage]:
    return TypeAdapter(RunUsage)


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
        absent = _NO_INSTRUCTIONS if message.instructions is message.metadata is None else None
        return _dump([message], absent)[1:-1]
    match message.parts:
        case [TextPart(id=None, provider_name=None, provider_details=None, citations=None)]:
            parts = {'parts': {0: _NO_DETAILS}}
        case _:
            parts = {}
    body = _dump([message], {0: {**_unset(message), **parts}})
    return _with_usage(memoryview(body)[1:-1], message.usage)


def load_messages(body: bytes) -> list[ModelMessage]:
    """The inverse of `dump_messages`."""
    return ModelMessagesTypeAdapter.validate_json(body)


def load_message_rows(bodies: Iterable[bytes]) -> list[ModelMessage]:
    """The inverse of `dump_message` for several messages."""
    return load_messages(b'[' + b','.join(bodies) + b']')


def dump_usage(usage: RunUsage | RequestUsage) -> bytes:
    """Return a usage as JSON, with the fields that were set."""
    # The adapter of a usage calls Python to find values beyond its fields. All values are plain: none is needed.
    values = usage.__dict__ if _IS_PLAIN(usage.__dict__) else vars(plain_usage(usage))
    return to_json(values, exclude=None if usage.details else _DETAILS, inf_nan_mode='null')


def plain_usage(usage: UsageT) -> UsageT:
    """Return a usage with numbers that can be stored, loaded and added. A provider may report any numbers."""
    if _IS_PLAIN(vars(usage)):
        return usage
    return type(usage)(**{name: _number(name, value) for name, value in vars(usage).items()})


def _number(name: str, value: Any) -> Any:
    match name:
        case 'details':
            return {key: count_of(count) for key, count in as_object(value).items()}
        case 'cost':
            return None if value is None else Decimal(bounded(value))
        case 'audio_seconds':
            return float(bounded(value))
        case _ if name in _COUNTS:
            return count_of(value)
        case _:
            return bounded(value) if isinstance(value, int | float) else value


def load_usage(body: bytes) -> RunUsage:
    """The inverse of `dump_usage`."""
    return _usage_ta().validate_json(body)


def dump_tried(tried: Tried) -> bytes:
    """Return the failed tries of a run as JSON."""
    return _tried_ta().dump_json(replace(tried, usage=load_usage(dump_usage(tried.usage))))


def load_tried(body: bytes) -> Tried:
    """The inverse of `dump_tried`."""
    return _tried_ta().validate_json(body)


def dump_record(record: ConversationRecord) -> bytes:
    """Return the record of a conversation as JSON."""
    return _with_usage(memoryview(_record_ta().dump_json(record, exclude=_unset(record))), record.usage)


_COUNTS = frozenset(field.name for field in fields(RunUsage)) - {'details', 'cost', 'audio_seconds'}
_COUNT = core_schema.int_schema(strict=True, ge=0, le=LARGEST)
_COST = core_schema.decimal_schema(strict=True, ge=Decimal(0), le=Decimal(LARGEST))
_IS_PLAIN = SchemaValidator(
    core_schema.typed_dict_schema(
        {
            'details': core_schema.typed_dict_field(core_schema.dict_schema(values_schema=_COUNT)),
            'cost': core_schema.typed_dict_field(core_schema.nullable_schema(_COST), required=False),
            'audio_seconds': core_schema.typed_dict_field(
                core_schema.float_schema(strict=True, ge=0, le=LARGEST), required=False
            ),
        },
        extras_schema=_COUNT,
        extra_behavior='allow',
    )
).isinstance_python
"""Returns True for the fields of a usage that can be stored as they are, in one call."""
_DETAILS = {'details'}
_NO_INSTRUCTIONS = {0: {'instructions', 'metadata'}}
"""Pydantic's `exclude` for a list of one request: its fields that are mostly None."""
_NO_DETAILS = {'id', 'provider_name', 'provider_details', 'citations'}
"""Fields of a text that are mostly None."""


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
