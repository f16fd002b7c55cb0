"""Conditions that find tasks of an owner, or of a context, in an index.

No index has the tasks in all states. Live tasks are few, and are in small indexes: an index with running tasks, and
indexes with queued tasks. Stopped tasks are in another small index until they are filed, and then in the indexes of
lists: see `filing`. So a list is made of ranges: queued tasks, running tasks, stopped tasks that are not filed, and the
filed tasks in each state.

SQLite uses a partial index only for a query that repeats the condition of the index, word for word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....task_states import LIVE, STOPPED
from .key_conditions import where
from .transaction import Statement

WAITING = 'queued = 1'
"""The task waits for a worker: it is submitted, or answered."""
RUNNING = "state = 'working' AND queued = 0"
FILED = 'filed = 1'
"""The task has ended, or waits for its client, and is filed: see `filing.file`."""

# The names of two states: for a longer list, SQLite fills a table in memory each time it checks a row for the index.
UNFILED = f'filed = 0 AND state NOT IN {tuple(sorted(LIVE))}'
"""The task has ended, or waits for its client, and is not filed."""
LIVE_RANGES = (WAITING, RUNNING)
"""Submitted and working tasks. Each task is in one range."""
UNCOUNTED = (*LIVE_RANGES, UNFILED)
"""Tasks that are in no total."""
_OF_STATE: Mapping[str, Sequence[str]] = {
    **{state: (f"state = '{state}' AND {FILED}", f"state = '{state}' AND {UNFILED}") for state in sorted(STOPPED)},
    'submitted': (f"{WAITING} AND state = 'submitted'",),
    'working': (f"{WAITING} AND state = 'working'", RUNNING),
}
_ALL = (*LIVE_RANGES, UNFILED, *(of[0] for state, of in _OF_STATE.items() if state in STOPPED))
_NONE = ('1 = 0',)


def of_state(state: str | None) -> Sequence[str]:
    """Return the ranges with the tasks in a state, or with all tasks. An index has each range in the order of pages."""
    return _ALL if state is None else _OF_STATE.get(state, _NONE)


def union(ranges: Sequence[str], columns: str, where: str, values: Sequence[object], end: str = '') -> Statement:
    """Return a query of the tasks in some ranges.

    Args:
        ranges: The ranges.
        columns: The columns of a row.
        where: More conditions of each range.
        values: The values of the conditions, and of `end`.
        end: Order and limit of each range.
    """
    parts = (f'SELECT {columns} FROM task WHERE {where} AND {condition} {end}' for condition in ranges)
    if end:
        parts = (f'SELECT * FROM ({part}) AS range{n}' for n, part in enumerate(parts))
    return ' UNION ALL '.join(parts), (*values,) * len(ranges)


def number(ranges: Sequence[str], where: str, values: Sequence[object]) -> Statement:
    """Return a query of the number of tasks in some ranges; see `union`."""
    found, all_values = union(ranges, '1', where, values)
    return f'SELECT COUNT(*) FROM ({found}) AS found', all_values


def tasks_of_owner(agent: str, owner: str, context_id: str | None) -> Statement:
    """Return the condition of the tasks of an owner or a context."""
    return where({'agent = ?': agent, 'owner = ?': owner, 'context_id = ?': context_id})
