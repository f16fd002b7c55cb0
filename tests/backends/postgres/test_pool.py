"""The pool of connections: limits, reuse, and connections that are closed."""

from __future__ import annotations

import asyncio

import pytest

from pydantic_ai_a2a import Postgres
from pydantic_ai_a2a.backends.postgres import pool as pools
from pydantic_ai_a2a.backends.postgres.clock import DatabaseClock
from pydantic_ai_a2a.backends.postgres.pool import Pool
from pydantic_ai_a2a.testing.values import LIMIT


async def test_a_pool_uses_the_connection_again_that_was_used_last(postgres_url: str) -> None:
    pool = Pool(Postgres(postgres_url), 2, DatabaseClock())
    first, second = await pool.acquire(), await pool.acquire()
    pool.release(first)
    pool.release(second)
    assert await pool.acquire() is second
    assert await pool.acquire() is first
    for connection in (first, second):
        pool.release(connection)
    await pool.close()
    assert first.is_closed()
    assert second.is_closed()


async def test_a_pool_waits_for_a_free_connection_up_to_the_limit(postgres_url: str) -> None:
    pool = Pool(Postgres(postgres_url, acquire_timeout=0.01), 1, DatabaseClock())
    async with asyncio.timeout(LIMIT):
        while True:  # the first connection may take longer than the limit
            try:
                connection = await pool.acquire()
            except TimeoutError:
                continue
            break
        with pytest.raises(TimeoutError):
            await pool.acquire()
        pool.release(connection)
        assert await pool.acquire() is connection
    pool.release(connection)
    await pool.close()


@pytest.mark.parametrize('end', ['lost', 'in a transaction'])
async def test_a_pool_replaces_a_connection_that_is_unusable(end: str, postgres_url: str) -> None:
    pool = Pool(Postgres(postgres_url), 1, DatabaseClock())
    first = await pool.acquire()
    if end == 'lost':
        first.terminate()
    else:
        await first.execute('BEGIN')
    pool.release(first)
    assert first.is_closed()
    second = await pool.acquire()
    assert await second.fetchval('SELECT 1') == 1
    pool.release(second)
    second.terminate()  # lost while nobody uses it
    third = await pool.acquire()
    assert await third.fetchval('SELECT 1') == 1
    pool.release(third)
    await pool.close()


async def test_a_pool_closes_the_connections_that_nobody_uses(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, '_IDLE', 0.01)
    pool = Pool(Postgres(postgres_url), 3, DatabaseClock())
    connections = [await pool.acquire() for _ in range(3)]
    *others, used = connections
    for connection in others:
        pool.release(connection)
    async with asyncio.timeout(LIMIT):
        while not all(connection.is_closed() for connection in others):
            assert await used.fetchval('SELECT 1') == 1
    pool.release(used)
    await pool.close()


async def test_a_connection_whose_clock_cannot_be_read_is_closed_and_takes_no_place(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = DatabaseClock()
    pool = Pool(Postgres(postgres_url), 1, clock)

    async def fail(connection: object) -> None:
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(clock, 'ask', fail)
        with pytest.raises(ConnectionError):
            await pool.acquire()
    pool.release(await pool.acquire())
    await pool.close()
