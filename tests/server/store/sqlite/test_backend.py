"""One file and several backends, as several processes have them: what the suite of durable backends does not ask."""

from __future__ import annotations

import asyncio
import gc
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a.clock import SYSTEM, Clock
from pydantic_ai_a2a.errors import LeaseLost, OverloadedError, StoreUnavailable
from pydantic_ai_a2a.server.store.ports import Accepted, Checkpoint, Slot
from pydantic_ai_a2a.server.store.sql import filing, task_queue
from pydantic_ai_a2a.server.store.sql.transaction import Transaction
from pydantic_ai_a2a.server.store.sqlite import backend as sqlite_backend
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.driver_errors import translated_error
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile
from pydantic_ai_a2a.server.store.thread_future import ThreadFuture

from ....app_client import LIMIT
from ....clocks import HOUR, SetClock
from ....suites.values import (
    LEASE,
    OWNER,
    READER_LAG,
    START,
    claim_all,
    claim_and_finish,
    claim_task,
    finish_of,
    ignore,
    message,
    model_turn,
    state_of,
    submit,
)

Open = Callable[..., SqliteFileBackend]


@pytest.fixture
def open_backend(tmp_path: Path) -> Iterator[Open]:
    """Opens the file once more, as another process would."""
    opened: list[SqliteFileBackend] = []

    def make(clock: Clock = SYSTEM) -> SqliteFileBackend:
        file = SqliteFile(path=tmp_path / 'agent.db')
        opened.append(SqliteFileBackend(file, 'agent', reader_lag=READER_LAG, clock=clock))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


async def test_file_is_opened_on_first_use(open_backend: Open, tmp_path: Path) -> None:
    before = {*threading.enumerate()}
    backend = open_backend()
    assert (list(tmp_path.iterdir()), {*threading.enumerate()} - before) == ([], set())
    await submit(backend, message(new='t'))
    assert (tmp_path / 'agent.db').exists()


async def test_unreferenced_backend_closes_file(tmp_path: Path) -> None:
    before = {*threading.enumerate()}
    backend = SqliteFileBackend(SqliteFile(path=tmp_path / 'agent.db'), 'agent', reader_lag=READER_LAG)
    await submit(backend, message(new='t'))
    assert await state_of(backend, 't') == 'submitted'
    threads = {*threading.enumerate()} - before
    del backend
    gc.collect()
    assert [thread.is_alive() for thread in threads] == [False, False]
    assert [path.name for path in tmp_path.iterdir()] == ['agent.db']  # the last to close it tidies up


async def test_reopened_backend_misses_no_queued_task(open_backend: Open) -> None:
    here, there = open_backend(), open_backend()
    ready: asyncio.Queue[str | None] = asyncio.Queue()
    stop = here.listen(ready.put_nowait, ignore)
    here.close()
    await submit(there, message(new='u'))
    here.events.subscribe('u', ignore).close()
    async with asyncio.timeout(LIMIT):
        assert await ready.get() is None
    stop()


