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
from pydantic_ai_a2a.errors import BackendUnusable, LeaseLost, OverloadedError, StoreUnavailable
from pydantic_ai_a2a.server.store.ports import Accepted, Checkpoint, Slot
from pydantic_ai_a2a.server.store.sql import filing, task_queue
from pydantic_ai_a2a.server.store.sql.transaction import Transaction
from pydantic_ai_a2a.server.store.sqlite import backend as sqlite_backend
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile
from pydantic_ai_a2a.server.store.thread_future import ThreadFuture

from ....app_client import LIMIT
from ....clocks import HOUR, SetClock
from ....suites.values import (
    AT,
    LEASE,
    OWNER,
    READER_LAG,
    claim,
    claim_one,
    ending,
    message,
    nothing,
    run,
    state_of,
    submit,
    turn,
)

Open = Callable[..., SqliteFileBackend]


@pytest.fixture
def another(tmp_path: Path) -> Iterator[Open]:
    """Opens the file once more, as another process would."""
    opened: list[SqliteFileBackend] = []

    def make(clock: Clock = SYSTEM) -> SqliteFileBackend:
        file = SqliteFile(path=tmp_path / 'agent.db')
        opened.append(SqliteFileBackend(file, 'agent', reader_lag=READER_LAG, clock=clock))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


async def test_nothing_is_opened_before_the_first_use(another: Open, tmp_path: Path) -> None:
    before = {*threading.enumerate()}
    backend = another()
    assert (list(tmp_path.iterdir()), {*threading.enumerate()} - before) == ([], set())
    await submit(backend, message(new='t'))
    assert (tmp_path / 'agent.db').exists()


async def test_a_backend_that_nobody_has_any_longer_closes_its_file(tmp_path: Path) -> None:
    before = {*threading.enumerate()}
    backend = SqliteFileBackend(SqliteFile(path=tmp_path / 'agent.db'), 'agent', reader_lag=READER_LAG)
    await submit(backend, message(new='t'))
    assert await state_of(backend, 't') == 'submitted'
    threads = {*threading.enumerate()} - before
    del backend
    gc.collect()
    assert [thread.is_alive() for thread in threads] == [False, False]
    assert [path.name for path in tmp_path.iterdir()] == ['agent.db']  # the last to close it tidies up


async def test_a_backend_that_is_used_again_after_it_was_closed_has_missed_nothing(another: Open) -> None:
    here, there = another(), another()
    ready: asyncio.Queue[str | None] = asyncio.Queue()
    stop = here.listen(ready.put_nowait, nothing)
    here.close()
    await submit(there, message(new='u'))
    here.events.subscribe('u', nothing).close()
    async with asyncio.timeout(LIMIT):
        assert await ready.get() is None
    stop()


