"""PostgreSQL that fails over, and statements that it cancels: runs wait, or become dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest

from pydantic_ai_a2a import Postgres, Workers
from pydantic_ai_a2a.store.postgres.backend import PostgresBackend

from ...client import LIMIT, state_of, texts
from ...dialects import unversioned
from ...postgres import OwnPostgres, postgres_server
from ...suites import READER_LAG
from ..clerk import Clerk, readiness, refused, until_ready
from ..rows import covers
from ..stage import ended, serving, told_in_log

pytestmark = unversioned('where tasks are kept is below what versions differ in')
ROW = 'storage error in one task'


@pytest.fixture
def server() -> Iterator[OwnPostgres]:
    with postgres_server() as started:
        yield started


@covers(ROW)
async def test_a_run_waits_for_a_standby_to_be_promoted_and_repeats_nothing(server: OwnPostgres) -> None:
    clerk = Clerk()
    backend = Postgres(server.url(), acquire_timeout=2)
    async with serving(clerk.agent, backend=backend, workers=Workers(lease=0.3, attempts=1)) as client:
        task = await client.send('hi', returnImmediately=True)
        await clerk.reached.wait()
        await asyncio.to_thread(server.become_standby)
        with told_in_log('The store is unavailable; task') as waiting:
            clerk.go_on.set()
            assert await asyncio.to_thread(waiting.wait, LIMIT)
        assert await refused(client) == (503, '1', -32000)
        assert await readiness(client) == (503, 'read-only')
        await asyncio.to_thread(server.promote)
        done = await ended(client, task['id'])
        await until_ready(client)
        assert state_of(await client.send('hi')) == 'COMPLETED'
    assert (state_of(done), texts(done)) == ('COMPLETED', ['booked'])
    assert (clerk.requests, clerk.calls) == (4, 2)


@covers(ROW)
async def test_a_database_whose_tables_are_taken_away_is_unavailable_until_they_are_back(postgres_url: str) -> None:
    clerk = Clerk()
    operator = await asyncpg.connect(postgres_url)
    async with serving(clerk.agent, backend=Postgres(postgres_url), workers=Workers(attempts=1)) as client:
        task = await client.send('hi', returnImmediately=True)
        await clerk.reached.wait()
        await operator.execute('ALTER SCHEMA a2a RENAME TO elsewhere')
        with told_in_log('The store is unavailable; task') as waiting:
            clerk.go_on.set()
            assert await asyncio.to_thread(waiting.wait, LIMIT)
        assert await refused(client) == (503, '1', -32000)
        assert await readiness(client) == (503, 'failed')
        await operator.execute('ALTER SCHEMA elsewhere RENAME TO a2a')
        done = await ended(client, task['id'])
        await until_ready(client)
    await operator.close()
    assert (state_of(done), texts(done), clerk.requests, clerk.calls) == ('COMPLETED', ['booked'], 2, 1)


@covers(ROW)
async def test_a_task_whose_statements_are_cancelled_again_and_again_is_a_dead_letter(postgres_url: str) -> None:
    clerk = Clerk()
    backend = PostgresBackend(Postgres(postgres_url, statement_timeout=2), 'agent', reader_lag=READER_LAG)
    async with serving(clerk.agent, backend=backend, workers=Workers(lease=0.3)) as client:
        task = await client.send('hi', returnImmediately=True)
        await clerk.reached.wait()
        locking = await asyncpg.connect(postgres_url)
        await locking.execute('BEGIN')
        await locking.execute('SELECT 1 FROM a2a.task FOR UPDATE')
        with told_in_log(f'Task {task["id"]} failed (storage') as failed:
            clerk.go_on.set()
            assert await asyncio.to_thread(failed.wait, LIMIT)
        await locking.close()
        dead = await ended(client, task['id'])
        [letter] = await backend.housekeeping.dead_letters()
        retried = await backend.housekeeping.retry(task['id'], new_id='again', at=backend.now())
        done = await ended(client, retried.id)
    assert (state_of(dead), dead['status']['message']['metadata']['failure']) == ('FAILED', 'storage')
    assert (letter.task_id, letter.failure, letter.attempts) == (task['id'], 'storage', 1)
    assert (state_of(done), texts(done)) == ('COMPLETED', ['booked'])
    assert clerk.calls == 2  # what the tool returned could not be stored
    backend.close()
