"""How many notifications and statements the processes of a database send each other: only those that somebody needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import asyncpg
import pytest

from pydantic_ai_a2a.server.store.ports import Slot, Subscription
from pydantic_ai_a2a.server.store.postgres import backend as postgres_backend
from pydantic_ai_a2a.server.store.postgres import listener
from pydantic_ai_a2a.server.store.postgres.backend import PostgresBackend
from pydantic_ai_a2a.server.store.postgres.notify_statements import channel
from pydantic_ai_a2a.server.store.sql.database import WorkerCallbacks
from pydantic_ai_a2a.types import TaskState

from ....suites.values import (
    LEASE,
    OWNER,
    START,
    WAIT_LIMIT,
    artifact_chunk,
    claim_all,
    finish_of,
    ignore,
    message,
    state_of,
    submit,
)
from .conftest import Open

SLOT = Slot('holder', LEASE)


class NotificationCounter:
    """Counts the notifications of each process."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record], backends: dict[str, PostgresBackend]) -> None:
        self._connection = connection
        self._names = {channel(backend.process.peers.id): name for name, backend in backends.items()}
        self._payloads: list[tuple[str, str]] = []
        self._end = asyncio.Event()

    def hear(self, _: object, pid: int, name: str, payload: object) -> None:
        """Note a notification."""
        if name == 'end':
            self._end.set()
        else:
            self._payloads.append((self._names[name], str(payload)))

    async def listen(self) -> None:
        """Begin to count."""
        for name in (*self._names, 'end'):
            await self._connection.add_listener(name, self.hear)

    async def since(self) -> list[tuple[str, str]]:
        """Return the notifications since the last call, by receiver."""
        self._end.clear()
        await self._connection.execute('NOTIFY "end"')  # in the order of commits
        async with asyncio.timeout(WAIT_LIMIT):
            await self._end.wait()
        payloads, self._payloads = self._payloads, []
        return payloads


@asynccontextmanager
async def count_notifications(url: str, **backends: PostgresBackend) -> AsyncGenerator[NotificationCounter]:
    """Count notifications while all processes listen."""
    connection = await asyncpg.connect(url)
    counts = NotificationCounter(connection, backends)
    await counts.listen()
    for backend in backends.values():
        await wait_until_registered(url, backend, 1)
    await counts.since()
    yield counts
    await connection.close()


async def wait_for_polls(backend: PostgresBackend, number: int) -> None:
    """Wait for some looks of a backend."""
    looked, tell = asyncio.Semaphore(0), backend.process.peers.tell
    loop = asyncio.get_running_loop()

    def count(noticed: object) -> bool:
        loop.call_soon_threadsafe(looked.release)
        return tell(noticed)  # pyright: ignore[reportArgumentType]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend.process.peers, 'tell', count)
        async with asyncio.timeout(WAIT_LIMIT):
            for _ in range(number):
                await looked.acquire()


def subscribe_all(backend: PostgresBackend, *task_ids: str) -> list[Subscription]:
    readers = [backend.events.subscribe(task_id, ignore, live=True) for task_id in task_ids]
    for reader in readers:
        reader.start(1)
    return readers


async def test_streams_of_own_process_send_no_notifications(
    open_backend: Open, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, 'POLL', 0.05)
    here, there = open_backend(), open_backend()
    stops = [here.listen(ignore, ignore)]
    readers = [*subscribe_all(there, 'nothing'), *subscribe_all(here, 't')]
    async with count_notifications(postgres_url, here=here, there=there) as counts:
        accepted = await submit(here, message(new='t'), slot=SLOT)
        assert accepted.claim is not None
        for n in range(2, 5):
            await wait_for_polls(here, 3)  # as many as in 15 seconds
            await here.queue.emit(accepted.claim, [artifact_chunk(n, 'a')])
        await here.queue.finish(accepted.claim, finish_of(accepted.claim, after=4))
        assert await counts.since() == []
    for end in (*stops, *(reader.close for reader in readers)):
        end()


