"""The deletion of tasks with all that belongs to them, in batches of bounded size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ports import Erased
from . import filing, joined_items
from .key_conditions import KEYS, among
from .task_rows import OF_TASK
from .transaction import Transaction

ROWS = 500
"""About the most rows to delete in one sweep: the queue waits for no long sweep."""
TASKS = KEYS
"""The most tasks, or conversations, to delete in one sweep."""
_BYTES = 16_000_000
"""About the most bytes in the rows of tasks to delete in one sweep. SQLite keeps a copy of the rows in memory until the
statement has ended, because the table has triggers."""
_LOG = ', '.join(
    f'COALESCE((SELECT {end}(n) FROM event WHERE event.agent = task.agent AND event.task_id = task.id), {without})'
    for end, without in (('MIN', 1), ('MAX', 0))
)
"""The numbers of the first and of the last event of a task."""
_DROP_EVENTS = 'DELETE FROM event WHERE'
_PARTS = ('item', 'event', 'checkpoint', 'credential', 'payload', 'push_config', 'delivery', 'hook_call')
"""The tables with rows of a task, besides its own."""


def among_tasks(agent: str, tasks: Sequence[str]) -> tuple[str, str, tuple[Any, ...]]:
    """Return the conditions of the rows of tasks, and of the rows that belong to them, and the values of either."""
    keys = [(agent, task_id) for task_id in tasks]
    ids, values = among('agent, id', keys)
    of_tasks, _ = among('agent, task_id', keys)
    return ids, of_tasks, values


def drop_events(agent: str, tasks: Sequence[str]) -> Transaction[tuple[int, list[str]]]:
    """Delete the oldest events of locked tasks, up to `ROWS`. Return the number, and the tasks without events."""
    if not tasks:
        return 0, []
    ids, _, values = among_tasks(agent, tasks)
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
        _, of_tasks, values = among_tasks(agent, emptied)
        dropped += len((yield f'{_DROP_EVENTS} {of_tasks} RETURNING 1', values))
    return dropped, emptied


def drop_batch(agent: str, tasks: Sequence[str]) -> Transaction[tuple[Erased, list[str]]]:
    """Delete events of locked tasks, up to `ROWS`, then the tasks without events. Also return the deleted tasks."""
    events, emptied = yield from drop_events(agent, tasks)
    items = yield from _items(agent, emptied, ROWS - events)
    if items:
        yield from drop_tasks(agent, [*items])
    return Erased(tasks=len(items), items=sum(items.values()), events=events), [*items]


def _items(agent: str, tasks: Sequence[str], limit: int) -> Transaction[dict[str, int]]:
    """Return the numbers of messages and artifacts of the first tasks, up to `limit`, and up to `_BYTES` together."""
    if not tasks:
        return {}
    ids, _, values = among_tasks(agent, tasks)
    rows = yield (
        'SELECT id, (SELECT COUNT(*) FROM item WHERE item.agent = task.agent AND item.task_id = task.id), ending,'
        f' LENGTH(message) + COALESCE(LENGTH(own_messages), 0) FROM task WHERE {ids}',
        values,
    )
    numbers = {row[0]: (row[1] + joined_items.number_items(row[2]), row[3] + len(row[2] or b'')) for row in rows}
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
    ids, of_tasks, values = among_tasks(agent, tasks)
    rows = yield f'DELETE FROM task WHERE {ids} RETURNING owner, context_id, filed', values
    yield [(f'DELETE FROM {part} WHERE {of_tasks}', [values]) for part in _PARTS]
    if unfiled := sorted({(owner, context_id) for owner, context_id, filed in rows if not filed}):
        yield [filing.list_conversations(agent, unfiled)]


def delete_due(agent: str, table: str, key: str, due: str, until: int, *, limit: int) -> Transaction[int]:
    """Delete rows that are due, the oldest ones up to a limit, and return their number.

    Args:
        agent: Namespace.
        table: The table.
        key: Columns that name a row of the namespace.
        due: Column with the time from which on a row is due.
        until: The latest such time.
        limit: The most rows.
    """
    of_rows = f'FROM {table} WHERE agent = ? AND {due} <= ?'
    rows = yield (
        f'DELETE {of_rows} AND ({key}) IN (SELECT {key} {of_rows} ORDER BY {due} LIMIT ?) RETURNING {due}',
        (agent, until, agent, until, limit),
    )
    return len(rows)
