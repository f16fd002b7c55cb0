"""What a process knows of other processes on its database, and what it tells them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from pydantic_ai_a2a.server.store.event_bus import EventBus
from pydantic_ai_a2a.server.store.ports import Claim, Slot
from pydantic_ai_a2a.server.store.sql.database import WorkerCallbacks
from pydantic_ai_a2a.server.store.sql.peers import WATCH, Kept, Noticed, Peers, keep, read_by
from pydantic_ai_a2a.server.store.sql.submitting import started
from pydantic_ai_a2a.server.store.sqlite.execution import perform
from pydantic_ai_a2a.types import TaskEvent

from ....bounds import LIMIT
from ....suites.values import LEASE, message
from .conftest import empty_database

NOW = 1_000
NO_NEWS = Noticed({}, {}, [], ready=False)


async def read(task_id: str, after: int, limit: int) -> list[TaskEvent]:
    raise AssertionError('nobody reads')


class ThisProcess:
    """A process with a worker, and a clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOW
        self.event_bus = EventBus(read, 1000)
        self.peers = Peers(self.event_bus, lambda: self.now)
        self.peers.listeners.append(WorkerCallbacks(asyncio.get_running_loop(), print, print))

    def keep(self) -> tuple[int, dict[str, int], list[str]] | None:
        """Keep the rows; what is written: what is heard, the new rows, the rows that go."""
        kept = self.peers.to_keep(listens=True)
        if kept is None:
            return None
        self.peers.kept(kept)
        return kept.hears, kept.added, sorted(kept.dropped)


def claimed(task_id: str, wanted: int | None = None) -> Claim:
    claim = started('agent', message(new=task_id), Slot('holder', LEASE), None).value[0].claim
    assert claim is not None
    return replace(claim, wanted=wanted)


async def test_only_process_with_worker_remembers_remote_subscribers() -> None:
    here = ThisProcess()
    worker = here.peers.listeners.pop()
    here.peers.is_read('before', 1)
    here.peers.listeners.append(worker)
    here.peers.is_read('t', 1)
    here.peers.is_read('awaited', 0)
    assert [here.peers.watched(task_id) for task_id in ('before', 't', 'awaited')] == [False, True, False]
    here.now += WATCH
    assert not here.peers.watched('t')
    here.peers.tell(NO_NEWS)
    assert not here.peers.watched('t')


async def test_live_text_subscriber_is_kept_beside_later_subscribers() -> None:
    here = ThisProcess()
    for wants in (2, 1, 0):
        here.peers.is_read('t', wants)
        assert here.peers.watched('t', live=True)
    here.now += WATCH  # the readers have gone
    here.peers.is_read('t', 1)
    assert (here.peers.watched('t'), here.peers.watched('t', live=True)) == (True, False)


async def test_remote_subscriber_is_kept_for_watch_time() -> None:
    here = ThisProcess()
    here.peers.is_read('t', 1)
    here.peers.tell(NO_NEWS)
    assert here.peers.watched('t')
    here.now += WATCH
    here.peers.tell(NO_NEWS)
    assert not here.peers.watched('t')


