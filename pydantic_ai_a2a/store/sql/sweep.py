"""Retention: deletes events, tasks and contexts that are due, and erases single tasks."""

from __future__ import annotations

import logging
from collections.abc import Sequence, Sized
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeAlias

from ...errors import TaskNotFoundError, UnsupportedOperationError
from ...settings import Retention
from ...types import INTERRUPTED, LIVE, STOPPED, TaskEvent, TaskHeader
from ..ports import DEAD_LETTER, DEAD_LETTERS, DeadLetter, Erased, Status, Submission, Swept
from ..status_events import EXPIRED, Expired, expired_status, repeated, status_event
from ..status_events import correlation_id as read_correlation_id
from . import claims, conversations, outbox, quotas, ranges, reads, submitting, task_rows
from .reads import CONVERSATIONS, ENDED, ENDED_STATES
from .task_rows import (
    HEADER,
    HEADER_SIZE,
    OF_TASK,
    TASK,
    end_unheld,
    find,
    find_locked,
    find_row_locked,
    header_of,
    unknown_state,
)
from .transaction import KEYS, LockName, LockTasks, Rows, Statement, Transaction, TryNames, among, where

logger = logging.getLogger('pydantic_ai_a2a')

Told: TypeAlias = list[tuple[str, TaskEvent]]
"""Events to publish to the readers of tasks."""

ROWS = 500
"""About the most rows to delete in one sweep: the queue waits for no long sweep."""
TASKS = KEYS
"""The most tasks, or conversations, to delete in one sweep."""
_BYTES = 16_000_000
"""About the most bytes in the rows of tasks to delete in one sweep. SQLite keeps a copy of the rows in memory until the
statement has ended, because the table has triggers."""
_EXPIRED = 10
"""The most waiting tasks to fail in one sweep: each takes several statements."""
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
_LOG = ', '.join(
    f'COALESCE((SELECT {end}(n) FROM event WHERE event.agent = task.agent AND event.task_id = task.id), {without})'
    for end, without in (('MIN', 1), ('MAX', 0))
)
"""The numbers of the first and of the last event of a task."""
_DROP_EVENTS = 'DELETE FROM event WHERE'
_PARTS = ('item', 'event', 'checkpoint', 'credential', 'payload', 'push_config', 'delivery')
"""The tables with rows of a task, besides its own."""
_LIST_AGAIN = 'UPDATE conversation SET listed_at = updated_at WHERE agent = ? AND owner = ? AND id = ?'


def sweep(
    agent: str, retention: Retention, at: int, most_kept: int
) -> Transaction[tuple[Swept, Expired, Sequence[tuple[str, str]]]]:
    """Delete a bounded batch of due rows. Also return the failed waiting tasks, and the deleted conversations.

    Args:
        agent: Namespace.
        retention: How long and how many rows are kept.
        at: Present time.
        most_kept: See `Database.most_kept`.
    """
    most = retention.max_tasks or most_kept
    if (yield reads.lock_sweep(agent)):
        return Swept(), [], ()  # another process sweeps
    swept = _swept((yield from claims.file(agent)), 1)
    ended = yield from _expire_waiting(agent, retention, at)
    swept += _swept(len(ended), _EXPIRED)
    swept += yield from _sweep_events(agent, _before(at, retention.events))
    swept += yield from _sweep_tasks(agent, retention, at, most)
    dropped = yield from _sweep_left(agent)
    contexts, gone = yield from _sweep_contexts(agent, retention, at, most, ROWS - dropped)
    swept += _swept(dropped, ROWS) + contexts
    swept += _swept((yield from quotas.sweep(agent, at=at, limit=ROWS)), ROWS)
    expired = yield from task_rows.delete_due(agent, 'credential', 'task_id, id', 'until', at, limit=ROWS)
    swept += _swept(expired, ROWS)
    forgotten = yield 'DELETE FROM erasure WHERE agent = ? AND until <= ? RETURNING until', (agent, at)
    swept += Swept(rows=len(forgotten)) + _swept((yield from reads.fold_totals(agent)), 1)
    return swept, ended, gone


def _swept(rows: int, limit: int) -> Swept:
    return Swept(rows=rows, full=rows >= limit)


def _over(kind: str, rows: Sized) -> dict[str, int]:
    return {kind: len(rows)} if rows else {}


