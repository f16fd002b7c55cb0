"""A cache of recently used contexts: a turn reads only newer messages from the store.

An entry of a conversation never changes, so cached messages stay valid.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple, Protocol, TypeAlias

from pydantic_ai.conversation_store import ConversationEntry
from pydantic_ai.messages import ModelMessage

from .model_json import load_message_rows

__all__ = ('EntryReader', 'Histories', 'StoredEntry', 'load_entries')

_LIMIT = 32_000_000
"""Limit of stored bytes in the cache; messages in memory take several times as much."""


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


_NOTHING = _Kept()


class Histories:
    """Reads the messages of contexts, with a cache of recently used contexts.

    Args:
        limit: Limit of stored bytes in the cache; a longer context is read anew for each turn.
    """

    def __init__(self, limit: int = _LIMIT) -> None:
        self._limit = limit
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
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
            for key in [key for key in self._kept if key == (owner, context_id or key[1])]:
                self._size -= self._kept.pop(key).size

    def _keep(self, key: _Key, entry: _Kept) -> None:
        with self._lock:
            self._size += entry.size - self._kept.pop(key, _NOTHING).size
            self._kept[key] = entry
            while self._size > self._limit:
                self._size -= self._kept.popitem(last=False)[1].size


async def _grown(store: EntryReader, entry: _Kept, head: str) -> _Kept:
    rows = await store.read_since(head, entry.head)
    if rows[0].parent_id is None:
        entry = _NOTHING
    messages = load_message_rows(row.message for row in rows)
    return _Kept(head, [*entry.messages, *messages], entry.size + sum(len(row.message) for row in rows))
