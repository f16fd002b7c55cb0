"""What it takes to find work, however much of it waits for its turn: counted in steps of SQLite's virtual machine."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from typing import Any

import pytest

from pydantic_ai_a2a.backends import accept, notice, runs, sweep
from pydantic_ai_a2a.backends.migrations import MIGRATIONS
from pydantic_ai_a2a.backends.sqlite_steps import perform, tell_time
from pydantic_ai_a2a.backends.transaction import Transaction
from pydantic_ai_a2a.clock import SYSTEM
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.testing.values import AT, LEASE, QUEUE_LIMIT, WINDOW, ending, message

FEW, MANY = 10, 1000


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(':memory:')) as connection:
        tell_time(connection, SYSTEM)
        for statement in chain.from_iterable(MIGRATIONS):
            connection.execute(statement)
        yield connection


def steps(connection: sqlite3.Connection, transaction: Transaction[Any]) -> int:
    """How many steps a transaction takes."""
    taken = [0]

    def count() -> None:
        taken[0] += 1

    connection.set_progress_handler(count, 1)
    perform(connection, transaction)
    connection.set_progress_handler(None, 1)
    return taken[0]


def queue(connection: sqlite3.Connection, context: str, first: int, last: int) -> None:
    for n in range(first, last):
        submission = message(new=f'{context} {n:04}', context=context)
        submitting = accept.submit('agent', submission, queue_limit=QUEUE_LIMIT * MANY, idempotency_window=WINDOW)
        perform(connection, submitting)


def claim(limit: int = 2) -> Transaction[Any]:
    return runs.claim('agent', 'holder', at=AT, lease=LEASE, limit=limit, task_id=None)


def test_tasks_that_wait_for_their_turn_cost_nothing_where_work_is_looked_for(connection: sqlite3.Connection) -> None:
    queue(connection, 'busy', 0, FEW)
    [(claimed, _)] = perform(connection, claim())
    found: list[int] = []
    noticed: list[int] = []
    for waiting in (FEW, MANY):
        queue(connection, 'busy', FEW, waiting)
        found.append(steps(connection, claim()))
        noticed.append(steps(connection, notice.look('agent', [], AT)))
    assert found[0] == found[1]
    assert noticed[0] == noticed[1]
    perform(connection, runs.finish('agent', claimed, ending(claimed)))
    queue(connection, 'idle', 0, 1)
    assert [each.header.id for each, _ in perform(connection, claim())] == ['busy 0001', 'idle 0000']


def test_a_sweep_lets_go_who_is_first_and_was_not_told(connection: sqlite3.Connection) -> None:
    queue(connection, 'c', 0, 3)
    connection.execute("UPDATE task SET behind = 1 WHERE id = 'c 0000'")
    assert perform(connection, claim()) == []
    assert perform(connection, sweep.sweep('agent', Retention(), AT)) == (0, [])
    assert [each.header.id for each, _ in perform(connection, claim())] == ['c 0000']
