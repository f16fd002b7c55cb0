"""The numbers of a long queue are bounded or estimated."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace

from pydantic_ai_a2a.clock import SYSTEM
from pydantic_ai_a2a.store.sql import queue
from pydantic_ai_a2a.store.sql.schema import MIGRATIONS, missing
from pydantic_ai_a2a.store.sqlite.connect import perform, tell_time

from ...suites.values import AT

FILL = """
WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < :number - 1)
INSERT INTO task (agent, id, owner, context_id, dialect, state, status_at, filed, queued, queue_seq, digest,
    accepted_at, message)
SELECT 'agent', :state || n, '/ann', :state || n, '1.0', :state, :at - 100 * n, :filed, :queued, n, x'', :at - 100 * n,
    x'' FROM n
"""


def fill(connection: sqlite3.Connection, state: str, number: int, *, queued: int = 0, filed: int = 1) -> None:
    """Add tasks, of which 10 in a second were accepted and got their state."""
    values = {'state': state, 'number': number, 'queued': queued, 'filed': filed, 'at': AT}
    connection.execute(FILL, values)


def test_long_queues_are_estimated() -> None:
    with closing(sqlite3.connect(':memory:', isolation_level=None)) as connection:
        tell_time(connection, SYSTEM)
        perform(connection, missing(MIGRATIONS))
        fill(connection, 'submitted', 10_500, queued=1, filed=0)
        fill(connection, 'input-required', 10_500)
        [few] = perform(connection, queue.counts('agent', at=AT, every=False))
        assert (few.queued, few.submitted, few.waiting) == (10_000, 10_000, 10_000)
        assert (few.ended, few.oldest) == (0, AT - 199_900)
        connection.execute("INSERT INTO queue (agent, queued, counted_at) VALUES ('agent', 20000, a2a_clock())")
        connection.execute(
            "INSERT INTO total VALUES ('agent', '', 'input-required', 10500), ('agent', '', 'failed', 7)"
        )
        [more] = perform(connection, queue.counts('agent', at=AT, every=False))
        assert replace(few, queued=20_000, submitted=20_000, waiting=10_500, accepted=more.accepted) == more
        fill(connection, 'completed', 5000)
        connection.execute('DELETE FROM task WHERE queued = 1 OR state = ?', ['input-required'])
        [ended] = perform(connection, queue.counts('agent', at=AT, every=False))
        assert ended.ended == ended.accepted == 3002  # 10 a second, estimated from the newest
