"""Machines whose clocks differ share a PostgreSQL database: the clock of the database counts."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from pydantic_ai import Agent

from pydantic_ai_a2a import Workers, to_a2a
from pydantic_ai_a2a.clock import SYSTEM
from pydantic_ai_a2a.commands.store_options import Store, opened
from pydantic_ai_a2a.server.store.ports import Slot
from pydantic_ai_a2a.server.store.postgres import listener

from ....agents import GatedAgent
from ....app_client import Client, lifespan, texts
from ....postgres import Postgres as Server
from ....serving import serving, wait_until_ended
from ....suites.push import lease_deliveries, register
from ....suites.values import LEASE, OWNER, WAIT_LIMIT, ignore, message, submit
from ..blocking_session import database
from .conftest import Open

HOUR = 3_600_000


def set_clock(server: Server, url: str, hours: int) -> None:
    """Let the database's clock differ from that of this machine, for whoever connects from now on."""
    server.run(
        f"""
        CREATE SCHEMA IF NOT EXISTS elsewhere;
        CREATE OR REPLACE FUNCTION elsewhere.clock_timestamp() RETURNS timestamptz LANGUAGE sql
            AS $$ SELECT pg_catalog.clock_timestamp() + INTERVAL '{hours} hours' $$;
        ALTER DATABASE {database(url)} SET search_path TO elsewhere, pg_catalog
        """,
        database(url),
    )


@pytest.mark.parametrize('hours', [1, -1], ids=['behind', 'ahead'])
async def test_lease_does_not_depend_on_clock_of_process(
    open_backend: Open, postgres: Server, postgres_url: str, hours: int
) -> None:
    set_clock(postgres, postgres_url, hours)
    here, there, gates = open_backend(), open_backend(), GatedAgent()
    await there.queued()
    assert abs(there.now() - SYSTEM.now() - hours * HOUR) < HOUR // 2
    async with serving(gates.agent, backend=here, workers=Workers(lease=300)) as client:
        task = await client.send('hi', returnImmediately=True)
        await gates.reached('hi')
        assert await there.queue.claim(Slot('thief', LEASE), at=there.now(), limit=1) == []
        connection = await asyncpg.connect(postgres_url)
        await connection.execute('UPDATE a2a.task SET lease_until = lease_until - 600000')
        await connection.close()
        [claimed] = await there.queue.claim(Slot('heir', LEASE), at=there.now(), limit=1)
        assert claimed.header.id == task['id']
        await there.queue.release(claimed)
        gates.open('hi')
        assert texts(await wait_until_ended(client, task['id'])) == ['hi']


@pytest.mark.parametrize('hours', [1, -1], ids=['ahead', 'behind'])
async def test_webhook_delivery_does_not_depend_on_clock_of_process(
    open_backend: Open, postgres: Server, postgres_url: str, hours: int
) -> None:
    here = open_backend()
    await submit(here, message(new='t'))
    await register(here, 'c')
    await here.queue.cancel('t', OWNER, at=here.now())
    set_clock(postgres, postgres_url, hours)
    there = open_backend()
    await there.queued()
    assert abs(there.now() - here.now() - hours * HOUR) < HOUR // 2
    assert len(await lease_deliveries(here)) == 1
    assert await lease_deliveries(there) == []
    connection = await asyncpg.connect(postgres_url)
    await connection.execute('UPDATE a2a.push_config SET due_at = due_at - 3600000')
    await connection.close()
    assert len(await lease_deliveries(there)) == 1


async def test_command_uses_database_clock_from_first_write(postgres: Server, postgres_url: str) -> None:
    set_clock(postgres, postgres_url, 1)
    async with opened(Store(None, '', postgres_url, 'agent')) as backend:
        assert backend.now() - SYSTEM.now() > HOUR // 2


async def test_server_without_worker_uses_database_clock_from_first_message(
    open_backend: Open, postgres: Server, postgres_url: str
) -> None:
    await open_backend().queued()  # makes the tables
    set_clock(postgres, postgres_url, 1)
    app = to_a2a(Agent('test'), backend=open_backend())
    app.hosting.runs_tasks = False
    async with lifespan(app), asyncio.timeout(WAIT_LIMIT):
        task = await Client(app).send('hi', returnImmediately=True)
    at = datetime.fromisoformat(task['status']['timestamp'])
    assert at - datetime.now(UTC) > timedelta(minutes=30)


async def test_listening_process_notices_changed_database_clock(
    open_backend: Open, postgres: Server, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, 'POLL', 0.05)
    set_clock(postgres, postgres_url, 0)
    backend = open_backend()
    stop = backend.listen(ignore, ignore)
    await backend.queued()
    assert abs(backend.now() - SYSTEM.now()) < HOUR // 2
    set_clock(postgres, postgres_url, 1)
    async with asyncio.timeout(WAIT_LIMIT):
        while backend.now() - SYSTEM.now() < HOUR // 2:
            await backend.queued()
    stop()


@pytest.mark.parametrize('hours', [1, -1])
async def test_subscriber_of_another_process_is_known_despite_clock_change(
    open_backend: Open, postgres: Server, postgres_url: str, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    monkeypatch.setattr(listener, 'POLL', 0.05)
    set_clock(postgres, postgres_url, 0)
    here, there = open_backend(), open_backend()
    stop = here.listen(ignore, ignore)
    monkeypatch.setattr(here.process.peers, 'is_read', ignore)  # so it knows what it reads in the tables
    await submit(here, message(new='t'))
    set_clock(postgres, postgres_url, hours)
    reader = there.events.subscribe('t', ignore)
    async with asyncio.timeout(WAIT_LIMIT):
        while not here.events.watched('t'):
            await here.queued()
    reader.close()
    stop()
