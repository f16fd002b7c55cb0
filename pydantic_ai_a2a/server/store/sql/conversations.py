"""Conversations as Pydantic AI's `ConversationStore`, in the tasks' own database.

One store serves one owner of one agent. The context id is the conversation id, and each owner has separate
conversations. The new messages of a run are appended in the transaction that completes the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import ModelMessage

from ....correlation_ids import new_correlation_id
from ...audit import audit
from ..conversation_turns import appended
from ..history_cache import StoredEntry, load_entries
from ..model_messages import dump_message, dump_record, load_record
from ..run_usage import plain_usage
from .conversation_deletion import drop_left, erase
from .database import Database
from .transaction import LockName, Transaction, Write

_OF_TASK = 'FROM conversation c WHERE c.agent = task.agent AND c.owner = task.owner AND c.id = task.context_id'
RECORD_OF_TASK, HEAD_OF_TASK = f'(SELECT record {_OF_TASK})', f'(SELECT head_id {_OF_TASK})'
RECORD = 'SELECT record FROM conversation WHERE agent = ? AND owner = ? AND id = ?'
_UPSERT = (
    'INSERT INTO conversation (agent, owner, id, head_id, revision, updated_at, record, listed_at)'
    ' VALUES (?, ?, ?, ?, ?, ?, ?, ?)'
    ' ON CONFLICT (agent, owner, id) DO UPDATE SET head_id = excluded.head_id, revision = excluded.revision,'
    ' updated_at = excluded.updated_at, record = excluded.record'
)
_UPSERT_LISTED = f'{_UPSERT}, listed_at = COALESCE(conversation.listed_at, excluded.listed_at)'
_ENTRY = 'INSERT INTO entry (agent, owner, id, parent_id, message, next_id, follows) VALUES (?, ?, ?, ?, ?, ?, ?)'
_CHAIN = (
    'WITH RECURSIVE chain (id, parent_id, message, depth) AS ('
    ' SELECT id, parent_id, message, 0 FROM entry WHERE agent = ? AND owner = ? AND id = ?'
    ' UNION ALL SELECT entry.id, entry.parent_id, entry.message, chain.depth + 1 FROM chain JOIN entry'
    ' ON entry.agent = ? AND entry.owner = ? AND entry.id = chain.parent_id{})'
)
HISTORY = f'{_CHAIN.format("")} SELECT id, parent_id, message FROM chain WHERE depth < ? ORDER BY depth DESC'
_SINCE = f'{_CHAIN.format(" AND entry.id <> ?")} SELECT id, parent_id, message FROM chain ORDER BY depth DESC'

_BRANCH = 'INSERT INTO conversation_branch (agent, owner, id, tip) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING'
_SHARE = (
    'INSERT INTO conversation_branch (agent, owner, id, tip) SELECT agent, owner, id, head_id FROM conversation'
    ' WHERE agent = ? AND owner = ? AND head_id = ? ON CONFLICT DO NOTHING'
)
"""Note an entry as a tip of all conversations with this entry as the newest one: no index finds these conversations."""
_DROP_BRANCHES = 'DELETE FROM conversation_branch WHERE agent = ? AND owner = ? AND id = ?'

NO_LIMIT = 2**31 - 1
_BATCH = 500
"""The most entries to delete in one transaction."""


def append(
    agent: str,
    owner: str,
    conversation_id: str,
    record: bytes | None,
    messages: Sequence[ModelMessage],
    *,
    at: int,
    **turn: Any,
) -> list[Write]:
    """Append new messages to the conversation as it stands now, whatever the run had started from; or rewrite it.

    `record` is `RECORD_OF_TASK` of a task in this conversation, read in the same transaction. `turn` has the other
    arguments of `appended`.
    """
    current = None if record is None else load_record(record)
    if current is not None and turn['usage'] is not None:
        turn['usage'] = plain_usage(turn['usage'])  # is added to the usage of the conversation
    newest, entries = appended(current, messages, conversation_id=conversation_id, owner=owner, at=at, **turn)
    ids = [entry_id for entry_id, _, _ in entries]
    rows = [
        (agent, owner, entry_id, parent_id, dump_message(message), following, int(n > 0))
        for n, ((entry_id, parent_id, message), following) in enumerate(zip(entries, [*ids[1:], None], strict=False))
    ]
    # `filing.file` lists the conversation with the first filed task of its context.
    writes: list[Write] = [(_ENTRY, rows), (_UPSERT, [_row(agent, owner, newest, at, listed_at=None)])]
    if current is not None and newest.branches != current.branches:
        writes.append((_BRANCH, [(agent, owner, conversation_id, newest.branches[-1])]))
    return writes


def _row(agent: str, owner: str, record: ConversationRecord, at: int, *, listed_at: int | None) -> tuple[Any, ...]:
    body = dump_record(record)
    return agent, owner, record.conversation_id, record.head_id, record.revision, at, body, listed_at


class SqlConversationStore(ConversationStore):
    """The conversations of one owner of one agent. `delete` erases the messages no other conversation shares."""

    def __init__(self, database: Database, agent: str, owner: str) -> None:
        self._database = database
        self._agent = agent
        self._owner = owner

    async def _query(self, statement: str, *values: Any) -> list[Any]:
        def query() -> Transaction[list[Any]]:
            return (yield statement, (self._agent, self._owner, *values))

        return await self._database.read(query)

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        rows = await self._query(RECORD, conversation_id)
        return load_record(rows[0][0]) if rows else None

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        rows = await self._query(
            'SELECT record FROM conversation WHERE agent = ? AND owner = ? ORDER BY updated_at DESC LIMIT ?',
            NO_LIMIT if limit is None or scope is not None else limit,
        )
        records = [load_record(row[0]) for row in rows]
        return [record for record in records if scope is None or record.scope == scope][:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        await self._database.write(self._save, record, new_entries, expected_revision)

    def _save(
        self, record: ConversationRecord, new_entries: Sequence[ConversationEntry], expected_revision: str | None
    ) -> Transaction[None]:
        owner = (self._agent, self._owner)
        yield LockName((*owner, record.conversation_id))
        yield LockName(owner)
        yield from self._check(record.conversation_id, expected_revision)
        rows = [(*owner, entry.id, entry.parent_id, dump_message(entry.message), None, 0) for entry in new_entries]
        yield [(_ENTRY, rows)]
        if record.head_id is not None:
            rows = yield (
                'SELECT 1 FROM entry WHERE agent = ? AND owner = ? AND id = ?',
                (*owner, record.head_id),
            )
            if not rows:
                raise ConversationConflict(record.conversation_id)
        at = round(record.updated_at.timestamp() * 1000)
        yield [
            (_UPSERT_LISTED, [_row(*owner, record, at, listed_at=at)]),
            (_DROP_BRANCHES, [(*owner, record.conversation_id)]),
            (_BRANCH, [(*owner, record.conversation_id, tip) for tip in record.branches]),
            (_SHARE, [(*owner, entry_id) for entry_id in sorted(_shared(record, new_entries))]),
        ]

    def _check(self, conversation_id: str, expected_revision: str | None) -> Transaction[None]:
        rows = yield (
            'SELECT revision FROM conversation WHERE agent = ? AND owner = ? AND id = ?',
            (self._agent, self._owner, conversation_id),
        )
        if (rows[0][0] if rows else None) != expected_revision:
            raise ConversationConflict(conversation_id)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        def delete() -> Transaction[None]:
            yield LockName((self._agent, self._owner, conversation_id))
            yield from self._check(conversation_id, expected_revision)
            yield LockName((self._agent, self._owner))
            yield from erase(self._agent, [(self._owner, conversation_id)], _BATCH)

        await self._database.write(delete)
        facts = {'conversation': conversation_id, 'owner': self._owner}
        audit('erased', correlation_id=new_correlation_id(), via='python', **facts)
        left = True
        while left:
            left = await self._database.write(drop_left, self._agent, self._owner, _BATCH)
            await asyncio.sleep(0)  # a database in memory never waits
        self._database.forget(self._owner, conversation_id)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        rows = await self._query(
            'SELECT id, parent_id, message FROM entry WHERE agent = ? AND owner = ? AND id = ?', entry_id
        )
        if not rows:
            raise LookupError(entry_id)
        return load_entries([StoredEntry(*rows[0])])[0]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        if head_id is None:
            return []
        rows = await self._query(HISTORY, head_id, self._agent, self._owner, NO_LIMIT if limit is None else limit)
        if not rows and limit != 0:
            raise LookupError(head_id)
        return load_entries([StoredEntry(*row) for row in rows])

    async def read_since(self, head_id: str, known_id: str | None) -> list[StoredEntry]:
        """See `EntryReader.read_since`."""
        rows = await self._query(_SINCE, head_id, self._agent, self._owner, known_id or '')
        if not rows:
            raise LookupError(head_id)
        return [StoredEntry(*row) for row in rows]


def _shared(record: ConversationRecord, new_entries: Sequence[ConversationEntry]) -> set[str]:
    """Return the entries that another conversation may have as the newest one: those that were there before."""
    before = {record.head_id, *(entry.parent_id for entry in new_entries)} - {entry.id for entry in new_entries}
    return {entry_id for entry_id in before if entry_id is not None}
