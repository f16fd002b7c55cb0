"""Apps of one process over one database: they share connections, a thread and a listening connection."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel

from pydantic_ai_a2a import Postgres, to_a2a
from pydantic_ai_a2a.server.store.postgres.backend import PostgresBackend
from pydantic_ai_a2a.server.store.sql import queue_order
from pydantic_ai_a2a.server.store.sql.transaction import Transaction

from ....agents import echo_prompts
from ....app_client import Client, lifespan, texts
from ....bounds import LIMIT
from ....postgres import Postgres as Server
from ....suites import READER_LAG
from ....suites.values import message, submit
from ..blocking_session import BlockingSession, blocking_session, database

WAITING = "SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"
Make = Callable[..., PostgresBackend]


@pytest.fixture
def backend(postgres_url: str) -> Iterator[Make]:
    """Makes the backends of several apps of this process."""
    made: list[PostgresBackend] = []

    def make(namespace: str, **options: Any) -> PostgresBackend:
        made.append(PostgresBackend(Postgres(postgres_url, **options), namespace, reader_lag=READER_LAG))
        return made[-1]

    yield make
    for backend in made:
        backend.close()


def connections(server: Server, url: str) -> int:
    """Return the number of open connections to a database."""
    counted = f"SELECT COUNT(*) FROM pg_stat_activity WHERE datname = '{database(url)}'"
    return int(server.run(counted)[0])


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == 'pydantic_ai_a2a PostgreSQL'}


async def test_four_busy_agents_share_at_most_twelve_connections(postgres: Server, postgres_url: str) -> None:
    before = threads()  # one of an earlier test may end meanwhile
    agents = [Agent(FunctionModel(echo_prompts), name=name) for name in ('ann', 'bob', 'cat', 'dan')]
    apps = [to_a2a(agent, backend=postgres_url) for agent in agents]
    async with AsyncExitStack() as stack, asyncio.timeout(LIMIT):
        for app in apps:
            await stack.enter_async_context(lifespan(app))
        clients = [Client(app) for app in apps]
        for _ in range(3):
            tasks = await asyncio.gather(*(client.send('hi') for client in clients for _ in range(15)))
            assert [texts(task) for task in tasks] == [['hi']] * 60
            assert 4 < connections(postgres, postgres_url) <= 12
        assert len(threads() - before) == 1
    for app in apps:
        await asyncio.to_thread(app.backend.close)
    assert not threads() - before
    until = time.monotonic() + LIMIT
    while connections(postgres, postgres_url):  # the server notices soon that they are closed
        assert time.monotonic() < until


def wait_for_lock() -> Transaction[None]:
    yield 'SELECT pg_advisory_xact_lock_shared(1)', ()


def select_one() -> Transaction[list[Any]]:
    return (yield 'SELECT 1', ())


async def wait_for_lock_waiters(held: BlockingSession, number: int) -> None:
    """Wait until so many statements wait for the lock."""
    async with asyncio.timeout(LIMIT):
        while await held.value(WAITING) != number:
            pass


async def test_busy_agent_leaves_connections_for_another_agent(backend: Make, postgres_url: str) -> None:
    busy, other = backend('busy', pool_size=4), backend('other', pool_size=4)
    await submit(busy, message(new='t'))  # makes the tables
    async with blocking_session(postgres_url, 'SELECT pg_advisory_xact_lock(1)') as held, asyncio.timeout(LIMIT):
        alone = [asyncio.create_task(busy.read(wait_for_lock)) for _ in range(4)]
        await wait_for_lock_waiters(held, 4)
        await held.open()
        await asyncio.gather(*alone)
    await other.read(select_one)
    async with blocking_session(postgres_url, 'SELECT pg_advisory_xact_lock(1)') as held, asyncio.timeout(LIMIT):
        beside = [asyncio.create_task(busy.read(wait_for_lock)) for _ in range(4)]
        await wait_for_lock_waiters(held, 2)
        for _ in range(3):
            await other.read(select_one)
        assert await held.value(WAITING) == 2
        await held.open()
        await asyncio.gather(*beside)


@pytest.mark.slow
async def test_app_is_notified_after_another_app_closes(backend: Make, postgres: Server, postgres_url: str) -> None:
    one, other, elsewhere = backend('one'), backend('other'), backend('other', pool_size=3)
    loop, ready = asyncio.get_running_loop(), asyncio.Queue[str | None]()
    stops = [each.listen(partial(loop.call_soon_threadsafe, ready.put_nowait), print) for each in (one, other)]
    async with asyncio.timeout(LIMIT):
        await submit(elsewhere, message(new='t'))
        await ready.get()
        stops[0]()
        await asyncio.to_thread(one.close)
        while not ready.empty():
            ready.get_nowait()
        for n in range(3):
            await submit(elsewhere, message(new=f't{n}'))
            await ready.get()
    stops[1]()
    await asyncio.to_thread(other.close)


async def test_apps_with_different_settings_share_no_connections(
    backend: Make, caplog: pytest.LogCaptureFixture
) -> None:
    before = threads()  # one of an earlier test may end meanwhile
    for one in (backend('one'), backend('two'), backend('three', pool_size=3), backend('four', pool_size=3)):
        await submit(one, message(new='t'))
    assert len(threads() - before) == 2
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith('The apps of this process have different settings for ')
    assert line.endswith(' (schema a2a), so they share no connections.')


async def test_backend_can_be_closed_in_connection_thread(backend: Make) -> None:
    """The garbage collector closes a backend in any thread."""
    closed = backend('here')

    def close() -> Transaction[bool]:
        closed.close()
        return queue_order.any_queued('here')

    assert not await closed.process.read(close)
