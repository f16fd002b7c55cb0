"""The number of tasks of each owner in each state, and of conversations.

Live tasks, and stopped tasks that are not filed, are few, and are counted. For filed tasks, a trigger adds a row to
`total_change` in each transaction that files, changes or deletes one, and likewise for listed conversations.
Transactions only add rows, and never wait for each other because of a total. Each sweep moves changes into `total`,
with one row for each owner and state. A total is the sum of `total` and the newer changes: a few rows for any number
of tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ....task_states import INTERRUPTED
from . import task_ranges
from .transaction import Statement, Transaction, TryNames

ENDED_STATES = ('completed', 'failed', 'canceled', 'rejected')
ENDED = f'{task_ranges.FILED} AND state NOT IN {tuple(sorted(INTERRUPTED))}'
CONVERSATIONS = 'conversation'
"""The kind of conversations, counted for all owners together. The kind of a task is the state."""
EVERYBODY = ''
"""The owner of the totals of all owners."""
_BATCH = 1000
"""The most changes to move in one transaction."""
_ADD = (
    'INSERT INTO total (agent, owner, kind, number) VALUES (?, ?, ?, ?)'
    ' ON CONFLICT (agent, owner, kind) DO UPDATE SET number = total.number + excluded.number'
)
_DROP = 'DELETE FROM total WHERE agent = ? AND owner = ? AND kind = ? AND number = 0'


def lock_sweep(agent: str) -> TryNames:
    """Lock the totals of a namespace for one sweep, without waiting. Only the holder may change totals."""
    return TryNames([(agent, 'sweep')])


def count_tasks(agent: str, owner: str | None, kinds: Sequence[str] = ()) -> Statement:
    """The statement that reads the number of rows of some kinds; without kinds, of tasks in any state.

    Args:
        agent: Namespace.
        owner: Owner of the tasks; None for all owners.
        kinds: States of tasks, or `CONVERSATIONS`.
    """
    among = f'IN ({", ".join("?" * len(kinds))})' if kinds else f"<> '{CONVERSATIONS}'"
    of_owner, owners = ('', ()) if owner is None else (' AND owner = ?', (owner,))
    changed = (
        'SELECT CAST(COALESCE((SELECT SUM(number) FROM total'
        f' WHERE agent = ? AND owner = ? AND kind {among}), 0) AS BIGINT)'
        f' + (SELECT COUNT(CASE WHEN new_kind {among} THEN 1 END) - COUNT(CASE WHEN old_kind {among} THEN 1 END)'
        f' FROM total_change WHERE agent = ?{of_owner})'
    )
    values = (agent, EVERYBODY if owner is None else owner, *kinds, *kinds, *kinds, agent, *owners)
    uncounted = task_ranges.UNCOUNTED
    if kinds:
        uncounted = [
            of
            for kind in kinds
            if kind != CONVERSATIONS
            for of in task_ranges.of_state(kind)
            if task_ranges.FILED not in of
        ]
    if not uncounted:
        return changed, values
    counted, more = task_ranges.number(uncounted, f'agent = ?{of_owner}', (agent, *owners))
    return f'{changed} + ({counted})', (*values, *more)


def fold_totals(agent: str) -> Transaction[int]:
    """Move a batch of changes into the totals, under `lock_sweep`; return 0 if it moved all of them, else 1."""
    rows = yield (
        'DELETE FROM total_change WHERE seq IN (SELECT seq FROM total_change WHERE agent = ? LIMIT ?)'
        ' RETURNING owner, old_kind, new_kind',
        (agent, _BATCH),
    )
    numbers: Counter[tuple[str, str]] = Counter()
    for owner, old, new in rows:
        for kind, number in ((old, -1), (new, 1)):
            if kind is not None:
                numbers.update({(counted, kind): number for counted in (owner, EVERYBODY)})
    changed = [(agent, owner, kind, number) for (owner, kind), number in numbers.items() if number]
    yield [(_ADD, changed), (_DROP, [row[:3] for row in changed])]
    return int(len(rows) == _BATCH)