class LogQueue(logging.Handler):
    """Tells of what is logged, as soon as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()
        self.records: asyncio.Queue[str] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.loop.call_soon_threadsafe(self.records.put_nowait, record.getMessage())

    def __enter__(self) -> LogQueue:
        logging.getLogger('pydantic_ai_a2a').addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger('pydantic_ai_a2a').removeHandler(self)


async def test_closed_backend_opens_its_file_again(open_backend: Open) -> None:
    """SQLite deletes the WAL with the last connection."""
    backend = open_backend()
    await submit(backend, message(new='t'))
    backend.close()
    assert await state_of(backend, 't') == 'submitted'


@pytest.mark.parametrize(
    'code', [sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_BUSY_SNAPSHOT, sqlite3.SQLITE_READONLY_DBMOVED]
)
def test_extended_result_code_means_unavailable_store(code: int) -> None:
    error = sqlite3.OperationalError('no')
    error.sqlite_errorcode = code
    assert isinstance(translated_error(error), StoreUnavailable)


async def test_failed_poll_is_logged_and_retried(open_backend: Open, tmp_path: Path) -> None:
    here = open_backend()
    ready: asyncio.Queue[str | None] = asyncio.Queue()
    await submit(here, message(new='t'))
    other = sqlite3.connect(tmp_path / 'agent.db', isolation_level=None)
    other.execute('ALTER TABLE event RENAME TO elsewhere')
    with LogQueue() as heard:
        stop = here.listen(ready.put_nowait, ignore)
        reader = here.events.subscribe('t', ignore)
        reader.start(0)
        async with asyncio.timeout(LIMIT):
            said = await heard.records.get()
            assert said == 'Changes of other processes could not be read; the next try follows in a moment.'
            assert ready.empty()
            other.execute('ALTER TABLE elsewhere RENAME TO event')
            other.close()
            assert await ready.get() is None
    reader.close()
    stop()


@pytest.mark.parametrize('hours', [-1, 1], ids=['behind', 'ahead'])
async def test_remote_subscriber_is_known_despite_wrong_wall_clock(open_backend: Open, hours: int) -> None:
    clock, wrong = SetClock(), SetClock()
    wrong.wall = hours * HOUR
    here, there = open_backend(clock), open_backend(wrong)
    await submit(here, message(new='t'))
    stop = here.listen(ignore, ignore)
    reader = there.events.subscribe('t', ignore)
    async with asyncio.timeout(LIMIT):
        while not here.events.watched('t'):
            await here.queued()
    reader.close()
    there.close()
    with clock.later():
        assert not here.events.watched('t')
    stop()


async def test_failed_subscriber_write_is_logged_and_retried(
    open_backend: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_backend, 'LATER', 0.1)
    here, there = open_backend(), open_backend()
    await submit(here, message(new='t'))
    other = sqlite3.connect(tmp_path / 'agent.db', isolation_level=None)
    other.execute("CREATE TRIGGER refuse BEFORE INSERT ON reader BEGIN SELECT RAISE(ABORT, 'full'); END")
    stop = there.listen(ignore, ignore)
    with LogQueue() as heard:
        reader = here.events.subscribe('t', ignore)
        async with asyncio.timeout(LIMIT):
            assert await heard.records.get() == 'A write in the background failed.'
            other.execute('DROP TRIGGER refuse')
            while not there.events.watched('t'):
                await there.queued()
    other.close()
    reader.close()
    stop()


def test_app_of_ended_event_loop_releases_namespace(open_backend: Open) -> None:
    first = open_backend()

    async def listen() -> None:
        first.listen(ignore, ignore)
        await submit(first, message(new='t'))

    asyncio.run(listen())
    second = open_backend()

    async def go_on() -> None:
        second.listen(ignore, ignore)()
        await claim_and_finish(second, 't')
        await submit(first, message(new='u'))  # its poll calls the ended loop, and nobody is hurt

    asyncio.run(go_on())


async def test_claim_of_canceled_caller_is_released(open_backend: Open) -> None:
    backend = open_backend()
    await submit(backend, message(new='t'))
    claiming = asyncio.ensure_future(backend.queue.claim(Slot('gone', LEASE), at=START, limit=1))
    await asyncio.sleep(0)
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    async with asyncio.timeout(LIMIT):
        while not (claims := await backend.queue.claim(Slot('here', LEASE), at=START, limit=1)):
            pass
    assert [(each.header.id, each.attempt) for each in claims] == [('t', 1)]


@pytest.mark.parametrize('slot', [Slot('gone', LEASE), None])
async def test_task_of_canceled_sender_is_released(open_backend: Open, slot: Slot | None) -> None:
    backend = open_backend()
    await submit(backend, message(new='before'))  # the first message counts the queue before it is stored
    await claim_and_finish(backend, 'before', at=START)
    sending = asyncio.ensure_future(submit(backend, message(new='t'), slot=slot))
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    async with asyncio.timeout(LIMIT):
        while not (claims := await backend.queue.claim(Slot('here', LEASE), at=START, limit=1)):
            pass
    assert [(claimed.header.id, claimed.attempt) for claimed in claims] == [('t', 1)]


@pytest.mark.parametrize(('error', 'undone'), [(None, ['done']), (LeaseLost(), [])])
async def test_result_of_canceled_wait_is_undone(error: Exception | None, undone: list[str]) -> None:
    taken_back: list[str] = []
    answer = ThreadFuture(taken_back.append)
    waiting = asyncio.ensure_future(answer.wait())
    await asyncio.sleep(0)
    answer('done', error)
    await asyncio.sleep(0)  # it has come, and who waits for it has not been told yet
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert taken_back == undone


def test_claim_for_ended_event_loop_is_released(open_backend: Open, tmp_path: Path) -> None:
    backend = open_backend()

    async def leave() -> sqlite3.Connection:
        await submit(backend, message(new='t'))
        other = sqlite3.connect(tmp_path / 'agent.db', isolation_level=None)
        other.execute('BEGIN IMMEDIATE')  # so that the claim takes longer than the loop
        claiming = asyncio.ensure_future(backend.queue.claim(Slot('gone', LEASE), at=START, limit=1))
        await asyncio.sleep(0)
        claiming.cancel()
        return other

    async def come_back() -> list[int]:
        async with asyncio.timeout(LIMIT):
            while not (claims := await backend.queue.claim(Slot('here', LEASE), at=START, limit=1)):
                pass
        return [each.attempt for each in claims]

    other = asyncio.run(leave())
    other.execute('COMMIT')
    other.close()
    assert asyncio.run(come_back()) == [1]


async def test_history_up_to_unknown_entry_raises_lookup_error(open_backend: Open) -> None:
    with pytest.raises(LookupError):
        await open_backend().conversations(OWNER).read_since('unknown', None)


async def test_read_does_not_wait_for_long_list(open_backend: Open) -> None:
    backend, reading, read_on = open_backend(), threading.Event(), threading.Event()

    def long_list() -> Transaction[None]:
        yield 'SELECT 1', ()
        reading.set()
        read_on.wait(LIMIT)

    await submit(backend, message(new='t'))
    listing = asyncio.ensure_future(backend.read(long_list))
    await asyncio.to_thread(reading.wait, LIMIT)
    async with asyncio.timeout(LIMIT / 2):
        for _ in range(3):
            assert await state_of(backend, 't') == 'submitted'
    read_on.set()
    await listing


async def test_task_is_no_longer_private_after_failed_finish(
    open_backend: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def write(*_: object) -> None:
        raise StoreUnavailable('locked')

    backend = open_backend()
    stop = backend.listen(ignore, ignore)
    await submit(backend, message(new='t'))
    claimed = await claim_task(backend, 't')
    assert backend.process.peers.private('t')
    monkeypatch.setattr(filing, 'EVERY', 1)  # ended tasks are filed before the end is written
    monkeypatch.setattr(backend, 'write', write)
    with pytest.raises(StoreUnavailable):
        await backend.queue.finish(claimed, finish_of(claimed))
    assert not backend.process.peers.private('t')
    stop()


async def test_queue_limit_counts_tasks_of_another_process_after_delay(
    open_backend: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SetClock()
    monkeypatch.setattr(task_queue, 'time', SimpleNamespace(monotonic=lambda: clock.steady() / 1000))
    here, there = open_backend(clock), open_backend(clock)

    async def send(backend: SqliteFileBackend, name: str) -> Accepted:
        return await submit(backend, message(new=name), queue_limit=2)

    await send(here, 'a')
    await send(here, 'b')
    with pytest.raises(OverloadedError):
        await send(here, 'refused')
    await send(there, 'c')  # the count of the first process, before its first task
    with clock.later(9_000):
        await send(there, 'd')
        with pytest.raises(OverloadedError):
            await send(there, 'refused')
        assert [task.header.id for task in await claim_all(here, limit=3)] == ['a', 'b', 'c']
        with pytest.raises(OverloadedError):
            await send(there, 'refused')
        with clock.later(1_100):
            await send(there, 'e')
            with pytest.raises(OverloadedError):
                await send(there, 'refused')


async def test_slow_queue_count_is_not_treated_as_fresh(open_backend: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, clock = open_backend(), iter([0.0, 0.0, 1.5])  # the count of the first task takes 1.5 seconds
    monkeypatch.setattr(task_queue, 'time', SimpleNamespace(monotonic=lambda: next(clock, 1.6)))
    for name in ('a', 'b'):
        await submit(backend, message(new=name), queue_limit=2)
    with pytest.raises(OverloadedError):
        await submit(backend, message(new='refused'), queue_limit=2)


async def test_concurrent_messages_do_not_exceed_queue_limit(open_backend: Open) -> None:
    backend = open_backend()
    await submit(backend, message(new='first'), slot=Slot('holder', LEASE))
    sent = [submit(backend, message(new=f't{n}'), queue_limit=3) for n in range(9)]
    results = await asyncio.gather(*sent, return_exceptions=True)
    assert [type(result) for result in results] == [Accepted] * 3 + [OverloadedError] * 6


def checkpoint_rows() -> Transaction[list[Any]]:
    return (yield 'SELECT n FROM checkpoint', ())


async def test_forced_cancel_deletes_checkpoints(open_backend: Open) -> None:
    backend = open_backend()
    await submit(backend, message(new='t'))
    claimed = await claim_task(backend, 't')
    checkpoint = Checkpoint(run='t.1', messages=model_turn('hi', 'step'), usage=RunUsage())
    await backend.queue.emit(claimed, [], checkpoint=checkpoint)
    assert await backend.read(checkpoint_rows) == [(0,), (1,)]
    await backend.queue.cancel('t', OWNER, at=START, force=True)
    assert await backend.read(checkpoint_rows) == []
