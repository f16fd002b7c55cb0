"""Retention: deletes events, tasks and contexts that are due, and fails tasks that have waited too long."""

from __future__ import annotations

import logging
from collections.abc import Sequence, Sized
from datetime import timedelta

from ....settings.retention import Retention
from ....task_states import STOPPED
from ..ports import Swept
from . import conversation_deletion, deletion, filing, quotas, task_ranges, totals
from .canceling import end_unheld
from .deletion import ROWS, TASKS, among_tasks, drop_batch, drop_events
from .key_conditions import among
from .task_rows import HEADER, header_of, unknown_state
from .totals import CONVERSATIONS, ENDED, ENDED_STATES
from .transaction import Done, LockTasks, Rows, Transaction, TryNames, sql
from .unanswered_tasks import EXPIRED, Expired, expired_status

logger = logging.getLogger('pydantic_ai_a2a')

_EXPIRED = 10
"""The most waiting tasks to fail in one sweep: each takes several statements."""
_NO_LIMIT = 2**62
_UNKNOWN = f'state NOT IN {tuple(sorted(STOPPED))}'
_OF_CONTEXT = 'SELECT 1 FROM task WHERE task.agent = c.agent AND task.owner = c.owner AND task.context_id = c.id'
_IDLE = sql(f"""
    SELECT owner, id, listed_at, updated_at FROM conversation c
    WHERE agent = ?
        -- no task of the context is queued or runs,
        AND NOT EXISTS ({_OF_CONTEXT} AND {task_ranges.WAITING})
        AND NOT EXISTS ({_OF_CONTEXT} AND {task_ranges.RUNNING})
        -- or waits for its client,
        AND NOT EXISTS ({_OF_CONTEXT} AND state IN ('auth-required', 'input-required') AND {task_ranges.FILED})
        AND NOT EXISTS ({_OF_CONTEXT} AND state IN ('auth-required', 'input-required') AND {task_ranges.UNFILED})
        -- or is damaged
        AND NOT EXISTS ({_OF_CONTEXT} AND {task_ranges.UNFILED} AND {_UNKNOWN})
""")
"""Conversations that may be erased. Each condition is a range of an index: see `task_ranges`."""
_WAITING = sql(f"""
    SELECT {HEADER}, run FROM task
    WHERE agent = ? AND state IN ('input-required', 'auth-required') AND status_at < ?
    ORDER BY status_at LIMIT ?
""")
_COUNT_DELIVERING = sql(f"""
    -- CROSS JOIN makes SQLite begin with the webhooks, of which most stores have none.
    SELECT COUNT(DISTINCT task_id) FROM push_config c CROSS JOIN task
    WHERE c.agent = ? AND c.due_at IS NOT NULL
        AND task.agent = c.agent AND task.id = c.task_id AND {ENDED} AND status_at >= ?
""")
"""The number of ended tasks that stay for their deliveries."""
_OLDEST = sql(f"""
    SELECT id, state, status_at FROM task
    WHERE agent = ? AND {ENDED}
        -- without deliveries to come, or too old to wait for them
        AND (
            push = 0 OR status_at < ?
            OR id NOT IN (SELECT task_id FROM push_config WHERE agent = ? AND due_at IS NOT NULL)
        )
    -- Tasks without events are the oldest: sweeps delete event logs in the same order, before the tasks.
    ORDER BY events_swept DESC, status_at LIMIT ?
""")
_LOGGED = sql(f"""
    SELECT id, state FROM task
    WHERE agent = ? AND {ENDED} AND events_swept = 0 AND status_at < ?
    ORDER BY status_at LIMIT ?
""")
"""Ended tasks with old event logs."""
_LIST_AGAIN = 'UPDATE conversation SET listed_at = updated_at WHERE agent = ? AND owner = ? AND id = ?'


