"""Retention: deletes events, tasks and contexts that are due, and erases single tasks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TypeAlias

from ...errors import TaskNotFoundError, UnsupportedOperationError
from ...ports import Status
from ...settings import Retention
from ...types import INTERRUPTED, LIVE, STOPPED, TaskEvent
from ..rules import EXPIRED, Expired, expired_status, status_event
from . import conversations, credentials, deliveries, endings, filing, quotas, ranges, totals
from .totals import CONVERSATIONS, ENDED, ENDED_STATES
from .transaction import LockName, LockTasks, Rows, Transaction
from .vocabulary import HEADER, HEADER_SIZE, drop_checkpoint, end_unheld, find_row_locked, header_of, unknown_state

__all__ = ('ROWS', 'TASKS', 'Told', 'drop_events', 'drop_task', 'erase_task', 'sweep')

logger = logging.getLogger('pydantic_ai_a2a')

Told: TypeAlias = list[tuple[str, TaskEvent]]
"""Events to publish to the readers of tasks."""

ROWS = 500
"""The most rows to delete in one sweep: the queue waits for no long sweep."""
TASKS = 50
_NO_LIMIT = 2**62
_OF_CONTEXT = 'SELECT 1 FROM task WHERE task.agent = c.agent AND task.owner = c.owner AND task.context_id = c.id'
_UNKNOWN = f'state NOT IN {tuple(sorted(STOPPED))}'
_UNENDED = (
    *ranges.LIVE_RANGES,
    *(f"state IN ('auth-required', 'input-required') AND {stopped}" for stopped in (ranges.FILED, ranges.UNFILED)),
    f'{ranges.UNFILED} AND {_UNKNOWN}',
)
_IDLE = 'SELECT owner, id, listed_at, updated_at FROM conversation c WHERE agent = ?' + ''.join(
    f' AND NOT EXISTS ({_OF_CONTEXT} AND {condition})' for condition in _UNENDED
)
_FILED_UNKNOWN = (
    f'SELECT id, state FROM task WHERE agent = ? AND owner = ? AND context_id = ? AND {ranges.FILED} AND {_UNKNOWN}'
    ' LIMIT ?'
)
_LIST_AGAIN = 'UPDATE conversation SET listed_at = updated_at WHERE agent = ? AND owner = ? AND id = ?'


def sweep(agent: str, retention: Retention, at: int) -> Transaction[tuple[int, Expired]]:
    """Delete a bounded batch of due rows. Return the number of rows, and the failed waiting tasks."""
    if (yield totals.lock_sweep(agent)):
        return 0, []  # another process sweeps
    filed = yield from filing.file(agent)
    ended = yield from _expire_waiting(agent, retention, at)
    swept = filed + len(ended)
    swept += yield from _sweep_events(agent, at - _ms(retention.events.total_seconds()))
    swept += yield from _sweep_tasks(agent, retention, at)
    dropped = yield from _sweep_left(agent)
    swept += dropped + (yield from _sweep_contexts(agent, retention, at, ROWS - dropped))
    swept += yield from quotas.sweep(agent, at=at, limit=ROWS)
    swept += yield from credentials.sweep_credentials(agent, at=at, limit=ROWS)
    swept += yield from totals.fold_totals(agent)
    return swept, ended


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


def _expire_waiting(agent: str, retention: Retention, at: int) -> Transaction[Expired]:
    waiting = (
        f"SELECT {HEADER}, run FROM task WHERE agent = ? AND state IN ('input-required', 'auth-required')"
        ' AND status_at < ? ORDER BY status_at LIMIT ?',
        (agent, at - _ms(retention.waiting.total_seconds()), TASKS),
    )
    rows = yield waiting
    free = yield from _lock(agent, [row[0] for row in rows])
    if free:
        rows = yield waiting  # some of the tasks may have continued
    ended: Expired = []
    for row in rows:
        if row[0] not in free:
            continue
        header = header_of(row)
        status = expired_status(header, row[HEADER_SIZE], at)
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


def _sweep_events(agent: str, before: int) -> Transaction[int]:
    """Delete old event logs of ended tasks; long logs take several sweeps."""
    rows = yield (
        f'SELECT id, state FROM task WHERE agent = ? AND {ENDED} AND events_swept = 0 AND status_at < ?'
        ' ORDER BY status_at LIMIT ?',
        (agent, before, TASKS),
    )
    swept = 0
    for task_id in (yield from _lock_known(agent, rows)):
        swept += yield from drop_events(agent, task_id, ROWS - swept)
        remaining = yield 'SELECT 1 FROM event WHERE agent = ? AND task_id = ? LIMIT 1', (agent, task_id)
        if remaining:
            break
        yield 'UPDATE task SET events_swept = 1 WHERE agent = ? AND id = ?', (agent, task_id)
    return swept


def drop_events(agent: str, task_id: str, limit: int) -> Transaction[int]:
    """Delete the oldest events of a task; how many went."""
    rows = yield (
        'DELETE FROM event WHERE agent = ? AND task_id = ? AND n < (SELECT MIN(n) + ? FROM event'
        ' WHERE agent = ? AND task_id = ?) RETURNING n',
        (agent, task_id, limit, agent, task_id),
    )
    return len(rows)


def _sweep_tasks(agent: str, retention: Retention, at: int) -> Transaction[int]:
    """Delete old ended tasks, except for tasks with pending deliveries."""
    waiting = at - _ms(retention.waiting.total_seconds())
    rows = yield (
        # CROSS JOIN makes SQLite begin with the webhooks, of which most stores have none.
        'SELECT COUNT(DISTINCT task_id) FROM push_config c CROSS JOIN task WHERE c.agent = ? AND c.due_at IS NOT NULL'
        f' AND task.agent = c.agent AND task.id = c.task_id AND {ENDED} AND status_at >= ?',
        (agent, waiting),
    )
    surplus = yield from _surplus(agent, ENDED_STATES, retention.max_tasks + rows[0][0])
    rows = yield (
        # Tasks without events are the oldest: sweeps delete event logs in the same order, before the tasks.
        f'SELECT id, state, status_at FROM task WHERE agent = ? AND {ENDED} AND (push = 0 OR status_at < ?'
        ' OR id NOT IN (SELECT task_id FROM push_config WHERE agent = ? AND due_at IS NOT NULL))'
        ' ORDER BY events_swept DESC, status_at LIMIT ?',
        (agent, waiting, agent, TASKS),
    )
    before = at - _ms(retention.tasks.total_seconds())
    due = [row for index, row in enumerate(rows) if index < surplus or row[2] < before]
    swept = 0
    for task_id in (yield from _lock_known(agent, due)):
        swept += yield from drop_events(agent, task_id, ROWS)
        remaining = yield 'SELECT 1 FROM event WHERE agent = ? AND task_id = ? LIMIT 1', (agent, task_id)
        if remaining:
            break
        swept += yield from drop_task(agent, task_id)
        if swept >= ROWS:
            break
    return swept


def _surplus(agent: str, kinds: Sequence[str], limit: int) -> Transaction[int]:
    """Return how many rows of some kinds are above a limit."""
    rows = yield totals.count_tasks(agent, None, kinds)
    return max(0, rows[0][0] - limit)


def drop_task(agent: str, task_id: str) -> Transaction[int]:
    """Delete a task with messages and artifacts, and return the number of rows."""
    # Delete the task first. Writers of messages, events and webhooks lock the task: writers before the deletion are
    # done, and later writers find no task.
    tasks = yield (
        'DELETE FROM task WHERE agent = ? AND id = ? RETURNING ending, owner, context_id, filed',
        (agent, task_id),
    )
    items = yield 'DELETE FROM item WHERE agent = ? AND task_id = ? RETURNING seq', (agent, task_id)
    yield 'DELETE FROM event WHERE agent = ? AND task_id = ?', (agent, task_id)
    yield [
        drop_checkpoint(agent, task_id),
        credentials.drop_credentials(agent, task_id),
        *deliveries.drop_deliveries(agent, task_id),
    ]
    rows = len(items)
    for ending, owner, context_id, filed in tasks:
        rows += 2 + endings.number_items(ending)
        if not filed:
            yield [filing.list_conversation(agent, owner, context_id)]
    return rows


def _sweep_left(agent: str) -> Transaction[int]:
    """Delete the remaining entries of erased conversations."""
    rows = yield 'SELECT DISTINCT owner FROM entry_erased WHERE agent = ? LIMIT ?', (agent, TASKS)
    swept = 0
    for (owner,) in rows:
        swept += yield from conversations.drop_left(agent, owner, ROWS - swept)
    return swept


def _sweep_contexts(agent: str, retention: Retention, at: int, limit: int) -> Transaction[int]:
    surplus = yield from _surplus(agent, (CONVERSATIONS,), retention.max_contexts)
    before = at - _ms(retention.contexts.total_seconds())
    rows = yield (
        f'{_IDLE} AND listed_at < ? ORDER BY listed_at LIMIT ?',
        (agent, _NO_LIMIT if surplus else before, TASKS),
    )
    stale = [row for row in rows if row[2] != row[3]]
    if stale:  # the next sweep reads these conversations in the new order
        return (yield from _list_again(agent, stale))
    swept = 0
    for index, (owner, context_id, _, updated_at) in enumerate(rows):
        if index >= surplus and updated_at >= before:
            break
        if (yield LockName((agent, owner, context_id), wait=False)):
            continue
        # A new message may have changed the row or created a task before the lock, so check again.
        if not (yield f'{_IDLE} AND owner = ? AND id = ? AND updated_at = ?', (agent, owner, context_id, updated_at)):
            continue
        unknown = yield _FILED_UNKNOWN, (agent, owner, context_id, TASKS)
        if unknown:  # the next sweep finds these tasks in `_IDLE`
            yield from _lock_known(agent, unknown)
        else:
            swept += 1 + ((yield from conversations.erase(agent, owner, context_id, limit - swept)) or 0)
        if swept >= limit:
            break
    return swept


def _list_again(agent: str, rows: Rows) -> Transaction[int]:
    """List conversations by the time of the newest turn, and return the number."""
    listed = 0
    for owner, context_id, _, _ in rows:
        if not (yield LockName((agent, owner, context_id), wait=False)):
            yield [(_LIST_AGAIN, [(agent, owner, context_id)])]
            listed += 1
    return listed


def erase_task(agent: str, task_id: str, owner: str | None, at: int) -> Transaction[tuple[bool, Told]]:
    """See `Housekeeping.erase_task`. Also return the events to publish to readers of a waiting task."""
    try:
        row = yield from find_row_locked(agent, task_id, owner)
    except TaskNotFoundError:
        return False, []
    _, _, _, state, *_ = row
    if state in LIVE:
        raise UnsupportedOperationError('The task is queued or running; cancel it before it is erased.')
    yield from drop_task(agent, task_id)
    if state not in INTERRUPTED:  # may be an unknown state, for which `header_of` raises
        return True, []
    header = header_of(row)
    return True, [(task_id, status_event(header, Status('canceled', at, None), header.last_event + 1))]
