"""Quotas in SQL: request buckets of callers, and the usage of runs in sliding windows.

A bucket is one number, the time of the next full bucket. Each request adds an interval to the time; a request that
would move the time too far ahead is refused. So one statement checks and counts a request.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.usage import RunUsage
from pydantic_core import from_json, to_json

from ....task_states import TERMINAL
from ..ports import Bucket, Charge, Spent
from ..ports.quotas import amounts_of
from .deletion import delete_due
from .task_rows import TASK
from .transaction import LockTasks, Transaction, Write

_TAKE = (
    'INSERT INTO bucket (agent, subject, name, full_at) VALUES (?, ?, ?, ?) ON CONFLICT (agent, subject, name)'
    ' DO UPDATE SET full_at = CASE WHEN bucket.full_at > ? THEN bucket.full_at ELSE ? END + ?'
    ' WHERE bucket.full_at <= ? RETURNING full_at'
)
_FULL = 2**62
"""The sum from which nothing is added: each charge has at most 2**53, so that sums fit into integers of 64 bits."""
_SUMS = ', '.join(
    f'{name} = CASE WHEN spending.{name} >= {_FULL} THEN spending.{name} ELSE spending.{name} + excluded.{name} END'
    for name in ('requests', 'tokens', 'cost')
)
_CHARGE = (
    'INSERT INTO spending (agent, subject, span, until, requests, tokens, cost) VALUES (?, ?, ?, ?, ?, ?, ?)'
    f' ON CONFLICT (agent, subject, span, until) DO UPDATE SET {_SUMS}'
)
_SET_PAID = f'UPDATE task SET paid = ? WHERE {TASK}'


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
    """Return the writes that charge a run for its usage beyond `paid`, the column of its task."""
    before = _of_run(run, paid)
    total = [max(amounts) for amounts in zip(charges[0][3:], before, strict=True)] if charges else before
    if total == before:
        return []
    rest = [now - then for now, then in zip(total, before, strict=True)]
    due = [Charge(charge.subject, charge.window, charge.until, *rest) for charge in charges]
    return [_charged(agent, due), (_SET_PAID, [(to_json([run, *total]), agent, task_id)])]


def divide(agent: str, task_id: str, run: int, paid: bytes | None, *, new_id: str, usage: RunUsage) -> Write:
    """Divide the usage in the checkpoint of a run between its task and another task, which continues the checkpoint.

    The new task is charged for the checkpoint, except for what the old task has paid of it. If a lost holder of the old
    task comes back, it is charged only for what it did after the checkpoint.
    """
    pairs = list(zip(amounts_of(usage), _of_run(run, paid), strict=True))
    of_new, of_old = [1, *map(min, pairs)], [run, *map(max, pairs)]
    return _SET_PAID, [(to_json(of_new), agent, new_id), (to_json(of_old), agent, task_id)]


def _of_run(run: int, paid: bytes | None) -> list[int]:
    """Return the charged amounts of a run: requests, tokens, cost."""
    of, *amounts = [0] if paid is None else from_json(paid)
    return amounts if of == run else [0, 0, 0]


def _charged(agent: str, charges: Sequence[Charge]) -> Write:
    """Return the writes of charges, in a fixed order against deadlocks."""
    return _CHARGE, [(agent, *charge) for charge in sorted(charges)]


def sweep(agent: str, *, at: int, limit: int) -> Transaction[int]:
    """Delete full buckets and expired charges, and return the number of rows."""
    full = yield from delete_due(agent, 'bucket', 'subject, name', 'full_at', at * 1000, limit=limit)
    return full + (yield from delete_due(agent, 'spending', 'subject, span, until', 'until', at, limit=limit))