async def test_event_notifies_only_processes_with_subscribers(open_backend: Open, postgres_url: str) -> None:
    here, reading, other = open_backend(), open_backend(), open_backend()
    stop = here.listen(ignore, ignore)
    accepted = await submit(here, message(new='t'), slot=SLOT)
    assert accepted.claim is not None
    readers = [*subscribe_all(reading, 't'), *subscribe_all(other, 'u')]
    async with count_notifications(postgres_url, here=here, reading=reading, other=other) as counts:
        async with asyncio.timeout(WAIT_LIMIT):
            while not here.events.watched('t'):
                await state_of(here, 't')
        await counts.since()
        await here.queue.emit(accepted.claim, [artifact_chunk(2, 'a')])
        assert await counts.since() == [('reading', '- t:2')]
        await other.queue.cancel('t', OWNER, at=START)
        assert sorted(await counts.since()) == [('here', 'c t:0'), ('reading', 'c t:0')]
    for end in (stop, *(reader.close for reader in readers)):
        end()


async def test_queued_task_notifies_idle_worker_and_end_notifies_waiter(open_backend: Open, postgres_url: str) -> None:
    sender, busy, idle = open_backend(), open_backend(), open_backend()
    for backend in (busy, idle):
        attach_worker(backend)
    idle.set_idle('worker', idle=True)
    ending_of_u = sender.events.expect('u')
    assert ending_of_u is not None
    async with count_notifications(postgres_url, sender=sender, busy=busy, idle=idle) as counts:
        await wait_until_registered(postgres_url, idle, 3)
        await submit(sender, message(new='t'))
        assert await counts.since() == [('idle', 'r')]
        [claimed] = await claim_all(idle)
        await idle.queue.finish(claimed, finish_of(claimed, 'input-required'))
        paused = (await submit(sender, message(new='paused'), slot=SLOT)).claim
        assert paused is not None
        await sender.queue.release(paused, pause=LEASE)
        assert await counts.since() == []
        idle.set_idle('worker', idle=False)
        await wait_until_registered(postgres_url, idle, 2, most=2)
        await submit(sender, message(new='u'))
        [claimed] = await claim_all(busy)
        assert await counts.since() == []
        await busy.queue.finish(claimed, finish_of(claimed))
        assert await counts.since() == [('sender', '- u:2')]
        async with asyncio.timeout(WAIT_LIMIT):
            await ending_of_u.wait(0)
    ending_of_u.close()


async def test_idle_worker_hears_of_later_queued_tasks(open_backend: Open, postgres_url: str) -> None:
    """Queued tasks are told together: at once, and then after a moment."""
    sender, idle = open_backend(), open_backend()
    attach_worker(idle)
    idle.set_idle('worker', idle=True)
    async with count_notifications(postgres_url, idle=idle) as counts:
        await wait_until_registered(postgres_url, idle, 3)
        for burst in range(3):
            await asyncio.gather(*(submit(sender, message(new=f'{burst}.{n}')) for n in range(5)))
            heard = list[tuple[str, str]]()
            async with asyncio.timeout(WAIT_LIMIT):
                while not heard:
                    heard += await counts.since()
            assert {*heard} == {('idle', 'r')}


@pytest.mark.parametrize('state', ['completed', 'failed'])
async def test_task_end_notifies_idle_worker_of_next_task(
    state: TaskState, open_backend: Open, postgres_url: str
) -> None:
    here, sender, idle = open_backend(), open_backend(), open_backend()
    attach_worker(idle)
    idle.set_idle('worker', idle=True)
    stop = here.listen(ignore, ignore)
    async with count_notifications(postgres_url, idle=idle) as counts:
        await wait_until_registered(postgres_url, idle, 3)
        alone = (await submit(here, message(new='alone', context='other'), slot=SLOT)).claim
        first = (await submit(here, message(new='first', context='c'), slot=SLOT)).claim
        assert alone is not None
        assert first is not None
        await submit(sender, message(new='next', context='c'))
        await counts.since()
        await here.queue.finish(alone, finish_of(alone, state))
        assert await counts.since() == []
        await here.queue.finish(first, finish_of(first, state))
        assert await counts.since() == [('idle', 'r')]
    stop()


async def test_end_taking_task_notifies_idle_worker(open_backend: Open, postgres_url: str) -> None:
    here, sender, another, idle = (open_backend() for _ in range(4))
    attach_worker(idle)
    idle.set_idle('worker', idle=True)
    stop = here.listen(ignore, ignore)
    async with count_notifications(postgres_url, idle=idle) as counts:
        await wait_until_registered(postgres_url, idle, 3)
        first = (await submit(here, message(new='first', context='c'), slot=SLOT)).claim
        assert first is not None
        await submit(sender, replace(message(new='taken', context='d'), logged=False))
        await submit(another, message(new='next', context='c'))
        await counts.since()
        following = await here.queue.finish(first, replace(finish_of(first), slot=SLOT))
        assert following is not None
        assert following.header.id == 'taken'
        assert await counts.since() == [('idle', 'r')]
    stop()


