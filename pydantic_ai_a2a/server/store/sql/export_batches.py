"""The tasks and conversations of an owner for an export: their ids in batches, requests, and conversations.

A batch has the rows after the last row of the batch before, in the order of an index: a batch costs the same for any
number of tasks. The last column of a row is the id.
"""

from __future__ import annotations

from typing import Any

from pydantic_ai.conversation_store import ConversationRecord
from pydantic_ai.messages import ModelMessage

from ....task_states import INTERRUPTED
from ..model_messages import load_message_rows, load_record
from . import conversations, task_ranges
from .key_conditions import where
from .task_ranges import tasks_of_owner
from .transaction import Rows, Transaction

BATCH = 500
_MOVING = (*task_ranges.UNCOUNTED, f'{task_ranges.FILED} AND state IN {tuple(sorted(INTERRUPTED))}')
"""Tasks that may still be filed, or filed again."""


def moving_ids(agent: str, owner: str, context_id: str | None) -> Transaction[list[str]]:
    """Return the ids of an owner's tasks that may still be filed, or of those of one context."""
    query, values = task_ranges.union(_MOVING, 'id', *tasks_of_owner(agent, owner, context_id))
    rows = yield f'{query} ORDER BY id', values
    return [row[0] for row in rows]


def filed_ids(agent: str, owner: str, context_id: str | None, after: tuple[Any, ...] | None) -> Transaction[Rows]:
    """Return a batch of the filed tasks that an export reads, of an owner or of one context."""
    tasks, values = where(
        {
            'agent = ?': agent,
            'owner = ?': owner,
            'context_id = ?': context_id,
            '(state, status_at, id) > (?, ?, ?)': after,
        }
    )
    query = f'SELECT state, status_at, id FROM task WHERE {tasks} AND {task_ranges.FILED} ORDER BY state, status_at, id'
    return (yield f'{query} LIMIT ?', (*values, BATCH))


def conversation_ids(
    agent: str, owner: str, context_id: str | None, after: tuple[Any, ...] | None
) -> Transaction[Rows]:
    """Return a batch of the conversations that an export reads, of an owner or of one context."""
    batch, values = where({'agent = ?': agent, 'owner = ?': owner, 'id > ?': after, 'id = ?': context_id})
    return (yield f'SELECT id FROM conversation WHERE {batch} ORDER BY id LIMIT ?', (*values, BATCH))


def export_requests(agent: str, task_id: str) -> Transaction[list[bytes]]:
    """Return the requests of a task's messages, oldest first."""
    rows = yield (
        'SELECT 0 AS seq, request FROM task WHERE agent = ? AND id = ?'
        " UNION ALL SELECT seq, request FROM item WHERE agent = ? AND task_id = ? AND kind = 'message' ORDER BY seq",
        (agent, task_id, agent, task_id),
    )
    return [request for _, request in rows if request]


def exported_conversation(
    agent: str, owner: str, conversation_id: str
) -> Transaction[tuple[ConversationRecord, list[list[ModelMessage]]] | None]:
    """Return a conversation with the messages, and the messages of each abandoned branch; None if unknown."""
    rows = yield conversations.RECORD, (agent, owner, conversation_id)
    if not rows:
        return None
    record = load_record(rows[0][0])
    histories: list[list[ModelMessage]] = []
    for head in (record.head_id, *record.branches):
        rows = yield conversations.HISTORY, (agent, owner, head, agent, owner, conversations.NO_LIMIT)
        histories.append(load_message_rows(message for _, _, message in rows))
    return record, histories