async def test_each_look_without_the_task_wakes_its_subscriber(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task was stored and erased between both looks."""
    found: list[list[TaskEvent] | None] = [[], None]

    async def read_next(task_id: str, after: int, limit: int) -> list[TaskEvent] | None:
        return found.pop(0)

    here = ThisProcess()
    monkeypatch.setattr(here.event_bus, 'read', read_next)
    reader = here.event_bus.subscribe('t', print)
    here.peers.tell(NO_NEWS._replace(newest={'t': None}))
    reader.start(0)
    waiting = asyncio.ensure_future(reader.next())
    await asyncio.sleep(0)
    here.peers.tell(NO_NEWS._replace(newest={'t': None}))
    async with asyncio.timeout(LIMIT):
        assert (await waiting, reader.dropped) == ((), True)


async def test_task_events_are_private_until_another_process_asks() -> None:
    here = ThisProcess()
    here.peers.own(['read', 'canceled', 'over', 'private'])
    here.peers.begin([claimed('read before', wanted=0)])
    here.peers.begin([claimed('claimed')])
    here.peers.is_read('read', 0)
    here.peers.cancel('canceled')
    here.peers.leave(['over'])
    tasks = ('read', 'canceled', 'over', 'private', 'read before', 'claimed', 'unknown')
    assert [task_id for task_id in tasks if here.peers.private(task_id)] == ['private', 'claimed']
    here.peers.listeners.clear()  # so it hears of no reader
    assert not here.peers.private('private')


async def test_process_announces_subscriptions_and_liveness() -> None:
    here = ThisProcess()
    assert here.keep() == (2, {}, [])
    reader, waiter = here.event_bus.subscribe('t', print, live=True), here.event_bus.add_waiter('u')
    here.event_bus.subscribe('own', print)
    here.peers.own(['own'])
    assert here.keep() == (2, {'t': 2, 'u': 0}, [])
    here.now += WATCH // 2 - 1
    assert here.keep() is None
    here.now += 2
    assert here.keep() == (2, {}, [])
    reader.close()
    here.event_bus.remove_waiter('u', waiter)
    here.peers.leave(['own'])
    assert here.keep() == (2, {'own': 1}, ['t', 'u'])


async def test_process_announces_idle_worker() -> None:
    here = ThisProcess()
    assert [here.peers.set_idle('w', idle=idle) for idle in (True, True)] == [True, False]
    assert here.keep() == (3, {}, [])
    here.peers.set_idle('w', idle=False)
    kept = here.peers.to_keep(listens=True)
    assert kept is not None
    assert kept == Kept(2, {}, set(), {})
    assert not here.peers.kept(kept)  # nothing that others would have had to know earlier


async def test_subscriber_row_stays_while_task_is_stored() -> None:
    """A look at that moment saw the row before, and would drop the stored one."""
    here = ThisProcess()
    here.event_bus.subscribe('t', print)
    assert here.keep() == (2, {'t': 1}, [])
    here.peers.storing.add('t')
    assert here.keep() is None
    here.peers.has_row('t', (here.peers.id, 1))
    here.peers.storing.clear()
    assert here.keep() is None


async def test_subscriber_row_stays_if_task_is_stored_during_look(monkeypatch: pytest.MonkeyPatch) -> None:
    here = ThisProcess()
    here.event_bus.subscribe('t', print)
    here.keep()
    here.peers.storing.add('t')
    wanted = here.event_bus.wanted

    def end() -> dict[str, int]:
        here.peers.has_row('t', (here.peers.id, 1))
        here.peers.storing.clear()
        return wanted()

    monkeypatch.setattr(here.event_bus, 'wanted', end)
    assert here.keep() is None


async def test_process_entering_while_storing_task_keeps_subscriber_row() -> None:
    """Another process that entered before has forgotten the row: nobody was known to read the task."""
    here, there = ThisProcess(), ThisProcess()
    reader = here.event_bus.subscribe('t', print)
    with empty_database() as connection:
        here.peers.storing.add('t')
        kept = here.peers.to_keep(listens=True)
        assert kept is not None
        statement, rows = read_by('agent', 't', (here.peers.id, 1))
        connection.executemany(statement, rows)
        perform(connection, keep('agent', there.peers.id, Kept(0, {}, {}, {})))
        assert connection.execute('SELECT * FROM reader').fetchall() == []
        perform(connection, keep('agent', here.peers.id, kept))
        here.peers.kept(kept)
        here.peers.has_row('t', (here.peers.id, 1))
        here.peers.storing.clear()
        assert here.keep() is None
        assert connection.execute('SELECT task_id, process FROM reader').fetchall() == [('t', here.peers.id)]
    reader.close()


async def test_subscriber_row_written_with_task_is_not_repeated() -> None:
    here = ThisProcess()
    here.keep()
    here.event_bus.subscribe('t', print)
    reader = here.peers.reader('t')
    assert reader is not None
    assert reader == (here.peers.id, 1)
    here.peers.has_row('t', reader)
    assert here.keep() is None
    here.peers.begin([claimed('t', wanted=1)])
    assert here.peers.private('t')
    assert here.peers.reader('t') is None
