"""The cost of lists and of sweeps without work does not grow with the number of stored tasks."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from pydantic_ai_a2a import Postgres
from pydantic_ai_a2a.server.store.ports import Slot, Swept
from pydantic_ai_a2a.server.store.postgres.backend import PostgresBackend
from pydantic_ai_a2a.server.store.postgres.sql_translation import translated
from pydantic_ai_a2a.server.store.sql import (
    claims,
    erasing,
    export_batches,
    filing,
    sweep,
    task_ranges,
    task_reads,
    totals,
)
from pydantic_ai_a2a.server.store.sql.transaction import Statement, Transaction
from pydantic_ai_a2a.server.store.sqlite.execution import perform
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.types import TaskQuery

from ....postgres import Postgres as Server
from ....sizes import short_or_long
from ....suites.values import OWNER, READER_LAG, START
from ..blocking_session import database
from .conftest import count_steps, empty_database
from .plans import NUMBERS, plan_of, recording, touched_pages

FEW, MANY = 1000, short_or_long(20_000, 50_000)
STORED = short_or_long(5_000, 50_000)
"""Tasks in PostgreSQL."""
STEADY = short_or_long(20_000, 100_000)
PAGE = 10
KEEP = Retention(events=timedelta(days=1), max_tasks=2 * STEADY)
TASKS = """
    INSERT INTO task (agent, id, owner, context_id, state, status_at, queue_seq, dialect, digest, accepted_at, message)
    SELECT 'agent', 't' || n, '{owner}', 'c' || n % 10,
        CASE WHEN n % 100 = 0 THEN 'input-required' WHEN n % 3 = 0 THEN 'failed' ELSE 'completed' END,
        {at} - n, n, '1.0', '', {at} - n, '{{}}'
    FROM numbers
"""
RUNNING = f"""
    INSERT INTO task (agent, id, owner, context_id, state, status_at, queue_seq, dialect, digest, accepted_at, message,
        holder, lease_until)
    SELECT 'agent', 't' || n, '{OWNER}', 'c' || n, 'working', {START}, n, '1.0', '', {START}, '{{}}', 'another',
        a2a_clock() + 3600000
    FROM generate_series(1, {FEW}) AS numbers (n)
"""
CONVERSATIONS = """
    INSERT INTO conversation (agent, owner, id, revision, updated_at, listed_at, record)
    SELECT 'agent', '{owner}', 'idle ' || n, 'r', {at} - n, {at} - n, '{record}' FROM numbers
"""
ENTRIES = """
    INSERT INTO entry (agent, owner, id, message)
    SELECT agent, owner, 'head of ' || id, CAST('{}' AS BLOB) FROM conversation;
    UPDATE conversation SET head_id = 'head of ' || id;
"""
LONG_WRITE = 100_000
"""Steps of SQLite: some five milliseconds."""
RECORD = (
    '{"conversation_id":"c","head_id":null,"scope":"/ada","branches":[],"revision":"r",'
    '"updated_at":"2023-11-14T22:13:20Z","format_version":1,"usage":{}}'
)
SORTED = re.compile(r'Sort  \(cost=\S+ rows=(\d+)')
LONGEST = len(task_ranges.of_state(None)) * (PAGE + 1)
"""The most rows of a page's ranges."""
DEEPER = 2 * len(task_ranges.of_state(None))
"""Pages that a statement may touch more in PostgreSQL: indexes of more tasks have more levels."""
QUERIES = {
    'state': {'state': 'completed'},
    'rare state': {'state': 'input-required'},
    'no such state': {'state': 'canceled'},
    'context and state': {'context_id': 'c3', 'state': 'failed'},
    'context': {'context_id': 'c3'},
    'all': {},
    'since': {'since': START - 500},
}


def inserts(first: int, last: int) -> list[str]:
    """Statements that store tasks and conversations."""
    numbers = f'CREATE TEMPORARY TABLE numbers AS {NUMBERS.format(first=first, last=last)}'
    return [
        numbers,
        *(each.format(owner=OWNER, at=START, record=RECORD) for each in (TASKS, CONVERSATIONS)),
        'DROP TABLE numbers',
    ]


