"""One file and several backends, as several processes have them: what each hears of what the others write."""

from __future__ import annotations

import asyncio
import gc
import logging
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pydantic_ai_a2a.backends.sqlite_file import SqliteFile, SqliteFileBackend
from pydantic_ai_a2a.backends.sqlite_process import Answer
from pydantic_ai_a2a.errors import BackendUnusable, LeaseLost
from pydantic_ai_a2a.ports import Subscription

from ..client import LIMIT
from ..ports.values import AT, LEASE, OWNER, READER_LAG, chunk, claim_one, ending, message, run, state_of, submit

NOW = 4_000_000_000_000
"""Later than any test runs (ms)."""

Open = Callable[[], SqliteFileBackend]


def nothing(_: object = None) -> None:
    """What one does who only listens to be one who listens."""


@pytest.fixture
def another(tmp_path: Path) -> Iterator[Open]:
    """Opens the file once more, as another process would."""
    opened: list[SqliteFileBackend] = []

    def make() -> SqliteFileBackend:
        opened.append(SqliteFileBackend(SqliteFile(path=tmp_path / 'agent.db'), 'agent', reader_lag=READER_LAG))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


async def up_to(reader: Subscription, n: int) -> list[int]:
    """The numbers of the events up to one."""
    got: list[int] = []
    async with asyncio.timeout(LIMIT):
        while not got or got[-1] < n:
            got += [event.n for event in await reader.next()]
    return got


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


async def test_what_one_process_stores_the_next_one_finds(another: Open) -> None:
    first = another()
    await submit(first, message(new='t'))
    await run(first, 't')
    first.close()
    assert await state_of(another(), 't') == 'completed'


async def test_events_that_another_process_stores_reach_the_readers_here(another: Open) -> None:
    here, there = another(), another()
    await submit(there, message(new='t'))
    claimed = await claim_one(there, 't')
    reader = here.events.subscribe('t', nothing)
    reader.start(0)
    stopped = asyncio.ensure_future(here.events.wait('t', 0))
    assert await up_to(reader, 1) == [1]
    await there.queue.emit(claimed, [chunk(2, 'a')])
    assert await up_to(reader, 2) == [2]
    assert not stopped.done()
    await there.queue.finish(claimed, ending(claimed, after=2))
    assert await up_to(reader, 3) == [3]
    async with asyncio.timeout(LIMIT):
        await stopped
    reader.close()


async def test_a_log_that_two_processes_write_in_turn_is_read_without_gaps(another: Open) -> None:
    here, there = another(), another()
    await submit(here, message(new='t'))
    reader = here.events.subscribe('t', nothing)
    reader.start(0)
    held = await claim_one(here, 't', 'here')
    await here.queue.emit(held, [chunk(2, 'a')])
    lost = await claim_one(there, 't', 'there', at=AT + LEASE + 1)
    await there.queue.emit(lost, [chunk(3, 'b', append=False), chunk(4, 'c')])
    with pytest.raises(LeaseLost):
        await here.queue.emit(held, [chunk(3, 'late')])
    again = await claim_one(here, 't', 'here again', at=AT + 3 * LEASE)
    await here.queue.emit(again, [chunk(5, 'd', append=False)])
    await here.queue.finish(again, ending(again, after=5))
    assert await up_to(reader, 6) == [1, 2, 3, 4, 5, 6]
    reader.close()


async def test_a_process_hears_of_tasks_that_others_leave_to_it(another: Open) -> None:
    here, there = another(), another()
    ready: asyncio.Queue[str | None] = asyncio.Queue()
    stop = here.listen(ready.put_nowait, nothing)
    async with asyncio.timeout(LIMIT):
        await submit(there, message(new='t'))
        assert await ready.get() is None
        claimed = await claim_one(there, 't')
        await there.queue.release(claimed)
        while (await here.queue.claim('here', at=AT, until=AT + LEASE, limit=1)) == []:
            assert await ready.get() is None
    stop()


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


async def test_a_process_hears_that_others_want_its_task_canceled(another: Open) -> None:
    here, there = another(), another()
    asked: asyncio.Queue[str] = asyncio.Queue()
    stop = here.listen(nothing, asked.put_nowait)
    await submit(here, message(new='t'))
    await claim_one(here, 't')
    await there.queue.cancel('t', OWNER, at=AT)
    async with asyncio.timeout(LIMIT):
        assert await asked.get() == 't'
    stop()


async def test_a_process_knows_whose_events_are_read_in_another_one(another: Open) -> None:
    here, there = another(), another()
    looked: asyncio.Queue[object] = asyncio.Queue()
    stop = here.listen(looked.put_nowait, nothing)
    await submit(here, message(new='queued'))  # as long as it waits, there is a hint after each look
    await submit(here, message(new='before', at=NOW))
    from_now_on = there.events.subscribe('before', nothing)
    from_the_start = there.events.subscribe('new', nothing)
    await submit(there, message(new='new', at=NOW))
    async with asyncio.timeout(LIMIT):
        for task_id in ('new', 'before'):
            while not here.events.watched(task_id):
                await looked.get()
    assert not here.events.watched('queued')
    for each in (from_now_on, from_the_start):
        each.close()
    stop()


