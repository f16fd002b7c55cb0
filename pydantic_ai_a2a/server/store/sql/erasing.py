"""Erasure of a task, or of all data of an owner or of a context, in transactions of bounded size."""

from __future__ import annotations

from typing import TypeAlias

from ....errors import TaskNotFoundError, UnsupportedOperationError
from ....task_states import INTERRUPTED, LIVE
from ....types.stored_events import TaskEvent
from ..ports import Erased, Status
from ..status_events import status_event
from . import conversation_deletion, task_ranges, totals
from .deletion import ROWS, TASKS, drop_batch, drop_tasks
from .task_ranges import tasks_of_owner
from .task_rows import HEADER, find_row_locked, header_of
from .transaction import Done, LockName, Rows, Transaction

Ended: TypeAlias = list[tuple[str, tuple[TaskEvent]]]
"""Waiting tasks that are erased, each with its last event."""


def erase_task(agent: str, task_id: str, owner: str | None, at: int) -> Transaction[Done[bool]]:
    """See `Housekeeping.erase_task`. The readers of a waiting task wait for the end: they get an event."""
    try:
        row = yield from find_row_locked(agent, task_id, owner)
    except TaskNotFoundError:
        return Done(False)
    if row[3] in LIVE:
        raise UnsupportedOperationError('The task is queued or running; cancel it before it is erased.')
    yield from drop_tasks(agent, [task_id])
    return Done(True, _last_events([row], at), erases=True)


def _last_events(rows: Rows, at: int) -> Ended:
    """Return the last events of the waiting tasks among erased tasks (`HEADER` rows)."""
    # The others may be in an unknown state, for which `header_of` raises.
    waiting = [header_of(row) for row in rows if row[3] in INTERRUPTED]
    status = Status('canceled', at, None)
    return [(header.id, (status_event(header, status, header.last_event + 1),)) for header in waiting]


def erase(agent: str, owner: str, context_id: str | None, at: int) -> Transaction[Done[Erased]]:
    """See `Housekeeping.erase`. The readers of waiting tasks wait for the end: they get an event."""
    yield from _check_idle(agent, owner, context_id)
    erased, ended = yield from _erase_tasks(agent, owner, context_id, at)
    if not erased:
        erased = Erased(entries=(yield from conversation_deletion.drop_left(agent, owner, ROWS)))
    if not erased:
        erased = yield from _erase_conversations(agent, owner, context_id)
    if not erased and context_id is None:
        erased = yield from _erase_entries(agent, owner)
    if not (yield totals.lock_sweep(agent)):
        yield from totals.fold_totals(agent)  # else the totals keep the owner's name until the next sweep
    return Done(erased, ended, erases=True)


def _check_idle(agent: str, owner: str, context_id: str | None) -> Transaction[None]:
    live, values = task_ranges.union(task_ranges.LIVE_RANGES, 'id', *tasks_of_owner(agent, owner, context_id))
    rows = yield f'{live} LIMIT 1', values
    if rows:
        raise UnsupportedOperationError(
            f'The task {rows[0][0]} is queued or running; cancel it before you erase its context or its owner.'
        )


def _erase_tasks(agent: str, owner: str, context_id: str | None, at: int) -> Transaction[tuple[Erased, Ended]]:
    """A batch of tasks, each after the events of the task. The events may take several batches."""
    tasks_of, values = tasks_of_owner(agent, owner, context_id)
    # A new message may have created or continued a task since the check: select and lock only idle tasks.
    rows: Rows = []
    for idle in (task_ranges.FILED, task_ranges.UNFILED):
        rows = rows or (
            yield (
                # Without the order, SQLite finds the tasks in an index of lists. PostgreSQL locks in the order of ids.
                f'SELECT {HEADER} FROM task WHERE {tasks_of} AND {idle} /* ORDER BY id COLLATE "C" */'
                ' LIMIT ? /* FOR UPDATE */',
                (*values, TASKS),
            )
        )
    erased, dropped = yield from drop_batch(agent, [row[0] for row in rows])
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
    number, entries = yield from conversation_deletion.erase(agent, [(owner, row[0]) for row in rows], ROWS)
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
