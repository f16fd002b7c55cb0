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

from .transaction import LockName, Transaction, Write, sql

FIRST_OF_CONTEXT = sql("""
    -- No task of the context runs,
    NOT EXISTS (
        SELECT 1 FROM task e
        WHERE e.agent = task.agent AND e.owner = task.owner AND e.context_id = task.context_id
            AND e.state = 'working' AND e.queued = 0
    )
    -- and none is queued before this one.
    AND NOT EXISTS (
        SELECT 1 FROM task e
        WHERE e.agent = task.agent AND e.owner = task.owner AND e.context_id = task.context_id
            AND e.queued = 1 AND e.queue_seq < task.queue_seq
    )
""")
"""The task is the first of its context to run.

`behind` says so too, and is in the indexes. This condition looks at the other tasks themselves.
"""
QUEUED = f'queued = 1 AND behind = 0 AND {FIRST_OF_CONTEXT}'
"""The task waits for a worker, and is the first of its context to run."""
OFFERED = 2
"""The value of `queued` of a new task until its transaction has tried to take the task; never committed."""
NEXT = sql("""
    COALESCE(
        -- the running task, which is before all queued tasks,
        (
            SELECT e.id FROM task e
            WHERE e.agent = task.agent AND e.owner = task.owner AND e.context_id = task.context_id
                AND e.state = 'working' AND e.queued = 0 AND e.id <> task.id
        ),
        -- or else the first queued task
        (
            SELECT e.id FROM task e
            WHERE e.agent = task.agent AND e.owner = task.owner AND e.context_id = task.context_id
                AND e.queued = 1 AND e.id <> task.id
            ORDER BY e.queue_seq LIMIT 1
        )
    )
""")
"""The next first task of a context, after the end of a task."""
QUEUE_SEQ = sql("""
    (
        SELECT MAX(place) FROM (
            -- the time of the message,
            SELECT CAST(? AS BIGINT) AS place
            -- or after the last queued task of the context, if another machine's clock is ahead
            UNION ALL SELECT place FROM (
                SELECT e.queue_seq + 1 AS place FROM task e
                WHERE e.agent = ? AND e.owner = ? AND e.context_id = ? AND e.queued = 1
                ORDER BY e.queue_seq DESC LIMIT 1
            ) AS newest
        ) AS places
    )
""")
"""The `queue_seq` of a newly queued task (`time_ns`, agent, owner, context): after all others of its context.

Tasks of other contexts are in the order of time."""
ROUND = sql("""
    (
        SELECT COALESCE(MAX(round), 0) FROM (
            -- the current round: that of the task to claim next
            SELECT (
                SELECT q.round FROM task q WHERE q.agent = ? AND q.queued = 1 AND q.behind = 0
                -- Without statistics, PostgreSQL would read the whole queue for MIN, and for MAX below.
                ORDER BY q.round, q.queue_seq LIMIT 1
            ) AS round
            -- the round after the owner's last task
            UNION ALL SELECT (
                SELECT q.round + 1 FROM task q WHERE q.agent = ? AND q.queued = 1 AND q.behind = 0 AND q.owner = ?
                ORDER BY q.round DESC LIMIT 1
            )
        ) AS rounds
    )
""")
"""The round of a new queued task (agent, agent, owner)."""
BEHIND = sql("""
    CASE WHEN EXISTS (
        SELECT 1 FROM (
            -- the context, with its types for PostgreSQL: the table of the new task does not tell them here
            SELECT CAST(? AS TEXT) AS agent, CAST(? AS TEXT) AS owner, CAST(? AS TEXT) AS context_id
        ) AS n
        WHERE EXISTS (
            SELECT 1 FROM task e
            WHERE e.agent = n.agent AND e.owner = n.owner AND e.context_id = n.context_id
                AND e.state = 'working' AND e.queued = 0
        ) OR EXISTS (
            SELECT 1 FROM task e
            WHERE e.agent = n.agent AND e.owner = n.owner AND e.context_id = n.context_id AND e.queued = 1
        )
    ) THEN 1 ELSE 0 END
""")
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
