"""What it takes to find work, in steps of SQLite's virtual machine, and the numbers of a long queue."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from typing import Any

from pydantic_ai_a2a.server.store.ports import Slot
from pydantic_ai_a2a.server.store.sql import claims as claiming
from pydantic_ai_a2a.server.store.sql import peers, queue_order
from pydantic_ai_a2a.server.store.sql.finishing import finish
from pydantic_ai_a2a.server.store.sql.queue_counts import counts
from pydantic_ai_a2a.server.store.sql.submitting import submit
from pydantic_ai_a2a.server.store.sql.transaction import Transaction
from pydantic_ai_a2a.server.store.sqlite.execution import perform

from ....suites.values import LEASE, QUEUE_LIMIT, START, WINDOW, finish_of, message
from .conftest import count_steps

FEW, MANY = 10, 1000


def queue_tasks(
    connection: sqlite3.Connection, context: str | None, first: int, last: int, *, owner: str | None = None
) -> None:
    """Queue tasks in one context, or in one each; of one owner, or of one each if that is the empty string."""
    for n in range(first, last):
        whose: dict[str, Any] = {} if owner is None else {'owner': owner or f'/owner {n}'}
        submission = message(new=f'{context or owner} {n:04}', context=context, **whose)
        submitting = submit('agent', submission, queue_limit=QUEUE_LIMIT * MANY, idempotency_window=WINDOW)
        perform(connection, submitting)


def claim(limit: int = 2, *, holder: str = 'holder', lost: bool = True) -> Transaction[Any]:
    return claiming.claim('agent', Slot(holder, LEASE), at=START, limit=limit, task_id=None, lost=lost)


def test_waiting_tasks_of_context_add_no_cost_to_claim(connection: sqlite3.Connection) -> None:
    queue_tasks(connection, 'busy', 0, FEW)
    [claimed] = perform(connection, claim()).value
    found: list[int] = []
    noticed: list[int] = []
    for waiting in (FEW, MANY):
        queue_tasks(connection, 'busy', FEW, waiting)
        found.append(count_steps(connection, claim()))
        noticed.append(count_steps(connection, peers.look('agent', 'process')))
    assert found[0] == found[1]
    assert noticed[0] == noticed[1]
    perform(connection, finish('agent', claimed, finish_of(claimed)))
    queue_tasks(connection, 'idle', 0, 1)
    assert [each.header.id for each in perform(connection, claim()).value] == ['busy 0001', 'idle 0000']


def test_running_tasks_add_no_cost_to_claim(connection: sqlite3.Connection) -> None:
    taken: list[list[int]] = []
    for first, last in ((0, FEW), (FEW, MANY)):
        queue_tasks(connection, None, first, last, owner='/flood')
        perform(connection, claim(MANY, holder='another'))
        looking = count_steps(connection, peers.look('agent', 'process'))
        taken.append([looking, count_steps(connection, claim(lost=False))])
    assert taken[0] == taken[1]


def test_queue_length_adds_no_cost_to_claim_and_finish(
    connection: sqlite3.Connection,
) -> None:
    taken: list[list[int]] = []
    for first, last in ((0, FEW), (FEW, MANY)):
        queue_tasks(connection, None, first, last, owner='/flood')
        queue_tasks(connection, None, first, last, owner='')
        queue_tasks(connection, 'busy', first, last)
        looking = [
            count_steps(connection, peers.look('agent', 'process')),
            count_steps(connection, queue_order.any_queued('agent')),
        ]
        claims: list[Any] = []
        claiming = count_steps(connection, collecting(claim(1), claims))
        [claimed] = claims
        finishing = count_steps(connection, finish('agent', claimed, finish_of(claimed)))
        taken.append([*looking, claiming, finishing])
    few, many = taken
    assert few[:3] == many[:3]
    assert abs(few[3] - many[3]) < FEW


def test_owner_tasks_add_no_cost_to_next_round(
    connection: sqlite3.Connection,
) -> None:
    taken: list[int] = []
    for first, last in ((0, FEW), (FEW, MANY)):
        queue_tasks(connection, None, first, last, owner='/flood')
        queue_tasks(connection, None, first, last, owner='')
        taken.append(count_steps(connection, round_of('/flood')))
    assert taken[0] == taken[1]


def test_owner_at_limit_adds_no_cost_to_claims(
    connection: sqlite3.Connection,
) -> None:
    taken: list[int] = []
    slot = Slot('holder', LEASE, owner_limit=1)
    for first, last in ((0, FEW), (FEW, MANY)):
        queue_tasks(connection, None, first, last, owner='/flood')
        perform(connection, claiming.claim('agent', slot, at=START, limit=1, task_id=None))
        queue_tasks(connection, None, first, first + 1, owner='/other')
        claims: list[Any] = []
        taken.append(
            count_steps(connection, collecting(claiming.claim('agent', slot, at=START, limit=1, task_id=None), claims))
        )
        [claimed] = claims
        assert claimed.header.owner == '/other'
        perform(connection, finish('agent', claimed, finish_of(claimed)))
    assert abs(taken[0] - taken[1]) < FEW


def collecting(transaction: Transaction[Any], results: list[Any]) -> Transaction[None]:
    """The transaction; its result is added to a list."""
    done = yield from transaction
    results += done.value


def round_of(owner: str) -> Transaction[Any]:
    """Look for the round that the owner's next task gets."""
    return (yield f'SELECT {queue_order.ROUND}', ('agent', 'agent', owner))


FILL = """
WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < :number - 1)
INSERT INTO task (agent, id, owner, context_id, dialect, state, status_at, filed, queued, queue_seq, digest,
    accepted_at, message)
SELECT 'agent', :state || n, '/ann', :state || n, '1.0', :state, :at - 100 * n, :filed, :queued, n, x'', :at - 100 * n,
    x'' FROM n
"""


def add_rows(connection: sqlite3.Connection, state: str, number: int, *, queued: int = 0, filed: int = 1) -> None:
    """Add tasks, of which 10 in a second were accepted and got their state."""
    values = {'state': state, 'number': number, 'queued': queued, 'filed': filed, 'at': START}
    connection.execute(FILL, values)


def test_counts_of_long_queue_are_estimated(connection: sqlite3.Connection) -> None:
    add_rows(connection, 'submitted', 10_500, queued=1, filed=0)
    add_rows(connection, 'input-required', 10_500)
    [few] = perform(connection, counts('agent', at=START, every=False))
    assert (few.queued, few.submitted, few.waiting) == (10_000, 10_000, 10_000)
    assert (few.ended, few.oldest) == (0, START - 199_900)
    connection.execute("INSERT INTO queue (agent, queued, counted_at) VALUES ('agent', 20000, a2a_clock())")
    connection.execute("INSERT INTO total VALUES ('agent', '', 'input-required', 10500), ('agent', '', 'failed', 7)")
    [more] = perform(connection, counts('agent', at=START, every=False))
    assert replace(few, queued=20_000, submitted=20_000, waiting=10_500, accepted=more.accepted) == more
    add_rows(connection, 'completed', 5000)
    connection.execute('DELETE FROM task WHERE queued = 1 OR state = ?', ['input-required'])
    [ended] = perform(connection, counts('agent', at=START, every=False))
    assert ended.ended == ended.accepted == 3002  # 10 a second, estimated from the newest
