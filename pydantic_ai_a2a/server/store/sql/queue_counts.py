"""The queue in numbers: the tasks of each namespace, for operators, and the length that limits new tasks."""

from __future__ import annotations

from ....task_states import INTERRUPTED
from ..ports import DEAD_LETTERS
from ..ports.queue_counts import QueueCounts
from . import task_ranges, totals
from .namespaces import NAMESPACES
from .transaction import Transaction

_FIVE_MINUTES = 300_000
_COUNTED = 10_000
"""The most tasks of a kind to count, by an index alone. More queued and more waiting tasks are counted elsewhere."""
_SAMPLE = 2_000
"""The most rows of a kind to read. For more tasks, the other numbers are estimated from these rows."""
_WAITS = f'state IN {tuple(sorted(INTERRUPTED, reverse=True))}'
_NUMBERS = ', '.join(
    f'(SELECT COUNT(*) FROM (SELECT 1 FROM task WHERE agent = ? AND {of} LIMIT {_COUNTED}) AS counted)'
    for of in (task_ranges.WAITING, task_ranges.RUNNING, _WAITS, f'failure IN {DEAD_LETTERS}')
)
_KEPT = (
    '(SELECT queued FROM queue WHERE agent = ? AND counted_at > a2a_clock() - 30000),'
    ' (SELECT paused_at FROM queue WHERE agent = ?),'
    f" (SELECT CAST(SUM(number) AS BIGINT) FROM total WHERE agent = ? AND owner = '{totals.EVERYBODY}'"
    f' AND kind IN {tuple(sorted(INTERRUPTED))})'
)
_NEW = 'COUNT(CASE WHEN accepted_at >= ? THEN 1 END)'
_QUEUED = (
    f"SELECT COUNT(*), {_NEW}, COUNT(CASE state WHEN 'submitted' THEN 1 END), MIN(status_at)"
    f' FROM (SELECT state, status_at, accepted_at FROM task WHERE agent = ? AND {task_ranges.WAITING}'
    f' ORDER BY behind, round, queue_seq LIMIT {_SAMPLE}) AS queued'
)
_RUNNING = (
    f'SELECT COUNT(*), {_NEW}, COUNT(CASE WHEN lease_until >= (SELECT a2a_clock()) THEN holder END)'
    f' FROM (SELECT holder, lease_until, accepted_at FROM task WHERE agent = ? AND {task_ranges.RUNNING}'
    f' LIMIT {_SAMPLE}) AS running'
)
_STOPPED = (
    *(f'{totals.ENDED} AND events_swept = {swept}' for swept in (0, 1)),
    f'{task_ranges.UNFILED} AND NOT {_WAITS}',
    _WAITS,
)
_NEWEST = f'ORDER BY status_at DESC LIMIT {_SAMPLE}'
_COUNT = (
    'INSERT INTO queue (agent, queued, counted_at)'
    ' VALUES (?, (SELECT COUNT(*) FROM task WHERE agent = ? AND queued = 1), a2a_clock()) ON CONFLICT (agent)'
    ' DO UPDATE SET queued = excluded.queued, counted_at = excluded.counted_at RETURNING queued'
)


def counts(agent: str, *, at: int, every: bool) -> Transaction[list[QueueCounts]]:
    """See `Housekeeping.queues`."""
    names = [row[0] for row in (yield NAMESPACES, ())] if every else [agent]
    found: list[QueueCounts] = []
    for name in names:
        found += [(yield from _counts(name, at))]
    return found


def _counts(agent: str, at: int) -> Transaction[QueueCounts]:
    since = at - _FIVE_MINUTES
    [(queued, running, waiting, dead, kept_queued, paused_at, kept_waiting)] = yield (
        f'SELECT {_NUMBERS}, {_KEPT}',
        (agent,) * 7,
    )
    if queued == _COUNTED:
        queued = max(queued, kept_queued or 0)
    if waiting == _COUNTED:
        waiting = max(waiting, kept_waiting or 0)
    [(sampled, new_queued, submitted, oldest)] = yield _QUEUED, (since, agent)
    of_queued = queued / max(1, sampled)
    [(sampled, new_running, leases)] = yield _RUNNING, (since, agent)
    of_running = running / max(1, sampled)
    stopped, values = task_ranges.union(
        _STOPPED, 'state, status_at, accepted_at', 'agent = ? AND status_at >= ?', (agent, since), _NEWEST
    )
    [(sampled, new_stopped, ended, first)] = yield (
        f'SELECT COUNT(*), {_NEW}, COUNT(CASE WHEN NOT {_WAITS} THEN 1 END), MIN(status_at)'
        f' FROM (SELECT * FROM ({stopped}) AS stopped {_NEWEST}) AS newest',
        (since, *values),
    )
    of_stopped = _FIVE_MINUTES / max(1, at - first) if sampled == _SAMPLE else 1
    return QueueCounts(
        namespace=agent,
        submitted=round(submitted * of_queued),
        queued=queued,
        running=running,
        leases=round(leases * of_running),
        waiting=waiting,
        dead=dead,
        oldest=oldest,
        accepted=round(new_queued * of_queued + new_running * of_running + new_stopped * of_stopped),
        ended=round(ended * of_stopped),
        paused_at=paused_at,
    )


def count_queued(agent: str, *, age: int) -> Transaction[int]:
    """Return the number of queued tasks, counted at most `age` milliseconds ago by any process, or else now."""
    fresh = 'SELECT queued FROM queue WHERE agent = ? AND counted_at BETWEEN a2a_clock() - ? AND a2a_clock()'
    rows = (yield fresh, (agent, age)) or (yield _COUNT, (agent, agent))
    return rows[0][0]