async def test_process_with_worker_polls_for_remote_writes(open_backend: Open, postgres_url: str) -> None:
    backend = open_backend()
    assert not backend.process.looks
    stop = backend.listen(ignore, ignore)
    await wait_until_registered(postgres_url, backend, 2)
    assert backend.process.looks
    stop()


async def test_worker_becoming_idle_finds_queued_task(
    open_backend: Open, monkeypatch: pytest.MonkeyPatch, postgres_url: str
) -> None:
    monkeypatch.setattr(listener, 'POLL', 10 * WAIT_LIMIT)
    here, there = open_backend(), open_backend()
    ready = asyncio.Event()
    stop = here.listen(lambda _: ready.set(), ignore)
    await wait_until_registered(postgres_url, here, 2)
    await submit(there, message(new='t'))
    assert not ready.is_set()
    here.set_idle('worker', idle=True)
    async with asyncio.timeout(WAIT_LIMIT):
        await ready.wait()
    stop()


async def test_idle_streams_change_only_process_row(
    open_backend: Open, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, 'POLL', 0.05)
    here, there = open_backend(), open_backend()
    task_ids = [f't{n}' for n in range(20)]
    for task_id in task_ids:
        await submit(here, message(new=task_id, context=task_id))
    readers = subscribe_all(there, *task_ids)
    async with count_notifications(postgres_url, there=there):
        connection = await asyncpg.connect(postgres_url)
        rows = 'SELECT array_agg(task.xmin ORDER BY id), (SELECT array_agg(xmin) FROM a2a.reader) FROM a2a.task'
        async with asyncio.timeout(WAIT_LIMIT):
            while await connection.fetchval('SELECT COUNT(*) FROM a2a.reader') < len(task_ids):
                pass
        before = await connection.fetchrow(rows)
        await wait_for_polls(there, 5)
        assert await connection.fetchrow(rows) == before
        await connection.close()
    for reader in readers:
        reader.close()


@pytest.mark.slow
async def test_process_taken_for_dead_restores_subscriptions(
    open_backend: Open, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, 'POLL', 0.05)
    here, other = open_backend(), open_backend()
    await submit(other, message(new='t'))
    [reader] = subscribe_all(here, 't')
    connection = await asyncpg.connect(postgres_url)
    async with asyncio.timeout(WAIT_LIMIT):
        while not await connection.fetchval('SELECT 1 FROM a2a.reader'):
            pass
        await connection.execute('UPDATE a2a.process SET until = 0')
        [second] = subscribe_all(other, 'u')  # its process forgets the others that are gone
        while await connection.fetchval('SELECT COUNT(*) FROM a2a.process') < 2:
            await connection.execute('UPDATE a2a.process SET until = 0')
            monkeypatch.setattr(here.process.peers, 'kept_until', 0)
        while await connection.fetchval('SELECT COUNT(*) FROM a2a.reader') < 2:
            pass
    await connection.close()
    for each in (reader, second):
        each.close()


def attach_worker(backend: PostgresBackend) -> None:
    """Let a backend have a worker: two backends of one process may not `listen`."""
    backend.process.peers.listeners.append(WorkerCallbacks(asyncio.get_running_loop(), ignore, ignore))
    backend.wake()


async def wait_until_registered(url: str, backend: PostgresBackend, level: int, most: int = 3) -> None:
    """Wait until the others know what a backend hears."""
    connection = await asyncpg.connect(url)
    process = backend.process.peers.id
    async with asyncio.timeout(WAIT_LIMIT):
        found = -1
        while not level <= found <= most:
            with suppress(asyncpg.UndefinedTableError):
                found = await connection.fetchval('SELECT hears FROM a2a.process WHERE id = $1', process) or -1
    await connection.close()


async def test_write_succeeds_if_notification_fails(
    open_backend: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def notify(*_: object, **options: object) -> str:
        return 'SELECT a_column_that_is_not_there'

    monkeypatch.setattr(postgres_backend, 'notify', notify)
    backend = open_backend()
    await submit(backend, message(new='t'))
    [claimed] = await claim_all(backend)
    await backend.queue.finish(claimed, finish_of(claimed, 'failed'))
    assert await state_of(backend, 't') == 'failed'
    lines = [record.getMessage() for record in caplog.records if 'notified' in record.getMessage()]
    assert {*lines} == {'Other processes were not notified of a write; they see it in a moment.'}