def sweep(
    agent: str, retention: Retention, at: int, most_kept: int
) -> Transaction[Done[tuple[Swept, Expired, Sequence[tuple[str, str]]]]]:
    """Delete a bounded batch of due rows. Also return the failed waiting tasks, and the deleted conversations.

    Args:
        agent: Namespace.
        retention: How long and how many rows are kept.
        at: Present time.
        most_kept: See `Database.most_kept`.
    """
    most = retention.max_tasks or most_kept
    if (yield totals.lock_sweep(agent)):
        return Done((Swept(), [], ()))  # another process sweeps
    swept = _swept((yield from filing.file(agent)), 1)
    ended = yield from _expire_waiting(agent, retention, at)
    swept += _swept(len(ended), _EXPIRED)
    swept += yield from _sweep_events(agent, _before(at, retention.events))
    swept += yield from _sweep_tasks(agent, retention, at, most)
    dropped = yield from _sweep_left(agent)
    contexts, gone = yield from _sweep_contexts(agent, retention, at, most, ROWS - dropped)
    swept += _swept(dropped, ROWS) + contexts
    swept += _swept((yield from quotas.sweep(agent, at=at, limit=ROWS)), ROWS)
    expired = yield from deletion.delete_due(agent, 'credential', 'task_id, id', 'until', at, limit=ROWS)
    swept += _swept(expired, ROWS)
    forgotten = yield 'DELETE FROM erasure WHERE agent = ? AND until <= ? RETURNING until', (agent, at)
    swept += Swept(rows=len(forgotten)) + _swept((yield from totals.fold_totals(agent)), 1)
    return Done((swept, ended, gone), [(header.id, (event,)) for header, event in ended])


def _swept(rows: int, limit: int) -> Swept:
    return Swept(rows=rows, full=rows >= limit)


def _over(kind: str, rows: Sized) -> dict[str, int]:
    return {kind: len(rows)} if rows else {}


def _before(at: int, age: timedelta) -> int:
    """Return the time of what is as old as `age`."""
    return at - int(1000 * age.total_seconds())


def _expire_waiting(agent: str, retention: Retention, at: int) -> Transaction[Expired]:
    values = agent, _before(at, retention.waiting), _EXPIRED
    rows = yield _WAITING, values
    free = yield from _lock(agent, [row[0] for row in rows])
    if free:
        rows = yield _WAITING, values  # some of the tasks may have continued
    ended: Expired = []
    for row in rows:
        if row[0] not in free:
            continue
        header = header_of(row)
        status = expired_status(header, row[-1], at)
        ended.append((header, (yield from end_unheld(agent, header, status, EXPIRED))))
    return ended


def _lock(agent: str, tasks: Sequence[str]) -> Transaction[list[str]]:
    """Lock tasks and return the ids. Tasks with a lock of another transaction wait for a later sweep."""
    if not tasks:
        return []
    locked = {row[0] for row in (yield LockTasks(agent, tasks, wait=False))}
    return [task_id for task_id in tasks if task_id not in locked]


def _lock_known(agent: str, rows: Rows) -> Transaction[list[str]]:
    """Lock tasks like `_lock`, and return the ids of tasks in a known state. A sweep keeps the other tasks.

    A task in an unknown state leaves the indexes of sweeps. Lists then leave out the task with a log line.

    Args:
        agent: Namespace.
        rows: The id and the state of each task.
    """
    locked = yield from _lock(agent, [row[0] for row in rows])
    unknown = {row[0]: row[1] for row in rows if row[0] in locked and row[1] not in STOPPED}
    if unknown:
        yield [filing.unfile(agent, [*unknown])]
    for task_id, state in unknown.items():
        logger.error('A sweep keeps a damaged task: repair or erase the task. %s', unknown_state(task_id, state))
    return [task_id for task_id in locked if task_id not in unknown]


def _sweep_events(agent: str, before: int) -> Transaction[Swept]:
    """Delete old event logs of ended tasks; long logs take several sweeps."""
    rows = yield _LOGGED, (agent, before, TASKS)
    locked = yield from _lock_known(agent, rows)
    dropped, emptied = yield from drop_events(agent, locked)
    if emptied:
        ids, of_tasks, values = among_tasks(agent, emptied)
        yield [
            (f'UPDATE task SET events_swept = 1 WHERE {ids}', [values]),
            (f'DELETE FROM payload WHERE {of_tasks}', [values]),
        ]
    return Swept(rows=dropped + len(emptied), full=len(rows) == TASKS or len(emptied) < len(locked))


