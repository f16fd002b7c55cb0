"""Erasure of all data of an owner, or of a context, in transactions of bounded size. Pure, like `sql`."""

from __future__ import annotations

from ...errors import UnsupportedOperationError
from ...ports import Erased, Status
from ...types import INTERRUPTED
from ..rules import status_event
from . import conversations, ranges, totals
from .sweep import ROWS, TASKS, Told, drop_events, drop_task
from .transaction import LockName, Rows, Statement, Transaction, where
from .vocabulary import HEADER, header_of

__all__ = ('erase',)


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
    if not (yield totals.lock_sweep(agent)):
        yield from totals.fold_totals(agent)  # else the totals keep the owner's name until the next sweep
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
    tasks = items = events = 0
    ended: Told = []
    for row in rows:
        task_id, _, _, state, *_ = row
        events += yield from drop_events(agent, task_id, ROWS - events)
        if (yield 'SELECT 1 FROM event WHERE agent = ? AND task_id = ? LIMIT 1', (agent, task_id)):
            break
        tasks += 1
        items += (yield from drop_task(agent, task_id)) - 1
        if state in INTERRUPTED:  # `header_of` raises for an unknown state, and such a task is erased too
            header = header_of(row)
            ended.append((task_id, status_event(header, Status('canceled', at, None), header.last_event + 1)))
        if tasks + items + events >= ROWS:
            break
    return Erased(tasks=tasks, items=items, events=events), ended


def _erase_conversations(agent: str, owner: str, context_id: str | None) -> Transaction[Erased]:
    """A batch of conversations, each with the model messages of this conversation alone."""
    rows: Rows = [(context_id,)]
    if context_id is None:
        rows = yield 'SELECT id FROM conversation WHERE agent = ? AND owner = ? LIMIT ?', (agent, owner, TASKS)
    # Lock all conversations before the owner, else a deadlock.
    for conversation_id in sorted(str(row[0]) for row in rows):
        yield LockName((agent, owner, conversation_id))
    erased = entries = 0
    for (conversation_id,) in rows:
        dropped = yield from conversations.erase(agent, owner, conversation_id, ROWS - entries)
        erased += dropped is not None
        entries += dropped or 0
        if entries >= ROWS:
            break
    return Erased(conversations=erased, entries=entries)


def _erase_entries(agent: str, owner: str) -> Transaction[Erased]:
    """A batch of model messages without a conversation."""
    rows = yield (
        'DELETE FROM entry WHERE agent = ? AND owner = ? AND id IN'
        ' (SELECT id FROM entry WHERE agent = ? AND owner = ? AND NOT EXISTS'
        ' (SELECT 1 FROM conversation c WHERE c.agent = ? AND c.owner = ?) LIMIT ?) RETURNING 1',
        (agent, owner, agent, owner, agent, owner, ROWS),
    )
    return Erased(entries=len(rows))
