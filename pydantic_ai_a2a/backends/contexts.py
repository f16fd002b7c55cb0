"""The line in which the tasks of a context wait, since they run one after another: who is first. Pure, like `sql`.

Whether another task is before it is kept with each task: who looks for work would otherwise have to go through all that
wait in a context that is busy.
"""

from __future__ import annotations

from .transaction import Write

__all__ = ('BEHIND', 'MIGRATION', 'NEXT', 'QUEUED', 'let_go', 'let_go_who_is_first')

MIGRATION = (
    'ALTER TABLE task ADD COLUMN behind INTEGER NOT NULL DEFAULT 0',
    # SQLite prefers the index of which it can use most columns: so state and behind are among them.
    "CREATE INDEX task_first ON task (agent, state, behind, queue_seq) WHERE state = 'submitted' AND behind = 0",
)

_LIVE = "state IN ('submitted', 'working')"
_OTHERS = (
    f'FROM task e WHERE e.agent = task.agent AND e.owner = task.owner AND e.context_id = task.context_id AND e.{_LIVE}'
)
_FIRST = f'NOT EXISTS (SELECT 1 {_OTHERS} AND e.queue_seq < task.queue_seq)'
QUEUED = f"state = 'submitted' AND behind = 0 AND {_FIRST}"
"""Waits, and is the first of its context to run."""
NEXT = f'(SELECT e.id {_OTHERS} AND e.id <> task.id ORDER BY e.queue_seq LIMIT 1)'
"""The first of a task's context, once that has ended."""
BEHIND = (
    'CASE WHEN EXISTS (SELECT 1 FROM task e WHERE e.agent = ? AND e.owner = ? AND e.context_id = ?'
    f' AND e.{_LIVE}) THEN 1 ELSE 0 END'
)
"""Whether a task that comes into the line of a context (agent, owner, context) now has others before it."""


def let_go(agent: str, task_id: str) -> Write:
    """Let the task be run that the end of another one has made the first of its context."""
    return 'UPDATE task SET behind = 0 WHERE agent = ? AND id = ? AND behind = 1', [(agent, task_id)]


def let_go_who_is_first(agent: str, limit: int) -> Write:
    """Let go of those who are first and were not told, among so many that have waited longest.

    Processes of an older version tell nobody; they may run beside this one while it is upgraded.
    """
    waiting = "SELECT id FROM task WHERE agent = ? AND state = 'submitted' AND behind = 1 ORDER BY queue_seq LIMIT ?"
    return (
        f"UPDATE task SET behind = 0 WHERE agent = ? AND id IN ({waiting}) AND state = 'submitted' AND {_FIRST}",
        [(agent, agent, limit)],
    )