def _sweep_tasks(agent: str, retention: Retention, at: int, most: int) -> Transaction[Swept]:
    """Delete old ended tasks, except for tasks with pending deliveries."""
    waiting = _before(at, retention.waiting)
    [(delivering,)] = yield _COUNT_DELIVERING, (agent, waiting)
    surplus = yield from _surplus(agent, ENDED_STATES, most + delivering)
    rows = yield _OLDEST, (agent, waiting, agent, TASKS)
    before = _before(at, retention.tasks)
    due = [row for index, row in enumerate(rows) if index < surplus or row[2] < before]
    locked = yield from _lock_known(agent, due)
    erased, dropped = yield from drop_batch(agent, locked)
    over = {row[0] for row in due if row[2] >= before}.intersection(dropped)
    full = len(due) == TASKS or len(dropped) < len(locked)
    return Swept(rows=erased.events + erased.tasks + erased.items, full=full, over=_over('tasks', over))


def _surplus(agent: str, kinds: Sequence[str], limit: int) -> Transaction[int]:
    """Return how many rows of some kinds are above a limit."""
    rows = yield totals.count_tasks(agent, None, kinds)
    return max(0, rows[0][0] - limit)


def _sweep_left(agent: str) -> Transaction[int]:
    """Delete the remaining entries of erased conversations."""
    rows = yield 'SELECT DISTINCT owner FROM entry_erased WHERE agent = ? LIMIT ?', (agent, TASKS)
    free = yield from _try_names([(agent, owner) for (owner,) in rows])
    return (yield from conversation_deletion.drop_left_of(agent, [owner for _, owner in free], ROWS))


def _try_names(names: Sequence[tuple[str, ...]]) -> Transaction[list[tuple[str, ...]]]:
    """Lock names, and return them without the names that other transactions have locked."""
    taken = {row[0] for row in (yield TryNames(names))} if names else ()
    return [name for name in names if name not in taken]


def _sweep_contexts(
    agent: str, retention: Retention, at: int, most: int, limit: int
) -> Transaction[tuple[Swept, Sequence[tuple[str, str]]]]:
    surplus = yield from _surplus(agent, (CONVERSATIONS,), most)
    before = _before(at, retention.contexts)
    rows = yield (
        f'{_IDLE} AND listed_at < ? ORDER BY listed_at LIMIT ?',
        (agent, _NO_LIMIT if surplus else before, TASKS),
    )
    stale = [row for row in rows if row[2] != row[3]]
    if stale:  # the next sweep reads these conversations in the new order
        return _swept((yield from _list_again(agent, stale)), 1), ()
    due = [row for index, row in enumerate(rows) if index < surplus or row[3] < before]
    free = yield from _idle_and_locked(agent, due)
    if not free:
        return Swept(), ()
    number, entries = yield from conversation_deletion.erase(agent, free, limit)
    over = {row[:2] for row in map(tuple, due) if row[3] >= before}.intersection(free)
    full = len(due) == TASKS or entries >= limit
    return Swept(rows=number + entries, full=full, over=_over('contexts', over)), free


def _idle_and_locked(agent: str, rows: Rows) -> Transaction[list[tuple[str, str]]]:
    """Lock conversations of `_IDLE` rows and their owners. Return the conversations to erase: (owner, id).

    Locked ones are left to a later sweep.
    """
    free = yield from _try_names([(agent, owner, context_id) for owner, context_id, *_ in rows])
    owners = yield from _try_names([*{(agent, owner) for _, owner, _ in free}])
    keys = [key for key in free if key[:2] in owners]
    if not keys:
        return []
    # A new message may have changed a row or created a task before the lock, so check again.
    of_keys, values = among('agent, owner, id', keys)
    idle = yield f'{_IDLE} AND {of_keys}', (agent, *values)
    same = {tuple(row) for row in rows} & {tuple(row) for row in idle}
    of_contexts, _ = among('agent, owner, context_id', keys)
    damaged = yield (
        f'SELECT id, state, owner, context_id FROM task WHERE {of_contexts} AND {task_ranges.FILED} AND {_UNKNOWN}'
        ' LIMIT ?',
        (*values, TASKS),
    )
    yield from _lock_known(agent, damaged)  # the next sweep finds these tasks in `_IDLE`
    kept = {(owner, context_id) for _, _, owner, context_id in damaged}
    return sorted({(owner, context_id) for owner, context_id, *_ in same} - kept)


def _list_again(agent: str, rows: Rows) -> Transaction[int]:
    """List conversations by the time of the newest turn, and return the number."""
    free = yield from _try_names([(agent, owner, context_id) for owner, context_id, *_ in rows])
    yield [(_LIST_AGAIN, free)]
    return len(free)