@pytest.fixture(scope='module')
def small_and_large_database() -> Iterator[list[sqlite3.Connection]]:
    """A database with few tasks, and one with many. Tests do not change them."""
    with empty_database() as few, empty_database() as many:
        add_tasks(few, 1, FEW)
        for first, last in ((1, FEW), (FEW + 1, MANY)):
            add_tasks(many, first, last)
        yield [few, many]


def add_tasks(connection: sqlite3.Connection, first: int, last: int) -> None:
    """Store tasks and conversations, and let sweeps add them to the totals."""
    for statement in inserts(first, last):
        connection.execute(statement.replace("'{}'", "CAST('{}' AS BLOB)"))
    sweep_all(connection, KEEP)


def sweep_all(connection: sqlite3.Connection, retention: Retention) -> None:
    """Sweep until nothing is due."""
    while perform(connection, sweep.sweep('agent', retention, START, MANY)).value[:2] != (Swept(), []):
        pass


@pytest.mark.long
def test_housekeeping_writes_stay_short_with_many_tasks(connection: sqlite3.Connection) -> None:
    add_tasks(connection, 1, STEADY)
    connection.executescript(ENTRIES)
    half = Retention(events=timedelta(days=1), max_tasks=STEADY // 2)
    writes: dict[str, Callable[[], Transaction[Any]]] = {
        'filing': lambda: filing.file('agent'),
        'sweep': lambda: sweep.sweep('agent', half, START, MANY),
        'erasure of a context': lambda: erasing.erase('agent', OWNER, 'c3', START),
        'erasure of an owner': lambda: erasing.erase('agent', OWNER, None, START),
    }
    longest = {name: max(count_steps(connection, make()) for _ in range(30)) for name, make in writes.items()}
    assert max(longest.values()) < LONG_WRITE, longest


def query(name: str) -> TaskQuery:
    values: dict[str, Any] = QUERIES[name]
    return TaskQuery(owner=OWNER, page_size=PAGE, before=(START, 't'), **values)


WORK: dict[str, tuple[Callable[[], Transaction[Any]], int]] = {
    'sweep without work': (lambda: sweep.sweep('agent', KEEP, START, MANY), 100),
    'first batch of an export': (lambda: export_batches.filed_ids('agent', OWNER, None, None), 100),
    'later batch of an export': (
        lambda: export_batches.filed_ids('agent', OWNER, None, ('completed', START - 900, 't900')),
        100,
    ),
    'erasure of another owner': (lambda: erasing.erase('agent', '/bob', None, START), 100),
    'erasure of a context of another owner': (lambda: erasing.erase('agent', '/bob', 'c3', START), 100),
    'claim': (lambda: claims.claim('agent', Slot('holder', 1000), at=START, limit=10, task_id=None), 1),
}
"""Transactions, each with a bound for the steps that it takes more among many tasks."""


@pytest.mark.long
@pytest.mark.parametrize('name', WORK)
def test_database_work_costs_same_for_many_tasks(small_and_large_database: list[sqlite3.Connection], name: str) -> None:
    work, bound = WORK[name]
    few, many = (count_steps(connection, work()) for connection in small_and_large_database)
    assert abs(few - many) < bound


def test_conversation_with_damaged_record_is_swept(connection: sqlite3.Connection) -> None:
    add_tasks(connection, 1, 10)
    connection.execute("UPDATE conversation SET record = 'oops' WHERE id = 'idle 10'")
    perform(connection, sweep.sweep('agent', Retention(events=timedelta(days=1), max_tasks=8), START, MANY))
    rows = connection.execute('SELECT id FROM conversation ORDER BY updated_at DESC').fetchall()
    assert [row[0] for row in rows] == [f'idle {n}' for n in range(1, 9)]


def test_conversation_is_swept_by_time_of_newest_turn(connection: sqlite3.Connection) -> None:
    add_tasks(connection, 1, 10)
    connection.execute("UPDATE conversation SET updated_at = updated_at + 100 WHERE id = 'idle 10'")
    sweep_all(connection, Retention(events=timedelta(days=1), max_tasks=8))
    rows = connection.execute('SELECT id FROM conversation ORDER BY updated_at DESC').fetchall()
    assert [row[0] for row in rows] == ['idle 10', *(f'idle {n}' for n in range(1, 8))]


def total(connection: sqlite3.Connection, *kinds: str) -> int:
    statement, values = totals.count_tasks('agent', None, kinds)
    return connection.execute(statement, values).fetchone()[0]


def test_total_of_all_owners_costs_same_for_many_tasks(small_and_large_database: list[sqlite3.Connection]) -> None:
    assert [total(connection) for connection in small_and_large_database] == [FEW, MANY]
    taken = [
        count_steps(connection, read(totals.count_tasks('agent', None))) for connection in small_and_large_database
    ]
    assert abs(taken[0] - taken[1]) < 100


def read(statement: Statement) -> Transaction[Any]:
    return (yield statement)


def test_sweep_keeps_maximum_of_tasks_and_conversations(connection: sqlite3.Connection) -> None:
    add_tasks(connection, 1, FEW)
    connection.execute("DELETE FROM task WHERE id = 't1'")
    connection.execute("DELETE FROM conversation WHERE id = 'idle 1'")
    sweep_all(connection, Retention(events=timedelta(days=1), max_tasks=800))
    assert (total(connection, 'completed', 'failed'), total(connection, totals.CONVERSATIONS)) == (800, 800)
    assert connection.execute('SELECT COUNT(*) FROM conversation').fetchone() == (800,)
    assert connection.execute("SELECT COUNT(*) FROM task WHERE state <> 'input-required'").fetchone() == (800,)


def test_sweep_adds_changes_to_totals_in_batches(
    connection: sqlite3.Connection,
) -> None:
    for statement in inserts(1, FEW):
        connection.execute(statement)
    swept: list[tuple[Swept, int, int]] = []
    for _ in range(3):
        rest, *_ = perform(connection, sweep.sweep('agent', KEEP, START, MANY)).value
        [(changes,)] = connection.execute('SELECT COUNT(*) FROM total_change').fetchall()
        swept.append((rest, changes, total(connection)))
    assert swept == [
        (Swept(rows=2, full=True), FEW // 2, FEW),
        (Swept(rows=2, full=True), 0, FEW),
        (Swept(), 0, FEW),
    ]


def test_erased_owner_has_no_totals(connection: sqlite3.Connection) -> None:
    add_tasks(connection, 1, 10)
    while perform(connection, erasing.erase('agent', OWNER, None, START)).value:
        pass
    assert connection.execute('SELECT * FROM total').fetchall() == []
    assert connection.execute('SELECT * FROM total_change').fetchall() == []


@pytest.mark.long
@pytest.mark.parametrize('name', QUERIES)
def test_list_page_costs_same_for_many_tasks(small_and_large_database: list[sqlite3.Connection], name: str) -> None:
    taken = [
        count_steps(connection, task_reads.page('agent', query(name)), without='SELECT COUNT')
        for connection in small_and_large_database
    ]
    assert abs(taken[0] - taken[1]) < 100


@pytest.mark.parametrize('name', [name for name, values in QUERIES.items() if {'context_id', 'since'} & values.keys()])
def test_total_of_context_or_time_uses_covering_index(connection: sqlite3.Connection, name: str) -> None:
    [(statement, values)] = [
        each for each in statements_of(connection, query(name)) if each[0].startswith('SELECT COUNT')
    ]
    plan = [row[3] for row in connection.execute(f'EXPLAIN QUERY PLAN {statement}', values)]
    searches = [step for step in plan if step.startswith('SEARCH')]
    assert len(searches) == len(task_ranges.of_state(query(name).state))
    stopped = [step for step in searches if 'state=?' in step]
    assert stopped
    assert all('USING COVERING INDEX' in step for step in stopped)
    live = [step for step in searches if step not in stopped]
    assert all(any(f'task_{name}' in step for name in ('line', 'round', 'running', 'unfiled')) for step in live)


def statements_of(connection: sqlite3.Connection, wanted: TaskQuery) -> list[Statement]:
    statements: list[Statement] = []
    perform(connection, recorded_page(wanted, statements))
    return statements


def recorded_page(wanted: TaskQuery, statements: list[Statement]) -> Transaction[Any]:
    return recording(task_reads.page('agent', wanted), statements)


def recorded_sweep(statements: list[Statement]) -> Transaction[Any]:
    return recording(sweep.sweep('agent', KEEP, START, MANY), statements)


@pytest.mark.long
async def test_postgres_list_and_sweep_use_indexes(postgres: Server, postgres_url: str) -> None:
    backend = PostgresBackend(Postgres(postgres_url), 'agent', reader_lag=READER_LAG)
    connection = await asyncpg.connect(postgres_url, server_settings={'search_path': 'a2a'})
    counts: list[list[int]] = []
    try:
        await backend.housekeeping.sweep(KEEP, at=START)
        # Autovacuum may hold a snapshot while the test vacuums, and dead rows then stay in the indexes.
        for table in await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'a2a'"):
            await connection.execute(f'ALTER TABLE {table["tablename"]} SET (autovacuum_enabled = off)')
        for first, last in ((1, FEW), (FEW + 1, STORED)):
            postgres.run(';'.join(['SET search_path TO a2a', *inserts(first, last)]), database(postgres_url))
            while await backend.housekeeping.sweep(KEEP, at=START):
                pass
            postgres.run('VACUUM ANALYZE', database(postgres_url))
            pages, sweeping = await pages_and_sweep(backend)
            counts.append([await touched_pages(connection, *statement) for statement in (*pages, *sweeping)])
        for statement, values in pages:
            plan = await plan_of(connection, statement, values)
            assert 'Seq Scan on task' not in plan, plan
            assert all(int(rows) <= LONGEST for rows in SORTED.findall(plan)), plan
        for statement, values in sweeping:
            plan = await plan_of(connection, statement, values)
            assert 'Seq Scan on task' not in plan, plan
            assert 'Seq Scan on conversation' not in plan, plan
    finally:
        await connection.close()
        backend.close()
    few, many = counts
    assert [(less, more) for less, more in zip(few, many, strict=True) if more > less + DEEPER] == []


async def pages_and_sweep(backend: PostgresBackend) -> tuple[list[Statement], list[Statement]]:
    """Return the statements of a page for each query, and of a sweep without work."""
    statements: list[Statement] = []
    for name in QUERIES:
        await backend.read(recorded_page, query(name), statements)
    pages = [each for each in statements if 'ORDER BY status_at DESC' in each[0]]
    assert len(pages) == len(QUERIES)
    sweeping: list[Statement] = []
    assert await backend.write(recorded_sweep, sweeping) == (Swept(), [], ())
    return pages, sweeping


async def test_postgres_claim_reads_no_running_task(postgres: Server, postgres_url: str) -> None:
    def claim() -> Transaction[Any]:
        return recording(
            claims.claim('agent', Slot('holder', 1000), at=START, limit=9, task_id=None, lost=False), statements
        )

    statements: list[Statement] = []
    backend = PostgresBackend(Postgres(postgres_url), 'agent', reader_lag=READER_LAG)
    connection = await asyncpg.connect(postgres_url, server_settings={'search_path': 'a2a'})
    try:
        await backend.queued()
        postgres.run(f'SET search_path TO a2a; {translated(RUNNING)}; ANALYZE task', database(postgres_url))
        assert await backend.write(claim) == []
        running, queued = [await plan_of(connection, *each) for each in statements]
        leases = await connection.fetch("SELECT FROM pg_indexes WHERE indexdef LIKE '%lease_until%'")
    finally:
        await connection.close()
        backend.close()
    assert 'task_released' in running
    assert 'Seq Scan' not in running + queued
    assert leases == [], 'a renewed lease would change an index'
