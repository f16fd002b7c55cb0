"""The queue: queued tasks, and the order of the tasks in one context.

`queued` is 1 while a task waits for a worker. The state is not enough: an answered task is `working` at once, and waits
for a worker too. `behind` is 1 while an earlier task of the context is queued or running: claims skip such tasks by the
index.

Owners take turns: claims go through the queue in rounds, and a round has one task of each owner. The first task of a
context gets a `round`: the round after the owner's last queued task, or the current round for an owner without queued
tasks, so that owners cannot save up rounds. A claim reads the first entries of one index, for any length of the queue
and any number of owners.
"""

from __future__ import annotations

from .transaction import LockName, Transaction, Write

_OTHERS = 'FROM task e WHERE e.agent = {0}.agent AND e.owner = {0}.owner AND e.context_id = {0}.context_id'
_RUNNING = f"{_OTHERS} AND e.state = 'working' AND e.queued = 0"
_WAITING = f'{_OTHERS} AND e.queued = 1'
_RUNNING_OTHER, _WAITING_OTHER = _RUNNING.format('task'), _WAITING.format('task')
_FIRST = (
    f'NOT EXISTS (SELECT 1 {_RUNNING_OTHER})'
    f' AND NOT EXISTS (SELECT 1 {_WAITING_OTHER} AND e.queue_seq < task.queue_seq)'
)
QUEUED = f'queued = 1 AND behind = 0 AND {_FIRST}'
"""The task waits for a worker, and is the first of its context to run."""
OFFERED = 2
"""The value of `queued` of a new task until its transaction has tried to take the task; never committed."""
QUEUED_OR_OFFERED = f'queued IN (1, {OFFERED}) AND behind = 0 AND {_FIRST}'
NEXT = (
    f'COALESCE((SELECT e.id {_RUNNING_OTHER} AND e.id <> task.id),'
    f' (SELECT e.id {_WAITING_OTHER} AND e.id <> task.id ORDER BY e.queue_seq LIMIT 1))'
)
"""The next first task of a context, after the end of a task: the running task, which is before all queued tasks."""
QUEUE_SEQ = (
    '(SELECT MAX(place) FROM (SELECT CAST(? AS BIGINT) AS place UNION ALL SELECT place FROM (SELECT e.queue_seq + 1 AS'
    ' place FROM task e WHERE e.agent = ? AND e.owner = ? AND e.context_id = ? AND e.queued = 1'
    ' ORDER BY e.queue_seq DESC LIMIT 1) AS newest) AS places)'
)
"""The `queue_seq` of a newly queued task (`time_ns`, agent, owner, context): after all others of its context.

Tasks of other contexts are in the order of time."""
_CLAIMABLE = 'FROM task q WHERE q.agent = ? AND q.queued = 1 AND q.behind = 0'

# Without statistics, PostgreSQL would read the whole queue for MIN and MAX.
_NOW = f'(SELECT q.round {_CLAIMABLE} ORDER BY q.round, q.queue_seq LIMIT 1)'
_NEXT_OF_OWNER = f'(SELECT q.round + 1 {_CLAIMABLE} AND q.owner = ? ORDER BY q.round DESC LIMIT 1)'
ROUND = f'(SELECT COALESCE(MAX(round), 0) FROM (SELECT {_NOW} AS round UNION ALL SELECT {_NEXT_OF_OWNER}) AS rounds)'
"""The round of a new queued task (agent, agent, owner)."""
BEHIND = (
    'CASE WHEN EXISTS'
    ' (SELECT 1 FROM (SELECT CAST(? AS TEXT) AS agent, CAST(? AS TEXT) AS owner, CAST(? AS TEXT) AS context_id) AS n'
    f' WHERE EXISTS (SELECT 1 {_RUNNING.format("n")}) OR EXISTS (SELECT 1 {_WAITING.format("n")})) THEN 1 ELSE 0 END'
)
"""1 if a context (agent, owner, context) has a live task before a new task, else 0."""


def any_queued(agent: str) -> Transaction[bool]:
    """See `Backend.queued`."""
    return bool((yield 'SELECT 1 FROM task WHERE agent = ? AND queued = 1 LIMIT 1', (agent,)))


def lock_rounds(agent: str, owner: str) -> LockName:
    """Return the lock of an owner's rounds: concurrent messages get different rounds. Take after all other locks."""
    return LockName((agent, owner, 'rounds', ''))


def release_context(agent: str, owner: str, task_id: str) -> Write:
    """Give a round to the new first task of a context, after the end of a task."""
    statement = f'UPDATE task SET behind = 0, round = {ROUND} WHERE agent = ? AND id = ? AND behind = 1'
    return statement, [(agent, agent, owner, agent, task_id)]
