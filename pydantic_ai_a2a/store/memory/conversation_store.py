"""The conversations of one owner as Pydantic AI's `ConversationStore`."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)

from ...audit import audit
from ...types import new_correlation_id
from ..histories import StoredEntry, dump_message, load_entries, load_record
from .conversations import BATCH, Entry
from .store import Store


class MemoryConversationStore(ConversationStore):
    """The conversations of one owner. `delete` erases the messages that no other conversation shares."""

    def __init__(self, store: Store, owner: str) -> None:
        self._store = store
        self._conversations = store.conversations
        self._owner = owner

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        with self._store.lock:
            conversation = self._conversations.find(self._owner, conversation_id)
        return None if conversation is None else load_record(conversation.record)

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        with self._store.lock:
            conversations = [conversation for _, conversation in self._conversations.of_owner(self._owner)]
        conversations.sort(key=lambda conversation: conversation.updated_at, reverse=True)
        if scope is None:
            conversations = conversations[:limit]
        records = [load_record(conversation.record) for conversation in conversations]
        return [record for record in records if scope is None or record.scope == scope][:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        entries = [(entry.id, entry.parent_id, dump_message(entry.message)) for entry in new_entries]
        with self._store.lock:
            self._check(record.conversation_id, expected_revision)
            self._conversations.write(self._owner, record, entries, round(record.updated_at.timestamp() * 1000))

    def _check(self, conversation_id: str, expected_revision: str | None) -> None:
        conversation = self._conversations.find(self._owner, conversation_id)
        if (None if conversation is None else load_record(conversation.record).revision) != expected_revision:
            raise ConversationConflict(conversation_id)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        with self._store.lock:
            self._check(conversation_id, expected_revision)
            self._conversations.erase(self._owner, conversation_id, BATCH)
        facts = {'conversation': conversation_id, 'owner': self._owner}
        audit('erased', correlation_id=new_correlation_id(), via='python', **facts)
        while self._drop_left():
            pass
        self._store.forget(self._owner, conversation_id)

    def _drop_left(self) -> int:
        with self._store.lock:
            return self._conversations.drop_left(self._owner, BATCH)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        with self._store.lock:
            entry = self._conversations.entry(self._owner, entry_id)
        return load_entries(_stored([entry]))[0]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        if head_id is None:
            return []
        with self._store.lock:
            entries = self._conversations.chain(self._conversations.entry(self._owner, head_id))
        return load_entries(_stored(entries if limit is None else entries[max(0, len(entries) - limit) :]))

    async def read_since(self, head_id: str, known_id: str | None) -> list[StoredEntry]:
        """See `EntryReader.read_since`."""
        with self._store.lock:
            entries = self._conversations.chain(self._conversations.entry(self._owner, head_id), known_id)
        return _stored(entries)


def _stored(entries: Sequence[Entry]) -> list[StoredEntry]:
    return [
        StoredEntry(entry.id, None if entry.parent is None else entry.parent.id, bytes(entry.message))
        for entry in entries
    ]
