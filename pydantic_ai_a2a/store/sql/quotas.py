"""Quotas in SQL: request buckets of callers, and the usage of runs in sliding windows.

A bucket is one number, the time of the next full bucket. Each request adds an interval to the time; a request that
would move the time too far ahead is refused. So one statement checks and counts a request.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.usage import RunUsage
from pydantic_core import from_json, to_json

from ...types import TERMINAL
from ..ports import Bucket, Charge, Spent
from ..rules import divided, unpaid
from .transaction import LockTasks, Transaction, Write
from .vocabulary import TASK

_TAKE = (
    'INSERT INTO bucket (agent, subject, name, full_at) VALUES (?, ?, ?, ?) ON CONFLICT (agent, subject, name)'
    ' DO UPDATE SET full_at = CASE WHEN bucket.full_at > ? THEN bucket.full_at ELSE ? END + ?'
    ' WHERE bucket.full_at <= ? RETURNING full_at'
)
_CHARGE = (
    'INSERT INTO spending (agent, subject, span, until, requests, tokens, cost) VALUES (?, ?, ?, ?, ?, ?, ?)'
    ' ON CONFLICT (agent, subject, span, until) DO UPDATE SET requests = spending.requests + excluded.requests,'
    ' tokens = spending.tokens + excluded.tokens, cost = spending.cost + excluded.cost'
)


def take(agent: str, bucket: Bucket, *, at: int) -> Transaction[int]:
    """See `QuotaStore.take`."""
    subject, name, interval, burst = bucket
    now = at * 1000
    latest = now + (burst - 1) * interval  # the latest `full_at` with room for one more
    taken = yield _TAKE, (agent, subject, name, now + interval, now, now, interval, latest)
    if taken:
        return 0
    rows = yield 'SELECT full_at FROM bucket WHERE agent = ? AND subject = ? AND name = ?', (agent, subject, name)
    return -(-(rows[0][0] - latest) // 1000)


def spent(agent: str, subject: str, window: int, *, at: int) -> Transaction[list[Spent]]:
    """See `QuotaStore.spent`."""
    rows = yield (
        'SELECT until, requests, tokens, cost FROM spending WHERE agent = ? AND subject = ? AND span = ?'
        ' AND until > ? ORDER BY until',
        (agent, subject, window, at),
    )
    return [Spent(*row) for row in rows]


def charge(agent: str, charges: Sequence[Charge]) -> Transaction[None]:
    """See `QuotaStore.charge`."""
    yield [_charged(agent, charges)]


def settle(agent: str, task_id: str, run: int, charges: Sequence[Charge]) -> Transaction[None]:
    """See `QuotaStore.settle`."""
    yield LockTasks(agent, [task_id])
    rows = yield f'SELECT state, run, paid FROM task WHERE {TASK}', (agent, task_id)
    # Only the task has the charged amounts of a run. A run of an erased task may have been charged before, so charge
    # nothing.
    for state, newest, paid in rows:
        if state in TERMINAL and newest == run:
            yield charged(agent, task_id, run, paid, charges)


def charged(agent: str, task_id: str, run: int, paid: bytes | None, charges: Sequence[Charge]) -> list[Write]:
    """Return the writes that charge a run for its usage beyond `paid`."""
    rest = unpaid(run, _amounts(paid), charges)
    if rest is None:
        return []
    due, total = rest
    return [_charged(agent, due), (f'UPDATE task SET paid = ? WHERE {TASK}', [(to_json(total), agent, task_id)])]


def divide(agent: str, task_id: str, run: int, paid: bytes | None, *, new_id: str, usage: RunUsage) -> Write:
    """Divide the usage of a run between its task and another task, as `divided`."""
    of_new, of_old = divided(run, _amounts(paid), usage)
    values = [(of_new, new_id), (of_old, task_id)]
    return f'UPDATE task SET paid = ? WHERE {TASK}', [(to_json(amounts), agent, task) for amounts, task in values]


def _amounts(paid: bytes | None) -> Sequence[int]:
    return () if paid is None else from_json(paid)


def _charged(agent: str, charges: Sequence[Charge]) -> Write:
    """Return the writes of charges, in a fixed order against deadlocks."""
    return _CHARGE, [(agent, *charge) for charge in sorted(charges)]


def sweep(agent: str, *, at: int, limit: int) -> Transaction[int]:
    """Delete full buckets and expired charges, and return the number of rows."""
    full = yield (
        'DELETE FROM bucket WHERE agent = ? AND full_at <= ? AND (subject, name) IN (SELECT subject, name FROM bucket'
        ' WHERE agent = ? AND full_at <= ? ORDER BY full_at LIMIT ?) RETURNING full_at',
        (agent, at * 1000, agent, at * 1000, limit),
    )
    forgotten = yield (
        'DELETE FROM spending WHERE agent = ? AND until <= ? AND (subject, span, until) IN (SELECT subject, span, until'
        ' FROM spending WHERE agent = ? AND until <= ? ORDER BY until LIMIT ?) RETURNING until',
        (agent, at, agent, at, limit),
    )
    return len(full) + len(forgotten)