class Heard(logging.Handler):
    """Tells of what is logged, as soon as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()
        self.records: asyncio.Queue[str] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.loop.call_soon_threadsafe(self.records.put_nowait, record.getMessage())

    def __enter__(self) -> Heard:
        logging.getLogger('pydantic_ai_a2a').addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger('pydantic_ai_a2a').removeHandler(self)


async def test_a_look_that_fails_is_logged_and_tried_again(another: Open, tmp_path: Path) -> None:
    here = another()
    ready: asyncio.Queue[str | None] = asyncio.Queue()
    await submit(here, message(new='t'))
    other = sqlite3.connect(tmp_path / 'agent.db', isolation_level=None)
    other.execute('ALTER TABLE event RENAME TO elsewhere')
    with Heard() as heard:
        stop = here.listen(ready.put_nowait, nothing)
        reader = here.events.subscribe('t', nothing)
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
async def test_a_reader_elsewhere_is_known_as_long_as_it_reads_whatever_the_wall_clocks_say(
    another: Open, hours: int
) -> None:
    clock, wrong = SetClock(), SetClock()
    wrong.wall = hours * HOUR
    here, there = another(clock), another(wrong)
    await submit(here, message(new='t'))
    stop = here.listen(nothing, nothing)
    reader = there.events.subscribe('t', nothing)
    async with asyncio.timeout(LIMIT):
        while not here.events.watched('t'):
            await here.queued()
    reader.close()
    there.close()
    with clock.later():
        assert not here.events.watched('t')
    stop()


async def test_a_row_that_cannot_be_written_is_logged_and_tried_again_later(
    another: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_backend, 'LATER', 0.1)
    here, there = another(), another()
    await submit(here, message(new='t'))
    other = sqlite3.connect(tmp_path / 'agent.db', isolation_level=None)
    other.execute("CREATE TRIGGER refuse BEFORE INSERT ON reader BEGIN SELECT RAISE(ABORT, 'full'); END")
    stop = there.listen(nothing, nothing)
    with Heard() as heard:
        reader = here.events.subscribe('t', nothing)
        async with asyncio.timeout(LIMIT):
            assert await heard.records.get() == 'A write in the background failed.'
            other.execute('DROP TRIGGER refuse')
            while not there.events.watched('t'):
                await there.queued()
    other.close()
    reader.close()
    stop()


async def test_a_second_app_of_one_process_cannot_have_the_same_tasks(another: Open, tmp_path: Path) -> None:
    first, second = another(), another()
    other = SqliteFileBackend(SqliteFile(path=tmp_path / 'agent.db'), 'other', reader_lag=READER_LAG)
    stop, stop_other = first.listen(nothing, nothing), other.listen(nothing, nothing)
    for refused in (another, lambda: second.listen(nothing, nothing)):
        with pytest.raises(
            BackendUnusable, match="Another running app of this process uses the namespace 'agent' of the"
        ):
            refused()
    stop()
    stop_other()
    second.listen(nothing, nothing)()
    other.close()


def test_an_app_whose_loop_has_ended_no_longer_has_its_tasks(another: Open) -> None:
    first = another()

    async def listen() -> None:
        first.listen(nothing, nothing)
        await submit(first, message(new='t'))

    asyncio.run(listen())
    second = another()

    async def go_on() -> None:
        second.listen(nothing, nothing)()
        await run(second, 't')
        await submit(first, message(new='u'))  # its poll calls the ended loop, and nobody is hurt

    asyncio.run(go_on())


async def test_a_claim_for_somebody_who_has_gone_meanwhile_is_handed_back(another: Open) -> None:
    backend = another()
    await submit(backend, message(new='t'))
    claiming = asyncio.ensure_future(backend.queue.claim(Slot('gone', LEASE), at=AT, limit=1))
    await asyncio.sleep(0)
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    async with asyncio.timeout(LIMIT):
        while not (claims := await backend.queue.claim(Slot('here', LEASE), at=AT, limit=1)):
            pass
    assert [(each.header.id, each.attempt) for each in claims] == [('t', 1)]


@pytest.mark.parametrize('slot', [Slot('gone', LEASE), None])
async def test_a_task_that_was_claimed_with_the_message_of_somebody_who_has_gone_is_handed_back(
    another: Open, slot: Slot | None
) -> None:
    backend = another()
    await submit(backend, message(new='before'))  # the first message counts the queue before it is stored
    await run(backend, 'before', at=AT)
    sending = asyncio.ensure_future(submit(backend, message(new='t'), slot=slot))
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    async with asyncio.timeout(LIMIT):
        while not (claims := await backend.queue.claim(Slot('here', LEASE), at=AT, limit=1)):
            pass
    assert [(claimed.header.id, claimed.attempt) for claimed in claims] == [('t', 1)]


@pytest.mark.parametrize(('error', 'undone'), [(None, ['done']), (LeaseLost(), [])])
async def test_what_comes_together_with_a_cancellation_is_undone(error: Exception | None, undone: list[str]) -> None:
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


def test_a_claim_for_a_loop_that_has_ended_meanwhile_is_handed_back(another: Open, tmp_path: Path) -> None:
    backend = another()

    async def leave() -> sqlite3.Connection:
        await submit(backend, message(new='t'))
        other = sqlite3.connect(tmp_path / 'agent.db', isolation_level=None)
        other.execute('BEGIN IMMEDIATE')  # so that the claim takes longer than the loop
        claiming = asyncio.ensure_future(backend.queue.claim(Slot('gone', LEASE), at=AT, limit=1))
        await asyncio.sleep(0)
        claiming.cancel()
        return other

    async def come_back() -> list[int]:
        async with asyncio.timeout(LIMIT):
            while not (claims := await backend.queue.claim(Slot('here', LEASE), at=AT, limit=1)):
                pass
        return [each.attempt for each in claims]

    other = asyncio.run(leave())
    other.execute('COMMIT')
    other.close()
    assert asyncio.run(come_back()) == [1]


async def test_a_history_up_to_an_unknown_entry_is_an_error(another: Open) -> None:
    with pytest.raises(LookupError):
        await another().conversations(OWNER).read_since('unknown', None)


async def test_who_reads_does_not_wait_for_a_long_list_while_another_reader_is_free(another: Open) -> None:
    backend, reading, read_on = another(), threading.Event(), threading.Event()

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


async def test_another_process_may_take_a_task_from_the_first_failed_write_of_its_end_on(
    another: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def write(*_: object) -> None:
        raise StoreUnavailable('locked')

    backend = another()
    stop = backend.listen(nothing, nothing)
    await submit(backend, message(new='t'))
    claimed = await claim_one(backend, 't')
    assert backend.process.peers.private('t')
    monkeypatch.setattr(filing, 'EVERY', 1)  # ended tasks are filed before the end is written
    monkeypatch.setattr(backend, 'write', write)
    with pytest.raises(StoreUnavailable):
        await backend.queue.finish(claimed, ending(claimed))
    assert not backend.process.peers.private('t')
    stop()


async def test_a_process_counts_what_others_have_queued_after_ten_seconds_and_a_full_queue_after_one(
    another: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SetClock()
    monkeypatch.setattr(task_queue, 'time', SimpleNamespace(monotonic=lambda: clock.steady() / 1000))
    here, there = another(clock), another(clock)

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
        assert [task.header.id for task in await claim(here, limit=3)] == ['a', 'b', 'c']
        with pytest.raises(OverloadedError):
            await send(there, 'refused')
        with clock.later(1_100):
            await send(there, 'e')
            with pytest.raises(OverloadedError):
                await send(there, 'refused')


async def test_messages_at_the_same_time_do_not_pass_the_limit(another: Open) -> None:
    backend = another()
    await submit(backend, message(new='first'), slot=Slot('holder', LEASE))
    sent = [submit(backend, message(new=f't{n}'), queue_limit=3) for n in range(9)]
    results = await asyncio.gather(*sent, return_exceptions=True)
    assert [type(result) for result in results] == [Accepted] * 3 + [OverloadedError] * 6


def checkpoint_rows() -> Transaction[list[Any]]:
    return (yield 'SELECT n FROM checkpoint', ())


async def test_a_forced_cancel_deletes_the_rows_of_the_checkpoints_of_a_task(another: Open) -> None:
    backend = another()
    await submit(backend, message(new='t'))
    claimed = await claim_one(backend, 't')
    checkpoint = Checkpoint(run='t.1', messages=turn('hi', 'step'), usage=RunUsage())
    await backend.queue.emit(claimed, [], checkpoint=checkpoint)
    assert await backend.read(checkpoint_rows) == [(0,), (1,)]
    await backend.queue.cancel('t', OWNER, at=AT, force=True)
    assert await backend.read(checkpoint_rows) == []