def _before(at: int, age: timedelta) -> int:
    """Return the time of what is as old as `age`."""
    return at - int(1000 * age.total_seconds())


def _expire_waiting(agent: str, retention: Retention, at: int) -> Transaction[Expired]:
    waiting = (
        f"SELECT {HEADER}, run FROM task WHERE agent = ? AND state IN ('input-required', 'auth-required')"
        ' AND status_at < ? ORDER BY status_at LIMIT ?',
        (agent, _before(at, retention.waiting), _EXPIRED),
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
        yield [claims.unfile(agent, [*unknown])]
    for task_id, state in unknown.items():
        logger.error('A sweep keeps a damaged task: repair or erase the task. %s', unknown_state(task_id, state))
    return [task_id for task_id in locked if task_id not in unknown]


def _sweep_events(agent: str, before: int) -> Transaction[Swept]:
    """Delete old event logs of ended tasks; long logs take several sweeps."""
    rows = yield (
        f'SELECT id, state FROM task WHERE agent = ? AND {ENDED} AND events_swept = 0 AND status_at < ?'
        ' ORDER BY status_at LIMIT ?',
        (agent, before, TASKS),
    )
    locked = yield from _lock_known(agent, rows)
    dropped, emptied = yield from _drop_events(agent, locked)
    if emptied:
        ids, of_tasks, values = _among(agent, emptied)
        yield [
            (f'UPDATE task SET events_swept = 1 WHERE {ids}', [values]),
            (f'DELETE FROM payload WHERE {of_tasks}', [values]),
        ]
    return Swept(rows=dropped + len(emptied), full=len(rows) == TASKS or len(emptied) < len(locked))


def _among(agent: str, tasks: Sequence[str]) -> tuple[str, str, tuple[Any, ...]]:
    """Return the conditions of the rows of tasks, and of the rows that belong to them, and the values of either."""
    keys = [(agent, task_id) for task_id in tasks]
    ids, values = among('agent, id', keys)
    of_tasks, _ = among('agent, task_id', keys)
    return ids, of_tasks, values


def _drop_events(agent: str, tasks: Sequence[str]) -> Transaction[tuple[int, list[str]]]:
    """Delete the oldest events of locked tasks, up to `ROWS`. Return the number, and the tasks without events."""
    if not tasks:
        return 0, []
    ids, _, values = _among(agent, tasks)
    rows = yield f'SELECT id, {_LOG} FROM task WHERE {ids}', values
    logs = {task_id: (first, last + 1 - first) for task_id, first, last in rows}
    room, emptied, dropped = ROWS, list[str](), 0
    for task_id in tasks:
        first, length = logs.get(task_id, (0, 0))
        if length > room:
            rows = yield f'{_DROP_EVENTS} {OF_TASK} AND n < ? RETURNING 1', (agent, task_id, first + room)
            dropped += len(rows)
            break
        emptied.append(task_id)
        room -= length
    if room < ROWS and emptied:
        _, of_tasks, values = _among(agent, emptied)
        dropped += len((yield f'{_DROP_EVENTS} {of_tasks} RETURNING 1', values))
    return dropped, emptied


def _sweep_tasks(agent: str, retention: Retention, at: int, most: int) -> Transaction[Swept]:
    """Delete old ended tasks, except for tasks with pending deliveries."""
    waiting = _before(at, retention.waiting)
    rows = yield (
        # CROSS JOIN makes SQLite begin with the webhooks, of which most stores have none.
        'SELECT COUNT(DISTINCT task_id) FROM push_config c CROSS JOIN task WHERE c.agent = ? AND c.due_at IS NOT NULL'
        f' AND task.agent = c.agent AND task.id = c.task_id AND {ENDED} AND status_at >= ?',
        (agent, waiting),
    )
    surplus = yield from _surplus(agent, ENDED_STATES, most + rows[0][0])
    rows = yield (
        # Tasks without events are the oldest: sweeps delete event logs in the same order, before the tasks.
        f'SELECT id, state, status_at FROM task WHERE agent = ? AND {ENDED} AND (push = 0 OR status_at < ?'
        ' OR id NOT IN (SELECT task_id FROM push_config WHERE agent = ? AND due_at IS NOT NULL))'
        ' ORDER BY events_swept DESC, status_at LIMIT ?',
        (agent, waiting, agent, TASKS),
    )
    before = _before(at, retention.tasks)
    due = [row for index, row in enumerate(rows) if index < surplus or row[2] < before]
    locked = yield from _lock_known(agent, due)
    erased, dropped = yield from _drop(agent, locked)
    over = {row[0] for row in due if row[2] >= before}.intersection(dropped)
    full = len(due) == TASKS or len(dropped) < len(locked)
    return Swept(rows=erased.events + erased.tasks + erased.items, full=full, over=_over('tasks', over))


def _surplus(agent: str, kinds: Sequence[str], limit: int) -> Transaction[int]:
    """Return how many rows of some kinds are above a limit."""
    rows = yield reads.count_tasks(agent, None, kinds)
    return max(0, rows[0][0] - limit)


def _drop(agent: str, tasks: Sequence[str]) -> Transaction[tuple[Erased, list[str]]]:
    """Delete events of locked tasks, up to `ROWS`, then the tasks without events. Also return the deleted tasks."""
    events, emptied = yield from _drop_events(agent, tasks)
    items = yield from _items(agent, emptied, ROWS - events)
    if items:
        yield from drop_tasks(agent, [*items])
    return Erased(tasks=len(items), items=sum(items.values()), events=events), [*items]


def _items(agent: str, tasks: Sequence[str], limit: int) -> Transaction[dict[str, int]]:
    """Return the numbers of messages and artifacts of the first tasks, up to `limit`, and up to `_BYTES` together."""
    if not tasks:
        return {}
    ids, _, values = _among(agent, tasks)
    rows = yield (
        'SELECT id, (SELECT COUNT(*) FROM item WHERE item.agent = task.agent AND item.task_id = task.id), ending,'
        f' LENGTH(message) + COALESCE(LENGTH(own_messages), 0) FROM task WHERE {ids}',
        values,
    )
    numbers = {row[0]: (row[1] + reads.number_items(row[2]), row[3] + len(row[2] or b'')) for row in rows}
    first: dict[str, int] = {}
    room = _BYTES
    for task_id in tasks:
        if task_id in numbers and sum(first.values()) < limit and room > 0:
            items, size = numbers[task_id]
            first[task_id] = 1 + items  # the row of the task has its first message
            room -= size
    return first


def drop_tasks(agent: str, tasks: Sequence[str]) -> Transaction[None]:
    """Delete tasks with all that belongs to them."""
    # Delete the tasks first. Writers of messages, events and webhooks lock the task: writers before the deletion are
    # done, and later writers find no task.
    ids, of_tasks, values = _among(agent, tasks)
    rows = yield f'DELETE FROM task WHERE {ids} RETURNING owner, context_id, filed', values
    yield [(f'DELETE FROM {part} WHERE {of_tasks}', [values]) for part in _PARTS]
    if unfiled := sorted({(owner, context_id) for owner, context_id, filed in rows if not filed}):
        yield [claims.list_conversations(agent, unfiled)]


def _sweep_left(agent: str) -> Transaction[int]:
    """Delete the remaining entries of erased conversations."""
    rows = yield 'SELECT DISTINCT owner FROM entry_erased WHERE agent = ? LIMIT ?', (agent, TASKS)
    free = yield from _try_names([(agent, owner) for (owner,) in rows])
    return (yield from conversations.drop_left_of(agent, [owner for _, owner in free], ROWS))


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
    number, entries = yield from conversations.erase(agent, free, limit)
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
        f'SELECT id, state, owner, context_id FROM task WHERE {of_contexts} AND {ranges.FILED} AND {_UNKNOWN} LIMIT ?',
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


def erase_task(agent: str, task_id: str, owner: str | None, at: int) -> Transaction[tuple[bool, Told]]:
    """See `Housekeeping.erase_task`. Also return the events to publish to readers of a waiting task."""
    try:
        row = yield from find_row_locked(agent, task_id, owner)
    except TaskNotFoundError:
        return False, []
    if row[3] in LIVE:
        raise UnsupportedOperationError('The task is queued or running; cancel it before it is erased.')
    yield from drop_tasks(agent, [task_id])
    return True, _last_events([row], at)


def _last_events(rows: Rows, at: int) -> Told:
    """Return the last events of the waiting tasks among erased tasks (`HEADER` rows)."""
    # The others may be in an unknown state, for which `header_of` raises.
    waiting = [header_of(row) for row in rows if row[3] in INTERRUPTED]
    status = Status('canceled', at, None)
    return [(header.id, status_event(header, status, header.last_event + 1)) for header in waiting]


# --- erasure of all data of an owner, or of a context, in transactions of bounded size --------------------------------


def erase(agent: str, owner: str, context_id: str | None, at: int) -> Transaction[tuple[Erased, Told]]:
    """See `Housekeeping.erase`; also gives the events to publish: readers of waiting tasks wait for the end."""
    yield from _check_idle(agent, owner, context_id)
    erased, ended = yield from _erase_tasks(agent, owner, context_id, at)
    if not erased:
        erased = Erased(entries=(yield from conversations.drop_left(agent, owner, ROWS)))
    if not erased:
        erased = yield from _erase_conversations(agent, owner, context_id)
    if not erased and context_id is None:
        erased = yield from _erase_entries(agent, owner)
    if not (yield reads.lock_sweep(agent)):
        yield from reads.fold_totals(agent)  # else the totals keep the owner's name until the next sweep
    return erased, ended


def _tasks(agent: str, owner: str, context_id: str | None) -> Statement:
    """Return the condition of the tasks of an owner or a context."""
    return where({'agent = ?': agent, 'owner = ?': owner, 'context_id = ?': context_id})


def _check_idle(agent: str, owner: str, context_id: str | None) -> Transaction[None]:
    live, values = ranges.union(ranges.LIVE_RANGES, 'id', *_tasks(agent, owner, context_id))
    rows = yield f'{live} LIMIT 1', values
    if rows:
        raise UnsupportedOperationError(
            f'The task {rows[0][0]} is queued or running; cancel it before you erase its context or its owner.'
        )


def _erase_tasks(agent: str, owner: str, context_id: str | None, at: int) -> Transaction[tuple[Erased, Told]]:
    """A batch of tasks, each after the events of the task. The events may take several batches."""
    tasks_of, values = _tasks(agent, owner, context_id)
    # A new message may have created or continued a task since the check: select and lock only idle tasks.
    rows: Rows = []
    for idle in (ranges.FILED, ranges.UNFILED):
        rows = rows or (
            yield (
                # Without the order, SQLite finds the tasks in an index of lists. PostgreSQL locks in the order of ids.
                f'SELECT {HEADER} FROM task WHERE {tasks_of} AND {idle} /* ORDER BY id COLLATE "C" */'
                ' LIMIT ? /* FOR UPDATE */',
                (*values, TASKS),
            )
        )
    erased, dropped = yield from _drop(agent, [row[0] for row in rows])
    return erased, _last_events([row for row in rows if row[0] in dropped], at)


def _erase_conversations(agent: str, owner: str, context_id: str | None) -> Transaction[Erased]:
    """A batch of conversations, each with the model messages of this conversation alone."""
    rows: Rows = [(context_id,)]
    if context_id is None:
        rows = yield 'SELECT id FROM conversation WHERE agent = ? AND owner = ? LIMIT ?', (agent, owner, TASKS)
    # Lock all conversations before the owner, else a deadlock.
    for conversation_id in sorted(str(row[0]) for row in rows):
        yield LockName((agent, owner, conversation_id))
    if not rows:
        return Erased()
    yield LockName((agent, owner))
    number, entries = yield from conversations.erase(agent, [(owner, row[0]) for row in rows], ROWS)
    return Erased(conversations=number, entries=entries)


def _erase_entries(agent: str, owner: str) -> Transaction[Erased]:
    """A batch of model messages without a conversation."""
    rows = yield (
        'DELETE FROM entry WHERE agent = ? AND owner = ? AND id IN'
        ' (SELECT id FROM entry WHERE agent = ? AND owner = ? AND NOT EXISTS'
        ' (SELECT 1 FROM conversation c WHERE c.agent = ? AND c.owner = ?) LIMIT ?) RETURNING 1',
        (agent, owner, agent, owner, agent, owner, ROWS),
    )
    return Erased(entries=len(rows))


# --- the ids of the tasks and conversations of an owner, in batches ---------------------------------------------------
# A batch has the rows after the last row of the batch before, in the order of an index: a batch costs the same for any
# number of tasks. The last column of a row is the id.

_BATCH = 500
_MOVING = (*ranges.UNCOUNTED, f'{ranges.FILED} AND state IN {tuple(sorted(INTERRUPTED))}')
"""Tasks that may still be filed, or filed again."""


def moving_ids(agent: str, owner: str, context_id: str | None) -> Transaction[list[str]]:
    """Return the ids of an owner's tasks that may still be filed, or of those of one context."""
    query, values = ranges.union(_MOVING, 'id', *_tasks(agent, owner, context_id))
    rows = yield f'{query} ORDER BY id', values
    return [row[0] for row in rows]


def filed_ids(agent: str, owner: str, context_id: str | None, after: tuple[Any, ...] | None) -> Transaction[Rows]:
    """Return the next filed tasks of an owner, or of one context."""
    tasks, values = where(
        {
            'agent = ?': agent,
            'owner = ?': owner,
            'context_id = ?': context_id,
            '(state, status_at, id) > (?, ?, ?)': after,
        }
    )
    query = f'SELECT state, status_at, id FROM task WHERE {tasks} AND {ranges.FILED} ORDER BY state, status_at, id'
    return (yield f'{query} LIMIT ?', (*values, _BATCH))


def conversation_ids(
    agent: str, owner: str, context_id: str | None, after: tuple[Any, ...] | None
) -> Transaction[Rows]:
    """Return the next conversations of an owner, or the conversation of one context."""
    batch, values = where({'agent = ?': agent, 'owner = ?': owner, 'id > ?': after, 'id = ?': context_id})
    return (yield f'SELECT id FROM conversation WHERE {batch} ORDER BY id LIMIT ?', (*values, _BATCH))


def export_requests(agent: str, task_id: str) -> Transaction[list[bytes]]:
    """Return the requests of a task's messages, oldest first."""
    rows = yield (
        'SELECT 0 AS seq, request FROM task WHERE agent = ? AND id = ?'
        " UNION ALL SELECT seq, request FROM item WHERE agent = ? AND task_id = ? AND kind = 'message' ORDER BY seq",
        (agent, task_id, agent, task_id),
    )
    return [request for _, request in rows if request]


# --- dead letters, and other failed tasks, for operators to retry -----------------------------------------------------

_DEAD = {False: f'failure IN {DEAD_LETTERS}', True: "state = 'failed' AND failure IS NOT NULL"}
"""The condition of dead letters, and of all failed tasks."""
_FROM_CLIENT = "agent = ? AND task_id = ? AND kind = 'message' AND answer IS NOT NULL"
_SET_ANSWER = f'UPDATE item SET answer = ? WHERE {_FROM_CLIENT} AND seq = ?'
_FORGET_TURN = (
    'UPDATE task SET own_messages = NULL, own_usage = NULL, pending = NULL, context_head = NULL, answer = NULL'
    f' WHERE {TASK}'
)
_ANY_LENGTH = 2**31 - 1
"""Limit of the queue for a retry: none, because an operator decides."""


def dead_letters(
    agent: str,
    owner: str | None = None,
    *,
    limit: int = 100,
    after: tuple[int, str] | None = None,
    failed: bool = False,
) -> Transaction[list[DeadLetter]]:
    """See `Housekeeping.dead_letters`."""
    page, values = where(
        {f'agent = ? AND {_DEAD[failed]}': agent, 'owner = ?': owner, '(status_at, id) > (?, ?)': after}
    )
    rows = yield (
        'SELECT id, context_id, owner, status_at, attempt, failure, retried_as, status_message FROM task'
        f' WHERE {page} ORDER BY status_at, id LIMIT ?',
        (*values, limit),
    )
    return [_dead_letter(row) for row in rows]


def _dead_letter(row: Sequence[Any]) -> DeadLetter:
    task_id, context_id, owner, at, attempt, failure, retried_as, status_message = row
    return DeadLetter(
        task_id=task_id,
        context_id=context_id,
        owner=owner,
        at=at,
        attempts=attempt - (failure == DEAD_LETTER),  # the last attempt only failed the task
        failure=failure,
        correlation_id=read_correlation_id(status_message),
        retried_as=retried_as,
    )


def retry_task(
    agent: str, task_id: str, *, new_id: str, at: int, again: bool = False, failed: bool = False
) -> Transaction[TaskHeader]:
    """See `Housekeeping.retry`."""
    yield from find_locked(agent, task_id, None)
    unless_retried = '' if again else ' AND retried_as IS NULL'
    rows = yield (
        f'UPDATE task SET retried_as = ? WHERE {TASK} AND {_DEAD[failed]}{unless_retried}'
        ' RETURNING owner, context_id, request, traceparent, dialect, failure, turn, inbox_read, answer, run, paid',
        (new_id, agent, task_id),
    )
    if not rows:
        yield from _refuse(agent, task_id, _DEAD[failed])
    *common, failure, turn, inbox_read, answer, run, paid = rows[0]
    if turn == 1 and failure not in DEAD_LETTERS:
        inbox_read = 1  # a run that waited for its client afterwards may have read later messages
    messages = yield (
        'SELECT 1 AS seq, 0 AS answer, message, digest, NULL AS request FROM task'
        f' WHERE {TASK} AND CAST(? AS BIGINT) <= 1 UNION ALL SELECT seq, answer, body, digest, request FROM item'
        f' WHERE {_FROM_CLIENT} AND seq >= ? AND (answer = 0 OR ?) ORDER BY seq',
        (agent, task_id, inbox_read, agent, task_id, inbox_read, answer is not None),
    )
    for n, (*_, body, digest, own_request) in enumerate(messages):
        message = _submission(common, new_id, *repeated(body, task_id), digest=digest, new=n == 0, at=at)
        if own_request is not None:
            message = replace(message, request=own_request or None)
        yield from submitting.submit(agent, message, queue_limit=_ANY_LENGTH, idempotency_window=0)
    if answer is not None:
        yield from _move_turn(agent, task_id, new_id, [row[:2] for row in messages], answer)
    usage = yield from claims.move_checkpoint(agent, task_id, new_id, [seq for seq, *_ in messages])
    if usage is not None:
        yield [quotas.divide(agent, task_id, run, paid, new_id=new_id, usage=usage)]
    yield from outbox.copy_configs(agent, task_id, new_id)
    return (yield from find(agent, new_id, None))


def _move_turn(
    agent: str, task_id: str, new_id: str, inbox: Sequence[tuple[int, int]], answer: int
) -> Transaction[None]:
    """Move the turn of an answered task to a new task, for the first run of the new task.

    Args:
        agent: Namespace.
        task_id: The answered task.
        new_id: The new task, with copies of the turn's messages.
        inbox: The numbers of the turn's messages, with their answers.
        answer: The number of the answer to resume with.
    """
    rows = yield f'SELECT seq FROM item WHERE {_FROM_CLIENT} ORDER BY seq', (agent, new_id)
    copy_of = {seq: copy for (seq, _), copy in zip(inbox, [1, *(row[0] for row in rows)], strict=True)}
    turn = yield (
        'SELECT own_messages, own_usage, pending, (SELECT id FROM entry WHERE entry.agent = task.agent'
        f' AND entry.owner = task.owner AND entry.id = task.context_head) FROM task WHERE {TASK}',
        (agent, task_id),
    )
    move = (
        'UPDATE task SET own_messages = ?, own_usage = ?, pending = ?, context_head = ?, inbox_read = ?, answer = ?'
        f' WHERE {TASK}'
    )
    yield [
        (_SET_ANSWER, [(answers, agent, new_id, copy_of[seq]) for seq, answers in inbox if answers]),
        (move, [(*turn[0], 1, copy_of[answer], agent, new_id)]),
        (_FORGET_TURN, [(agent, task_id)]),
    ]


def _refuse(agent: str, task_id: str, condition: str) -> Transaction[None]:
    """Say why a task is not retried."""
    header = yield from find(agent, task_id, None)
    rows = yield f'SELECT retried_as FROM task WHERE {TASK} AND {condition}', (agent, task_id)
    if not rows:
        raise UnsupportedOperationError(
            f'The task is {header.state} and is not a dead letter: list the dead letters, or all failed tasks.'
        )
    raise UnsupportedOperationError(f'The task has already been retried, as the task {rows[0][0]}.')


def _submission(common: Sequence[Any], task_id: str, message_id: str, body: bytes, **others: Any) -> Submission:
    owner, context_id, request, traceparent, dialect = common
    return Submission(
        owner=owner,
        anonymous=False,  # the message id is new and known to no client
        message_id=message_id,
        body=body,
        task_id=task_id,
        context_id=context_id,
        request=request,
        traceparent=traceparent,
        dialect=dialect,
        **others,
    )