async def test_who_reads_or_waits_for_a_task_that_another_process_erases_does_not_wait_for_ever(another: Open) -> None:
    here, there = another(), another()
    await submit(there, message(new='t'))
    await run(there, 't', 'input-required')
    reader = here.events.subscribe('t', nothing)
    early = here.events.subscribe('not yet there', nothing)
    reader.start(2)
    waiting = asyncio.ensure_future(reader.next())
    stopped = asyncio.ensure_future(here.events.wait('t', 2))
    await asyncio.sleep(0)
    await there.housekeeping.erase_task('t', OWNER, at=AT)
    async with asyncio.timeout(LIMIT):
        assert await waiting == ()
        await stopped
    assert (reader.dropped, early.dropped) == (True, False)
    for each in (reader, early):
        each.close()


class Heard(logging.Handler):
    """Tells of what is logged, as soon as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()
        self.records: asyncio.Queue[str] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.loop.call_soon_threadsafe(self.records.put_nowait, record.getMessage())


async def test_a_look_that_fails_is_logged_and_tried_again(another: Open, tmp_path: Path) -> None:
    here, heard = another(), Heard()
    ready: asyncio.Queue[str | None] = asyncio.Queue()
    await submit(here, message(new='t'))
    other = sqlite3.connect(tmp_path / 'agent.db', isolation_level=None)
    other.execute('ALTER TABLE event RENAME TO elsewhere')
    logging.getLogger('pydantic_ai_a2a').addHandler(heard)
    stop = here.listen(ready.put_nowait, nothing)
    reader = here.events.subscribe('t', nothing)
    async with asyncio.timeout(LIMIT):
        said = await heard.records.get()
        assert said == 'What other processes have written cannot be read; it is tried again in a moment.'
        assert ready.empty()
        other.execute('ALTER TABLE elsewhere RENAME TO event')
        other.close()
        assert await ready.get() is None
    logging.getLogger('pydantic_ai_a2a').removeHandler(heard)
    reader.close()
    stop()


async def test_a_write_for_which_nobody_waits_is_logged_if_it_fails(another: Open, tmp_path: Path) -> None:
    here, heard = another(), Heard()
    await submit(here, message(new='t'))
    other = sqlite3.connect(tmp_path / 'agent.db', isolation_level=None)
    other.execute("CREATE TRIGGER refuse BEFORE UPDATE OF watched_until ON task BEGIN SELECT RAISE(ABORT, 'full'); END")
    other.close()
    logging.getLogger('pydantic_ai_a2a').addHandler(heard)
    reader = here.events.subscribe('t', nothing)
    async with asyncio.timeout(LIMIT):
        assert await heard.records.get() == 'A write for which nobody waits has failed.'
    logging.getLogger('pydantic_ai_a2a').removeHandler(heard)
    reader.close()


async def test_a_second_app_of_one_process_cannot_have_the_same_tasks(another: Open, tmp_path: Path) -> None:
    first, second = another(), another()
    other = SqliteFileBackend(SqliteFile(path=tmp_path / 'agent.db'), 'other', reader_lag=READER_LAG)
    stop, stop_other = first.listen(nothing, nothing), other.listen(nothing, nothing)
    for refused in (another, lambda: second.listen(nothing, nothing)):
        with pytest.raises(BackendUnusable, match="A running app of this process has the namespace 'agent' of the SQL"):
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
    claiming = asyncio.ensure_future(backend.queue.claim('gone', at=AT, until=NOW, limit=1))
    await asyncio.sleep(0)
    claiming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await claiming
    async with asyncio.timeout(LIMIT):
        while not (claims := await backend.queue.claim('here', at=AT, until=AT + LEASE, limit=1)):
            pass
    assert [(each.header.id, each.attempt) for each in claims] == [('t', 1)]


@pytest.mark.parametrize(('error', 'undone'), [(None, ['done']), (LeaseLost(), [])])
async def test_what_comes_together_with_a_cancellation_is_undone(error: Exception | None, undone: list[str]) -> None:
    taken_back: list[str] = []
    answer = Answer(taken_back.append)
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
        claiming = asyncio.ensure_future(backend.queue.claim('gone', at=AT, until=NOW, limit=1))
        await asyncio.sleep(0)
        claiming.cancel()
        return other

    async def come_back() -> list[int]:
        async with asyncio.timeout(LIMIT):
            while not (claims := await backend.queue.claim('here', at=AT, until=AT + LEASE, limit=1)):
                pass
        return [each.attempt for each in claims]

    other = asyncio.run(leave())
    other.execute('COMMIT')
    other.close()
    assert asyncio.run(come_back()) == [1]


FORK = """
import asyncio, os, sys
from pydantic_ai import Agent
from pydantic_ai_a2a import to_a2a

app = to_a2a(Agent('test'), backend=sys.argv[1])
print(asyncio.run(app.list_tasks()), flush=True)
child = os.fork()
if child:
    print(os.waitpid(child, 0)[1], flush=True)
print(asyncio.run(app.list_tasks()), flush=True)
"""


def test_a_process_that_is_forked_from_one_that_used_the_file_has_connections_of_its_own(tmp_path: Path) -> None:
    forked = subprocess.run(
        [sys.executable, '-c', FORK, f'sqlite:///{tmp_path}/agent.db'], capture_output=True, timeout=60, check=True
    )
    assert forked.stdout.split() == [b'[]', b'[]', b'0', b'[]']
