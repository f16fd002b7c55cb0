"""A process that listens to a PostgreSQL database: it notices that it is cut off, comes back, and ends in time."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from pydantic_ai_a2a import Postgres
from pydantic_ai_a2a.clock import SYSTEM
from pydantic_ai_a2a.server.store.event_bus import EventBus
from pydantic_ai_a2a.server.store.ports import Slot
from pydantic_ai_a2a.server.store.postgres import listener as listener_module
from pydantic_ai_a2a.server.store.postgres import pool
from pydantic_ai_a2a.server.store.postgres.backend import PostgresBackend
from pydantic_ai_a2a.server.store.postgres.database_clock import DatabaseClock
from pydantic_ai_a2a.server.store.sql.peers import Noticed, Peers
from pydantic_ai_a2a.types import TaskEvent

from ....postgres_proxy import Fault, proxied
from ....suites import READER_LAG
from ....suites.values import (
    LEASE,
    OWNER,
    WAIT_LIMIT,
    artifact_chunk,
    claim_all,
    claim_and_finish,
    claim_task,
    finish_of,
    ignore,
    message,
    state_of,
    submit,
)
from .conftest import Open


@pytest.mark.parametrize(
    ('statement', 'fault'), [(b'LISTEN', 'lose the answer'), (b'clock_timestamp', 'say nothing more')]
)
async def test_lost_or_silent_listen_connection_is_reopened(
    open_backend: Open, postgres_url: str, monkeypatch: pytest.MonkeyPatch, statement: bytes, fault: Fault
) -> None:
    monkeypatch.setattr(listener_module, 'POLL', 0.1)
    async with proxied(postgres_url) as proxy:
        backend = open_backend(listen_dsn=proxy.url)
        proxy.when(statement, fault)
        stop = backend.listen(ignore, ignore)
        async with asyncio.timeout(WAIT_LIMIT):
            for _ in range(2):
                await proxy.connected.get()
        stop()
        await asyncio.to_thread(backend.close)


async def test_unreachable_database_is_logged_once_by_listener(
    open_backend: Open, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with proxied(postgres_url) as proxy:
        proxy.refuses = True
        backend = open_backend(proxy.url, acquire_timeout=0.01)
        stop = backend.listen(ignore, ignore)
        async with asyncio.timeout(WAIT_LIMIT):
            for _ in range(10):
                await proxy.connected.get()
        stop()
        await asyncio.to_thread(backend.close)
    assert [record.getMessage()[:36] for record in caplog.records] == ['PostgreSQL sends no notifications, s']


async def test_backend_hears_of_queued_tasks_after_reopening(open_backend: Open) -> None:
    here, there = open_backend(), open_backend()
    ready: asyncio.Queue[str | None] = asyncio.Queue()
    for life in range(2):
        stop = here.listen(ready.put_nowait, ignore)
        here.set_idle('holder', idle=True)
        for n in range(3):
            async with asyncio.timeout(WAIT_LIMIT):
                await submit(there, message(new=f't{life}{n}'))
                assert await ready.get() is None
                await claim_and_finish(there, f't{life}{n}')
            while not ready.empty():
                ready.get_nowait()
        stop()
        await asyncio.to_thread(here.close)


async def test_new_listening_connection_reads_missed_events(
    open_backend: Open, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, 'POLL', 0.5)
    settled, looks, loop = asyncio.Event(), count(1), asyncio.get_running_loop()
    async with proxied(postgres_url) as proxy, asyncio.timeout(WAIT_LIMIT):
        here, there = open_backend(listen_dsn=proxy.url), open_backend()
        tell = here.process.peers.tell

        def last(noticed: Noticed) -> bool:
            if next(looks) == 3:  # a regular look: the rows of the process are written
                monkeypatch.setattr(listener_module, 'POLL', WAIT_LIMIT)
                loop.call_soon_threadsafe(settled.set)
            return tell(noticed)

        monkeypatch.setattr(here.process.peers, 'tell', last)
        await submit(there, message(new='t'))
        claimed = await claim_task(there, 't')
        reader = here.events.subscribe('t', ignore)
        reader.start(0)
        assert [event.n for event in await reader.next()] == [1]
        await settled.wait()
        while not proxy.connected.empty():
            proxy.connected.get_nowait()
        waiting = asyncio.ensure_future(reader.next())
        proxy.admits.clear()
        proxy.cut()
        await proxy.connected.get()
        await there.queue.emit(claimed, [artifact_chunk(2, 'a')])
        proxy.admits.set()
        assert [event.n for event in await waiting] == [2]
        reader.close()
        await asyncio.to_thread(here.close)


async def test_listener_ends_although_woken_during_cancel() -> None:
    settings = Postgres('postgresql://nobody@localhost:1/away', listen=False)

    async def read(task_id: str, after: int, limit: int) -> list[TaskEvent]:
        raise AssertionError('nobody reads')

    event_bus = EventBus(read, READER_LAG)
    listener = listener_module.Listener(settings, 'agent', event_bus=event_bus, peers=Peers(event_bus, SYSTEM.now))
    connections = pool.PostgresConnections(settings, DatabaseClock())
    running = asyncio.ensure_future(listener.run(pool.Session(connections, listener.run)))
    for _ in range(5):
        await asyncio.sleep(0)
        listener.wake()
    for _ in range(5):
        await asyncio.sleep(0)
    listener.wake()
    running.cancel()
    async with asyncio.timeout(WAIT_LIMIT):
        await asyncio.wait([running])
    assert running.cancelled()
    connections.loop.call_soon_threadsafe(connections.ending.set)
    await asyncio.to_thread(connections.thread.join)


@pytest.mark.parametrize('sends', [False, True])
async def test_process_of_task_learns_at_once_of_remote_subscriber(
    open_backend: Open, monkeypatch: pytest.MonkeyPatch, sends: bool
) -> None:
    monkeypatch.setattr(listener_module, 'POLL', 10 * WAIT_LIMIT)
    here, there = open_backend(), open_backend()
    stop = here.listen(ignore, ignore)
    await wait_until_notified(here, there)
    await submit(here, message('hi', new='t'), slot=Slot('holder', LEASE))
    assert here.process.peers.private('t')
    reader = there.events.subscribe('t', ignore)
    if sends:
        await submit(there, message('more', to='t'))
    else:
        await there.reader.watch('t', OWNER)
    async with asyncio.timeout(WAIT_LIMIT):
        while not here.events.watched('t'):
            await state_of(here, 't')
    assert not here.process.peers.private('t')
    reader.close()
    stop()
    for backend in (here, there):
        await asyncio.to_thread(backend.close)


async def test_process_looks_for_events_after_message_is_stored(
    open_backend: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look before leaves the task alone."""
    here = open_backend()
    await submit(here, message('hi', new='t'))
    reader = here.events.subscribe('t', ignore)
    storing: list[bool] = []
    monkeypatch.setattr(here.process, 'wake', lambda: storing.append('t' in here.process.peers.storing))
    await submit(here, message('more', to='t'))
    assert storing == [False]
    reader.close()


