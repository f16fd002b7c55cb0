"""A cache of recently used contexts: a turn reads only newer messages from the store.

An entry of a conversation never changes, so cached messages stay valid.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from contextvars import Context
from threading import Lock
from time import monotonic
from typing import NamedTuple, Protocol, TypeAlias

from pydantic_ai.conversation_store import ConversationEntry
from pydantic_ai.messages import ModelMessage

from .model_messages import load_message_rows

_LIMIT = 32_000_000
"""Limit of the memory of the cache, in bytes as `memory_of` estimates them."""
_UNUSED = 300.0
"""Seconds until an unused context leaves the cache. Another process may have erased it, and tells nobody."""
_Key: TypeAlias = tuple[str, str]


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


class _KeptHistory(NamedTuple):
    head: str | None = None
    messages: Sequence[ModelMessage] = ()
    size: int = 0
    used: float = 0.0
    """Time of the last use, by the monotonic clock."""


_NOTHING = _KeptHistory()


class Histories:
    """Reads the messages of contexts, with a cache of recently used contexts.

    Args:
        limit: Limit of the memory of the cache; a longer context is read anew for each turn.
        unused: Seconds until an unused context leaves the cache.
    """

    def __init__(self, limit: int = _LIMIT, unused: float = _UNUSED) -> None:
        self._limit = limit
        self._unused = unused
        self._kept: OrderedDict[_Key, _KeptHistory] = OrderedDict()
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

    def _keep(self, key: _Key, entry: _KeptHistory) -> None:
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


async def _grown(store: EntryReader, entry: _KeptHistory, head: str) -> _KeptHistory:
    rows = await store.read_since(head, entry.head)
    if rows[0].parent_id is None:
        entry = _NOTHING
    messages = load_message_rows(row.message for row in rows)
    return _KeptHistory(head, [*entry.messages, *messages], entry.size + sum(memory_of(row.message) for row in rows))


def memory_of(message: bytes) -> int:
    """Return about the bytes of memory of a stored message once loaded: 0.9 to 4 times the true number.

    Python stores a text in 1, 2 or 4 bytes a character, as its widest character needs, and each JSON value as an
    object. The commas of a text in CSV count as values, so its number is higher.
    """
    # UTF-8 begins characters of four bytes, such as emojis, with 0xF0.
    width = 1 if message.isascii() else 4 if b'\xf0' in message else 2
    values = sum(map(message.count, (b',', b'[', b'{'))) - message.count(b', ')  # JSON is stored without spaces
    return width * len(message) + 120 * values
