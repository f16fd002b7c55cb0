"""Lists for approvers read as much of an index for many waiting tasks as for few, whoever owns the tasks."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from pydantic_ai_a2a import Postgres
from pydantic_ai_a2a.server.store.postgres.backend import PostgresBackend
from pydantic_ai_a2a.server.store.postgres.sql_translation import translated
from pydantic_ai_a2a.server.store.sql.approver_reads import count_open_approvals, open_approvals
from pydantic_ai_a2a.server.store.sql.transaction import Statement
from pydantic_ai_a2a.server.store.sqlite.execution import perform

from ....postgres import Postgres as Server
from ....sizes import short_or_long
from ....suites.values import READER_LAG, START
from ..blocking_session import database
from .conftest import count_steps, empty_database
from .plans import NUMBERS, plan_of, recording, touched_pages

FEW, MANY = 1000, short_or_long(20_000, 100_000)
DEEPER = 20
"""Pages that a statement may touch more in PostgreSQL: indexes of more tasks have more levels."""
OWNERS = {'own tasks': '/ann', 'tasks of another owner': '/bob', 'tasks of a small tenant': 'acme/bob'}
TASKS = """
    INSERT INTO task (agent, id, owner, context_id, state, status_at, queue_seq, dialect, digest, accepted_at, message,
        pending)
    SELECT 'agent', 't' || n, CASE WHEN n % 20 = 0 THEN 'acme/ann' ELSE '/ann' END, 'c' || n, 'working', {at} + n, n,
        '1.0', '', {at} + n, {json}, {json}
    FROM ({numbers}) AS numbers
"""
WAIT = "UPDATE task SET state = 'input-required' WHERE state = 'working'"
PENDING = '{"calls":[{"id":"c","kind":"approval","tool":"pay","text":"May I?"}],"answers":{}}'


def inserts(first: int, last: int, json: str) -> list[str]:
    """Statements that let tasks wait."""
    return [TASKS.format(at=START, json=json, numbers=NUMBERS.format(first=first, last=last)), WAIT]


@pytest.fixture(scope='module')
def databases() -> Iterator[list[sqlite3.Connection]]:
    """A database with few waiting tasks, and one with many."""
    with empty_database() as few, empty_database() as many:
        for connection, number in ((few, FEW), (many, MANY)):
            for statement in inserts(1, number, f"CAST('{PENDING}' AS BLOB)"):
                connection.execute(statement)
        yield [few, many]


def statements_of(owner: str, **wanted: Any) -> list[Statement]:
    """The statements of a page and of a total, without rows."""
    statements: list[Statement] = []
    with empty_database() as connection:
        perform(connection, recording(open_approvals('agent', owner, limit=21, **wanted), statements))
        perform(connection, recording(count_open_approvals('agent', owner), statements))
    return statements


@pytest.mark.parametrize('name', OWNERS)
@pytest.mark.parametrize('before', [None, (START + 900, 't900')], ids=['first page', 'later page'])
def test_sqlite_page_of_approvals_costs_same_for_many_tasks(
    databases: list[sqlite3.Connection], name: str, before: tuple[int, str] | None
) -> None:
    owner = OWNERS[name]
    found = [perform(each, open_approvals('agent', owner, limit=21, before=before)) for each in databases]
    assert [len(each) for each in found] == [21, 21]
    taken = [count_steps(each, open_approvals('agent', owner, limit=21, before=before)) for each in databases]
    assert abs(taken[0] - taken[1]) < 100


def test_sqlite_reads_approvals_in_the_primary_key(connection: sqlite3.Connection) -> None:
    page, total = statements_of('/bob', before=(START, 't'))
    plans = [
        [row[3] for row in connection.execute(f'EXPLAIN QUERY PLAN {sql}', values)] for sql, values in (page, total)
    ]
    assert 'SEARCH approval USING PRIMARY KEY (agent=? AND tenant=? AND (status_at,task_id)<(?,?))' in plans[0]
    assert 'SEARCH task USING INDEX sqlite_autoindex_task_1 (agent=? AND id=?)' in plans[0]
    assert not any('SCAN task' in step or 'SCAN approval' in step for step in plans[0])
    assert plans[1] == ['SEARCH approval USING PRIMARY KEY (agent=? AND tenant=?)']


async def test_postgres_reads_approvals_in_the_primary_key(postgres: Server, postgres_url: str) -> None:
    backend = PostgresBackend(Postgres(postgres_url), 'agent', reader_lag=READER_LAG)
    counts: list[list[int]] = []
    statements = [each for owner in OWNERS.values() for each in statements_of(owner, before=(START + 900, 't900'))]
    connection = await asyncpg.connect(postgres_url, server_settings={'search_path': 'a2a'})
    try:
        await backend.queued()
        for table in ('task', 'approval'):  # a snapshot of autovacuum keeps dead rows in the indexes
            await connection.execute(f'ALTER TABLE {table} SET (autovacuum_enabled = off)')
        for first, last in ((1, FEW), (FEW + 1, MANY)):
            sql = [translated(each) for each in inserts(first, last, f"convert_to('{PENDING}', 'UTF8')")]
            postgres.run(';'.join(['SET search_path TO a2a', *sql]), database(postgres_url))
            postgres.run('VACUUM ANALYZE', database(postgres_url))
            counts.append([await touched_pages(connection, *each) for each in statements])
        plans = [await plan_of(connection, *each) for each in statements]
    finally:
        await connection.close()
        backend.close()
    for page in plans[::2]:
        assert 'Index Only Scan Backward using approval_pkey on approval' in page, page
        assert 'Index Scan using task_pkey on task' in page, page
    # The other tenant has most rows of the table, which PostgreSQL may read as a whole for its total.
    assert 'Index Only Scan using approval_pkey on approval' in plans[-1], plans[-1]
    few, many = (each[::2] for each in counts)
    assert [(less, more) for less, more in zip(few, many, strict=True) if more > less + DEEPER] == []