async def test_process_of_task_learns_at_once_of_waiting_sender(
    open_backend: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, 'POLL', 10 * WAIT_LIMIT)
    here, there = open_backend(), open_backend()
    stop = here.listen(ignore, ignore)
    await wait_until_notified(here, there)
    accepted = await submit(here, message('hi', new='t', message_id='m'), slot=Slot('holder', LEASE))
    assert accepted.claim is not None
    assert (await submit(there, message('hi', new='u', message_id='m'))).replayed
    waiting = asyncio.ensure_future(there.events.wait('t', 0))
    async with asyncio.timeout(WAIT_LIMIT):
        while here.process.peers.private('t'):
            await state_of(here, 't')
        assert not here.events.watched('t')  # who waits for the end needs no other event
        await here.queue.finish(accepted.claim, finish_of(accepted.claim))
        await waiting
    stop()
    for backend in (here, there):
        await asyncio.to_thread(backend.close)


async def wait_until_notified(here: PostgresBackend, there: PostgresBackend) -> None:
    """Wait until one backend hears the other one."""
    await submit(here, message(new='before'))
    reader = here.events.subscribe('before', ignore)
    reader.start(0)
    while not await claim_all(there):
        pass
    async with asyncio.timeout(WAIT_LIMIT):
        assert await reader.next()
    reader.close()
