"""Transactions to read the writes of other processes, and to mark watched tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .contexts import QUEUED
from .transaction import LockTasks, Transaction
from .vocabulary import LAST_EVENT

__all__ = ('WATCH', 'Noticed', 'look', 'mark')

WATCH = 10_000
"""Milliseconds for which a mark says that a task is watched. Marks are renewed after half of this time.

Marks are compared by the clock of leases on SQLite. On PostgreSQL each process estimates the database's clock, because
notifications bring marks too.
"""

_NEWEST_EVENT = f'SELECT {LAST_EVENT} FROM task WHERE agent = ? AND id = ?'
_ALIVE = "state IN ('submitted', 'working', 'input-required', 'auth-required')"


class Noticed(NamedTuple):
    """The result of one poll: watched tasks, cancellations, claimable tasks."""

    newest: Mapping[str, int | None]
    """The newest event number of each requested task; None for an unknown task."""
    watched: Mapping[str, int]
    """Tasks with readers, each with the expiry of the mark (ms)."""
    canceled: Sequence[str]
    """Running tasks to cancel."""
    ready: bool
    """True if a task waits for a worker, or was handed back."""


def look(agent: str, tasks: Iterable[str], at: int) -> Transaction[Noticed]:
    """Read the current state."""
    newest: dict[str, int | None] = {}
    for task_id in tasks:
        rows = yield _NEWEST_EVENT, (agent, task_id)
        newest[task_id] = rows[0][0] if rows else None
    watched = yield (
        # Both conditions on `watched_until` are needed: with `> 0`, a partial index finds the few watched tasks.
        f'SELECT id, watched_until FROM task WHERE agent = ? AND watched_until > ? AND watched_until > 0 AND {_ALIVE}',
        (agent, at),
    )
    canceled = yield (
        "SELECT id FROM task WHERE agent = ? AND state = 'working' AND cancel_requested = 1",
        (agent,),
    )
    ready = yield (
        f'SELECT 1 WHERE EXISTS (SELECT 1 FROM task WHERE agent = ? AND {QUEUED})'
        " OR EXISTS (SELECT 1 FROM task WHERE agent = ? AND state = 'working' AND queued = 0 AND holder IS NULL)",
        (agent, agent),
    )
    return Noticed(newest, dict(watched), [row[0] for row in canceled], bool(ready))


def mark(agent: str, tasks: Sequence[str], until: int) -> Transaction[list[str]]:
    """Mark tasks as read by this process. Return the locked tasks, which are not marked."""
    locked = [row[0] for row in (yield LockTasks(agent, tasks, wait=False))]
    yield [
        (
            f'UPDATE task SET watched_until = ? WHERE agent = ? AND id = ? AND watched_until < ? AND {_ALIVE}',
            [(until, agent, task_id, until) for task_id in tasks if task_id not in locked],
        )
    ]
    return locked
