"""The ids of what an owner has: each batch begins after the one before, whatever is written meanwhile. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import ranges
from .transaction import Transaction

__all__ = ('conversation_ids', 'task_ids')

_BATCH = 500


def task_ids(agent: str, owner: str, context_id: str | None, after: str) -> Transaction[list[str]]:
    """A batch of the ids of an owner's tasks, or of those of one context."""
    where, values = _where('context_id', (agent, owner, context_id), after)
    found, all_values = ranges.union(ranges.RANGES, 'id', where, values)
    return (yield from _batch(found, all_values))


def conversation_ids(agent: str, owner: str, context_id: str | None, after: str) -> Transaction[list[str]]:
    """A batch of the ids of an owner's conversations, or that of one context."""
    where, values = _where('id', (agent, owner, context_id), after)
    return (yield from _batch(f'SELECT id FROM conversation WHERE {where}', values))


def _where(context: str, which: tuple[str, str, str | None], after: str) -> tuple[str, tuple[str, ...]]:
    """Return the condition of the rows after an id, and its values."""
    agent, owner, context_id = which
    where, values = 'agent = ? AND owner = ? AND id > ?', (agent, owner, after)
    return (where, values) if context_id is None else (f'{where} AND {context} = ?', (*values, context_id))


def _batch(found: str, values: Sequence[Any]) -> Transaction[list[str]]:
    rows = yield f'{found} ORDER BY id LIMIT ?', (*values, _BATCH)
    return [row[0] for row in rows]
