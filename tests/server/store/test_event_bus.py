"""What readers share and waiting callers get, over a store that takes its time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pydantic_ai_a2a.errors import TaskNotFoundError
from pydantic_ai_a2a.server.store.ended_task import ended_task
from pydantic_ai_a2a.server.store.event_bus import BusEnding, EventBus
from pydantic_ai_a2a.server.store.ports import Subscription
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile
from pydantic_ai_a2a.types import StoredTask, TaskEvent, TaskHeader

from ...bounds import LIMIT
from ...suites.endings import RESULT
from ...suites.values import claim_task, finish_of, ignore, message, submit

TASK = StoredTask(
    TaskHeader(
        id='t',
        context_id='c',
        owner='/',
        state='completed',
        status_at=0,
        status_message=None,
        metadata=None,
        last_event=2,
    ),
    [],
    [],
)


def event(n: int) -> TaskEvent:
    return stopping_event(n) if n == 2 else TaskEvent(n, None, b'{}')


def stopping_event(n: int) -> TaskEvent:
    return TaskEvent(n, 'completed', b'{}')


async def never_read(task_id: str, after: int, limit: int) -> list[TaskEvent]:
    raise AssertionError('nobody reads')


async def read_nothing(task_id: str, after: int, limit: int) -> list[TaskEvent]:
    return []


async def find_no_task(task_id: str, after: int, limit: int) -> None:
    return None


@asynccontextmanager
async def subscribed(event_bus: EventBus, after: int = 0) -> AsyncGenerator[Subscription]:
    """A subscriber of the task `t`, for a test that soon ends."""
    reader = event_bus.subscribe('t', ignore)
    reader.start(after)
    async with asyncio.timeout(LIMIT):
        yield reader
    reader.close()


@pytest.mark.parametrize('late', [1, None], ids=['event', 'deletion'])
async def test_subscriber_of_deleted_task_is_dropped_despite_late_hint(
    late: int | None,
) -> None:
    event_bus = EventBus(find_no_task, 1000)
    async with subscribed(event_bus, after=1) as reader:
        event_bus.hint('t', None)
        event_bus.hint('t', late)
        assert await reader.next() == ()
        assert reader.dropped


async def test_event_published_during_store_read_is_not_missed() -> None:
    async def read(task_id: str, after: int, limit: int) -> list[TaskEvent]:
        await asyncio.sleep(0)
        event_bus.publish(task_id, [event(1)])
        return []

    event_bus = EventBus(read, 1000)
    async with subscribed(event_bus) as reader:
        assert await reader.next() == [event(1)]


async def test_stopping_event_published_during_check_is_not_missed() -> None:
    async def stopped(_: int) -> bool:
        event_bus.publish('t', [event(2)])
        await asyncio.sleep(0)
        return False

    event_bus = EventBus(never_read, 1000)
    async with asyncio.timeout(LIMIT):
        await event_bus.wait('t', 0, stopped)


async def test_waiter_is_released_despite_pending_hint() -> None:
    asked = 0

    async def stopped(_: int) -> bool:
        nonlocal asked
        asked += 1
        if asked == 1:
            event_bus.hint('t', 1)
            event_bus.release(lambda _: False)
        return False

    event_bus = EventBus(never_read, 1000)
    async with asyncio.timeout(LIMIT):
        await event_bus.wait('t', 0, stopped)
    assert (asked, event_bus.in_use) == (1, False)


def test_release_ends_own_loop_waits_for_unheld_tasks() -> None:
    async def stopped(_: int) -> bool:
        return False

    async def begin(*task_ids: str) -> list[asyncio.Task[None]]:
        waits = [asyncio.create_task(event_bus.wait(task_id, 0, stopped)) for task_id in task_ids]
        await asyncio.sleep(0)
        return waits

    async def end(*waits: asyncio.Task[None]) -> list[bool]:
        event_bus.release(lambda task_id: task_id == 'held')
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        done = [each.done() for each in waits]
        for task_id in ('t', 'held'):
            event_bus.publish(task_id, [event(2)])
        await asyncio.wait(waits, timeout=LIMIT)
        return done

    event_bus = EventBus(never_read, 1000)
    with asyncio.Runner() as one, asyncio.Runner() as two:
        elsewhere = one.run(begin('t'))
        assert two.run(end(*two.run(begin('t', 'held')))) == [True, False]
        assert not elsewhere[0].done()
        one.run(asyncio.wait_for(elsewhere[0], LIMIT))


@pytest.mark.parametrize('during_read', [False, True])
async def test_subscriber_gets_events_published_before_erasure(during_read: bool) -> None:
    def publish_and_erase() -> None:
        event_bus.publish('t', [event(1)])
        event_bus.hint('t', None)

    async def read(task_id: str, after: int, limit: int) -> None:
        if after == 0 and during_read:
            publish_and_erase()

    event_bus = EventBus(read, 1000)
    async with subscribed(event_bus) as reader:
        if not during_read:
            publish_and_erase()
        assert (await reader.next(), reader.dropped) == ([event(1)], False)
        assert (await reader.next(), reader.dropped) == ((), True)


async def test_subscriber_is_not_dropped_for_events_published_during_read() -> None:
    in_store: list[TaskEvent] = []

    async def read(task_id: str, after: int, limit: int) -> list[TaskEvent]:
        found = in_store.copy()
        if not found:
            in_store.extend([TaskEvent(1, None, b'long'), TaskEvent(2, None, b'long')])
            event_bus.publish('t', in_store)
        return found

    event_bus = EventBus(read, 1)  # so little that the tail keeps only the last
    async with subscribed(event_bus) as reader:
        assert [event.n for event in await reader.next()] == [1, 2]
        assert not reader.dropped


async def test_reader_of_long_stream_is_not_dropped() -> None:
    event_bus = EventBus(never_read, 10)
    async with subscribed(event_bus) as reader:
        for n in range(1, 10):
            event_bus.publish('t', [TaskEvent(n, None, b'{1234}')])
            assert [event.n for event in await reader.next()] == [n]
        assert not reader.dropped


async def test_subscriber_is_dropped_if_next_event_was_swept() -> None:
    async def read(task_id: str, after: int, limit: int) -> list[TaskEvent]:
        return [event(3)]

    event_bus = EventBus(read, 1000)
    async with subscribed(event_bus, after=1) as reader:
        assert (await reader.next(), reader.dropped) == ((), True)


async def test_nudge_ends_current_wait_only() -> None:
    event_bus = EventBus(read_nothing, 1000)
    async with subscribed(event_bus) as reader:
        waiting = asyncio.ensure_future(reader.next())
        await asyncio.sleep(0)
        reader.nudge()
        assert await waiting == ()
        reader.nudge()
        waiting = asyncio.ensure_future(reader.next())
        await asyncio.sleep(0)
        event_bus.publish('t', [event(1)])
        assert await waiting == [event(1)]


async def test_hint_during_store_read_causes_second_read() -> None:
    reads: list[int] = []

    async def read(task_id: str, after: int, limit: int) -> list[TaskEvent]:
        reads.append(after)
        if len(reads) > 1:
            return [event(1)]
        event_bus.hint(task_id, 1)
        return []

    event_bus = EventBus(read, 1000)
    async with subscribed(event_bus) as reader:
        assert await reader.next() == [event(1)]
        assert reads == [0, 0]


async def test_wanted_lists_needs_of_subscribers_and_waiters() -> None:
    event_bus = EventBus(read_nothing, 1000)
    for task_id in ('events', 'live', 'both'):
        event_bus.subscribe(task_id, ignore, live=task_id == 'live')
    event_bus.add_waiter('end')
    event_bus.add_waiter('both')
    assert event_bus.wanted() == {'events': 1, 'live': 2, 'both': 1, 'end': 0}
    assert [event_bus.wants(task_id) for task_id in ('events', 'live', 'both', 'end', 'nothing')] == [1, 2, 1, 0, None]


@pytest.mark.parametrize('started', [False, True], ids=['before start', 'after start'])
async def test_hint_from_before_task_was_stored_drops_no_subscriber(started: bool) -> None:
    stored: list[TaskEvent] = []

    async def read(task_id: str, after: int, limit: int) -> list[TaskEvent]:
        return stored[after:]

    event_bus = EventBus(read, 1000)
    reader = event_bus.subscribe('t', ignore)
    if started:
        reader.start(0)
    event_bus.hint('t', None)
    reader.start(0)
    async with asyncio.timeout(LIMIT):
        waiting = asyncio.ensure_future(reader.next())
        await asyncio.sleep(0)
        stored.append(event(1))
        event_bus.hint('t', 1)
        assert await waiting == stored
    assert not reader.dropped
    reader.close()


async def test_gap_published_after_store_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    published = [TaskEvent(n, None, b'{}') for n in range(1, 4)]
    stored: list[TaskEvent] = []
    reads = 0

    class ContestedLock:
        """Another thread publishes first, once the reader has read the store."""

        def __enter__(self) -> None:
            if reads and not stored:
                stored.extend(published)
                event_bus.publish('t', published[2:])

        def __exit__(self, *_: object) -> None:
            pass

    async def read(task_id: str, after: int, limit: int) -> list[TaskEvent]:
        nonlocal reads
        reads += 1
        return stored[after:]

    event_bus = EventBus(read, 1000)
    monkeypatch.setattr(event_bus, 'lock', ContestedLock())
    async with subscribed(event_bus) as reader:
        assert (await reader.next(), reader.dropped) == (published, False)


async def test_events_published_out_of_order_are_read_in_order() -> None:
    stored = [TaskEvent(n, None, b'{}') for n in range(1, 4)]

    async def read(task_id: str, after: int, limit: int) -> list[TaskEvent]:
        return stored[after:]

    event_bus = EventBus(read, 1000)
    async with subscribed(event_bus) as reader:
        for told in (stored[1], stored[0], stored[2]):
            event_bus.publish('t', [told])
        assert await reader.next() == stored


async def test_gap_in_published_events_is_read_from_store() -> None:
    stored = [TaskEvent(n, None, b'{}') for n in range(1, 4)]

    async def read(task_id: str, after: int, limit: int) -> list[TaskEvent]:
        return stored[after:]

    event_bus = EventBus(read, 1000)
    async with subscribed(event_bus) as reader:
        event_bus.publish('t', stored[:1])
        assert await reader.next() == stored[:1]
        event_bus.publish('t', stored[2:])
        assert await reader.next() == stored[1:]


async def test_subscriber_takes_many_events_in_batches() -> None:
    published = [TaskEvent(n, None, b'{}') for n in range(1, 301)]
    event_bus = EventBus(never_read, 1000)
    async with subscribed(event_bus) as reader:
        event_bus.publish('t', published)
        first, second = await reader.next(), await reader.next()
        assert len(first) < len(published)
        assert [*first, *second] == published


async def test_late_subscriber_gets_hinted_events_of_another_process() -> None:
    stored = [event(1), event(2)]

    async def read(task_id: str, after: int, limit: int) -> list[TaskEvent]:
        return stored[after:]

    event_bus = EventBus(read, 1000)
    earlier = event_bus.subscribe('t', ignore)
    event_bus.publish('t', stored[:1])
    event_bus.hint('t', 2)
    later = event_bus.subscribe('t', ignore)
    for reader in (earlier, later):
        reader.start(1)
        async with asyncio.timeout(LIMIT):
            assert await reader.next() == stored[1:]
        reader.close()


async def test_waiter_registered_before_task_checks_only_after_hint() -> None:
    asked: list[StoredTask | None] = []

    async def load(_: int) -> StoredTask | None:
        asked.append(TASK if asked else None)
        return asked[-1]

    event_bus = EventBus(never_read, 1000)
    ending = BusEnding(event_bus, 't', load)
    assert event_bus.wanted() == {'t': 0}
    waiting = asyncio.ensure_future(ending.wait(0))
    async with asyncio.timeout(LIMIT):
        for _ in range(2):
            event_bus.hint('t', 1)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert await waiting is TASK
    ending.close()
    assert (asked, event_bus.in_use) == ([None, TASK], False)


async def test_stop_published_during_read_ends_wait() -> None:
    event_bus = EventBus(never_read, 1000)

    async def load(_: int) -> None:  # the store was read before the stop
        event_bus.publish('t', [stopping_event(2)])

    ending = BusEnding(event_bus, 't', load)
    event_bus.hint('t', 1)
    waiting = asyncio.ensure_future(ending.wait(1))
    for _ in range(3):
        await asyncio.sleep(0)
    assert waiting.done()
    ending.close()


async def test_stop_before_message_does_not_end_wait_for_answer() -> None:
    asked: list[int] = []

    async def load(after: int) -> None:
        asked.append(after)

    event_bus = EventBus(never_read, 1000)
    for stops in ([1], [1, 3]):
        ending = BusEnding(event_bus, 't', load)
        for n in stops:
            event_bus.publish('t', [stopping_event(n)])
        waiting = asyncio.ensure_future(ending.wait(2))
        async with asyncio.timeout(LIMIT):
            for _ in range(3):
                await asyncio.sleep(0)
            assert waiting.done() == (3 in stops)
            event_bus.publish('t', [stopping_event(4)])
            assert await waiting is None
        ending.close()
    assert (asked, event_bus.in_use) == ([2], False)


async def test_prepared_task_is_not_returned_for_another_run() -> None:
    async def load(_: int) -> None:
        raise AssertionError('nobody asks')

    given: list[StoredTask | None] = []
    for final in (event(2), event(2)):
        event_bus = EventBus(never_read, 1000)
        ending = BusEnding(event_bus, 't', load)
        event_bus.prepare('t', final, lambda: TASK)
        event_bus.publish('t', [final if not given else event(2)])
        async with asyncio.timeout(LIMIT):
            given.append(await ending.wait(0))
        ending.close()
    assert given == [TASK, None]


async def test_wait_for_end_of_erased_task_fails() -> None:
    backend = MemoryBackend('agent', reader_lag=1000)
    ending = backend.events.expect('t')
    assert ending is not None
    waiting = asyncio.ensure_future(ending.wait(0))
    await asyncio.sleep(0)
    backend.event_bus.hint('t', None)
    with pytest.raises(TaskNotFoundError):
        await waiting
    ending.close()


async def test_stored_task_is_read_on_after_hint_of_erasure() -> None:
    backend = MemoryBackend('agent', reader_lag=1000)
    accepted = await submit(backend, message('hi', new='t'))
    reader = backend.events.subscribe('t', ignore)
    reader.start(accepted.header.last_event)
    backend.event_bus.hint('t', None)
    async with asyncio.timeout(LIMIT):
        waiting = asyncio.ensure_future(reader.next())
        await asyncio.sleep(0)  # the reader asks the store before the next event
        await claim_task(backend, 't')
        assert [event.state for event in await waiting] == ['working']
    reader.close()


async def test_process_polls_for_task_end_after_waiter_is_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look before tells no other process of the caller, and the next look of PostgreSQL is 5 seconds later."""
    backend = SqliteFileBackend(SqliteFile(path=tmp_path / 'tasks.db'), 'agent', reader_lag=1000)
    stop = backend.listen(ignore, ignore)
    await submit(backend, message('hi', new='t'))
    waking, wanted = backend.process.wake, list[dict[str, int]]()

    def wake() -> None:
        wanted.append(dict(backend.event_bus.wanted()))
        waking()

    monkeypatch.setattr(backend.process, 'wake', wake)
    waiting = asyncio.ensure_future(backend.events.wait('t', 0))
    async with asyncio.timeout(LIMIT):
        await backend.reader.load('t', None)
        await backend.queue.cancel('t', None, at=0)
        await waiting
    assert {'t': 0} in wanted
    stop()
    backend.close()


