"""The queue: which tasks wait for a worker, and in which order the tasks of one context run.

`queued` is 1 while a task waits for a worker. The state does not tell: a task is `working` from the answer to its
question on, and waits for a worker from then on as well. `behind` is 1 while an earlier task of the context is queued
or running; without it, a claim would go through all tasks that wait for a busy context.

Owners take turns: claims go through the queue in rounds, and a round has one task of each owner. A task gets its
`round` once no task of its context is before it: the round after the owner's last one, or the one that is being claimed
now if the owner has none in the queue, so that nobody saves up rounds. So a claim reads the first entries of one index,
however long the queue is and however many owners have tasks.
"""

from __future__ import annotations

from .transaction import Lock, Transaction, Write

__all__ = (
    'BEHIND',
    'NEXT',
    'QUEUED',
    'ROUND',
    'any_queued',
    'let_go',
    'lock_rounds',
)

_LIVE = "state IN ('submitted', 'working')"
_OTHERS = (
    f'FROM task e WHERE e.agent = task.agent AND e.owner = task.owner AND e.context_id = task.context_id AND e.{_LIVE}'
)
_FIRST = f'NOT EXISTS (SELECT 1 {_OTHERS} AND e.queue_seq < task.queue_seq)'
QUEUED = f'queued = 1 AND behind = 0 AND {_FIRST}'
"""The task waits for a worker, and is the first of its context to run."""
NEXT = f'(SELECT e.id {_OTHERS} AND e.id <> task.id ORDER BY e.queue_seq LIMIT 1)'
"""The first of a task's context, once that has ended."""
_CLAIMABLE = 'FROM task q WHERE q.agent = ? AND q.queued = 1 AND q.behind = 0'
# Without statistics, PostgreSQL would read the whole queue for MIN and MAX.
_NOW = f'(SELECT q.round {_CLAIMABLE} ORDER BY q.round, q.queue_seq LIMIT 1)'
_NEXT_OF_OWNER = f'(SELECT q.round + 1 {_CLAIMABLE} AND q.owner = ? ORDER BY q.round DESC LIMIT 1)'
ROUND = f'(SELECT COALESCE(MAX(round), 0) FROM (SELECT {_NOW} AS round UNION ALL SELECT {_NEXT_OF_OWNER}) AS rounds)'
"""The round of a task that comes into the queue (agent, agent, owner)."""
BEHIND = (
    'CASE WHEN EXISTS (SELECT 1 FROM task e WHERE e.agent = ? AND e.owner = ? AND e.context_id = ?'
    f' AND e.{_LIVE}) THEN 1 ELSE 0 END'
)
"""1 if other live tasks of a context (agent, owner, context) come before a task that is added now, else 0."""


def any_queued(agent: str) -> Transaction[bool]:
    """See `Backend.queued`."""
    return bool((yield 'SELECT 1 FROM task WHERE agent = ? AND queued = 1 LIMIT 1', (agent,)))


def lock_rounds(agent: str, owner: str) -> Lock:
    """Keep messages of an owner that come at once from getting the same round. Take it after all other locks."""
    return Lock((agent, owner, 'rounds', ''))


def let_go(agent: str, owner: str, task_id: str) -> Write:
    """Give a round to the task that the end of another one has made the first of its context."""
    statement = f'UPDATE task SET behind = 0, round = {ROUND} WHERE agent = ? AND id = ? AND behind = 1'
    return statement, [(agent, agent, owner, agent, task_id)]
