"""The ids of what an owner has: each batch begins after the one before, whatever is written meanwhile. Pure."""

from __future__ import annotations

from .vocabulary import Transaction

__all__ = ('conversation_ids', 'task_ids')

_BATCH = 500


def task_ids(agent: str, owner: str, context_id: str | None, after: str) -> Transaction[list[str]]:
    """A batch of the ids of an owner's tasks, or of those of one context."""
    return (yield from _ids('SELECT id FROM task', 'context_id', (agent, owner, context_id), after))


def conversation_ids(agent: str, owner: str, context_id: str | None, after: str) -> Transaction[list[str]]:
    """A batch of the ids of an owner's conversations, or that of one context."""
    return (yield from _ids('SELECT id FROM conversation', 'id', (agent, owner, context_id), after))


def _ids(select: str, context: str, which: tuple[str, str, str | None], after: str) -> Transaction[list[str]]:
    agent, owner, context_id = which
    where, values = 'agent = ? AND owner = ? AND id > ?', (agent, owner, after)
    if context_id is not None:
        where, values = f'{where} AND {context} = ?', (*values, context_id)
    rows = yield f'{select} WHERE {where} ORDER BY id LIMIT ?', (*values, _BATCH)
    return [row[0] for row in rows]