@pytest.mark.parametrize('metadata', [None, b'{"usage":1}'])
async def test_end_of_plain_task_equals_stored_task(tmp_path: Path, metadata: bytes | None) -> None:
    backend = SqliteFileBackend(SqliteFile(path=tmp_path / 'tasks.db'), 'agent', reader_lag=1000)
    await submit(backend, message('hi', new='t'))
    claimed = await claim_task(backend, 't')
    end = finish_of(claimed, metadata=metadata, **RESULT)
    await backend.queue.finish(claimed, end)
    task = await backend.reader.load('t', None)
    backend.close()
    assert task is not None
    assert ended_task(claimed, end) == task


@pytest.mark.parametrize(
    ('claimed', 'end'),
    [
        ({'fence': 2}, {}),
        ({'run': 2}, {}),
        ({}, {'artifacts': None}),
        ({}, {'taken': 1}),
        ({}, {'last': True}),
        ({}, {'state': 'failed'}),
        ({}, {'after': 2}),
    ],
)
async def test_end_of_unusual_task_is_read_from_store(tmp_path: Path, claimed: Any, end: Any) -> None:
    backend = SqliteFileBackend(SqliteFile(path=tmp_path / 'tasks.db'), 'agent', reader_lag=1000)
    await submit(backend, message('hi', new='t'))
    claim = await claim_task(backend, 't')
    backend.close()
    assert ended_task(claim, finish_of(claim, **RESULT)) is not None
    assert ended_task(replace(claim, **claimed), finish_of(claim, **(RESULT | end))) is None
