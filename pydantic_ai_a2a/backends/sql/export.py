"""The ids of the tasks and conversations of an owner, in batches: each batch begins after the batch before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import ranges
from .transaction import Transaction, where

__all__ = ('conversation_ids', 'export_requests', 'task_ids')

_BATCH = 500


def task_ids(agent: str, owner: str, context_id: str | None, after: str) -> Transaction[list[str]]:
    """Return the next ids of an owner's tasks, or of the tasks of one context."""
    batch = where({'agent = ?': agent, 'owner = ?': owner, 'id > ?': after, 'context_id = ?': context_id})
    return (yield from _batch(*ranges.union(ranges.RANGES, 'id', *batch)))


def conversation_ids(agent: str, owner: str, context_id: str | None, after: str) -> Transaction[list[str]]:
    """Return the next ids of an owner's conversations, or the id of one context's conversation."""
    batch, values = where({'agent = ?': agent, 'owner = ?': owner, 'id > ?': after, 'id = ?': context_id})
    return (yield from _batch(f'SELECT id FROM conversation WHERE {batch}', values))


def export_requests(agent: str, task_id: str) -> Transaction[list[bytes]]:
    """Return the requests of a task's messages, oldest first."""
    rows = yield (
        'SELECT 0 AS seq, request FROM task WHERE agent = ? AND id = ?'
        " UNION ALL SELECT seq, request FROM item WHERE agent = ? AND task_id = ? AND kind = 'message' ORDER BY seq",
        (agent, task_id, agent, task_id),
    )
    return [request for _, request in rows if request]


def _batch(query: str, values: Sequence[Any]) -> Transaction[list[str]]:
    rows = yield f'{query} ORDER BY id LIMIT ?', (*values, _BATCH)
    return [row[0] for row in rows]
