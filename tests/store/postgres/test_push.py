"""Webhooks of tasks that are deleted while others register or tell them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import asyncpg
import pytest

from pydantic_ai_a2a import Postgres
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.store.postgres.backend import PostgresBackend

from ...suites import READER_LAG
from ...suites.push import outbox_of, register
from ...suites.values import AT, LEASE, LIMIT, message, run, submit
from ..gates import gate

TASK = "SELECT 1 FROM a2a.task WHERE id = 't' FOR UPDATE"
CONFIG = "SELECT 1 FROM a2a.push_config WHERE task_id = 't' FOR UPDATE"
ANOTHER = (
    'INSERT INTO a2a.push_config (agent, task_id, owner, id, version, takes, body)'
    " VALUES ('agent', 't', '/ada', 'another', '1.0', 0, '')"
)
DAY = 24 * 3600 * 1000


@pytest.fixture
def backend(postgres_url: str) -> Iterator[PostgresBackend]:
    backend = PostgresBackend(Postgres(postgres_url), 'agent', reader_lag=READER_LAG)
    yield backend
    backend.close()


async def told(backend: PostgresBackend) -> None:
    """A task that has ended, whose events have been swept, and whose webhook has not been told of it."""
    await submit(backend, message(new='t'))
    await register(backend, 'one')
    await run(backend, 't')
    await backend.housekeeping.sweep(Retention(events=timedelta(seconds=1), tasks=timedelta(days=9)), at=AT + DAY)


async def sweep(backend: PostgresBackend) -> None:
    async with asyncio.timeout(LIMIT):
        while await backend.housekeeping.sweep(Retention(tasks=timedelta(days=9)), at=AT + 10 * DAY):
            pass


async def rows(url: str, sql: str) -> list[str]:
    connection = await asyncpg.connect(url)
    try:
        return [row[0] for row in await connection.fetch(sql)]
    finally:
        await connection.close()


async def test_a_webhook_that_is_registered_while_its_task_is_swept_goes_with_it(
    backend: PostgresBackend, postgres_url: str
) -> None:
    await told(backend)
    async with gate(postgres_url, f'{TASK}; {ANOTHER}') as registering:
        await sweep(backend)  # leaves the locked task to a later sweep
        assert await rows(postgres_url, 'SELECT id FROM a2a.task') == ['t']
        await registering.commit()
    await sweep(backend)
    assert await rows(postgres_url, 'SELECT id FROM a2a.push_config UNION ALL SELECT id FROM a2a.task') == []


async def test_who_sweeps_waits_for_who_tells_a_webhook_without_a_lock_on_what_is_told(
    backend: PostgresBackend, postgres_url: str
) -> None:
    await told(backend)
    async with gate(postgres_url, CONFIG) as telling:
        sweeping = asyncio.ensure_future(sweep(backend))
        await telling.reached()
        assert await rows(postgres_url, 'SELECT task_id FROM a2a.delivery FOR UPDATE NOWAIT') != []
        await telling.open()
        await sweeping
    assert (await outbox_of(backend).lease(lease=LEASE, limit=9, held={})).wait is None
    assert await rows(postgres_url, 'SELECT id FROM a2a.delivery') == []
