"""The numbered log of a task's events, as readers meet it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pydantic_ai_a2a.errors import LeaseLost
from pydantic_ai_a2a.server.store.ports import Backend, Claim, Slot, Subscription
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.types import TaskEvent

from .base import PortSuite
from .values import (
    LEASE,
    READER_LAG,
    START,
    WAIT_LIMIT,
    artifact_chunk,
    claim_and_finish,
    claim_task,
    expire_lease,
    finish_of,
    ignore,
    load,
    message,
    status_event,
    submit,
    sweep,
)

__all__ = ('EventLogSuite',)


async def working_task(backend: Backend, task_id: str = 't') -> Claim:
    await submit(backend, message(new=task_id))
    return await claim_task(backend, task_id)


async def next_event_numbers(subscription: Subscription) -> list[int]:
    """The numbers of the next events."""
    async with asyncio.timeout(WAIT_LIMIT):
        return [event.n for event in await subscription.next()]


async def event_numbers_until(subscription: Subscription, newest: int) -> list[int]:
    """The numbers of the next events up to one."""
    got = await next_event_numbers(subscription)
    while got[-1] < newest:
        batch = await next_event_numbers(subscription)
        assert batch, f'nothing after {got[-1]}'
        got += batch
    return got


async def claim_after_emitting(backend: Backend, newest: int) -> Claim:
    await backend.queue.release(await claim_due(backend))
    claimed = await claim_due(backend)
    await backend.queue.emit(claimed, [artifact_chunk(n, 'x') for n in range(2, newest + 1)])
    return claimed


async def claim_due(backend: Backend) -> Claim:
    [claimed] = await backend.queue.claim(Slot('h', LEASE), at=START + 10**6, limit=1)
    return claimed


class EventLogSuite(PortSuite):
    """Tests of `EventLog`: every reader gets all events in order, once each, after the commit."""

    async def test_subscriber_gets_stored_events_then_new_events(self, backend: Backend) -> None:
        claimed = await working_task(backend)
        await backend.queue.emit(claimed, [artifact_chunk(2, 'a'), artifact_chunk(3, 'b')])
        reader = backend.events.subscribe('t', ignore)
        reader.start(1)
        assert await next_event_numbers(reader) == [2, 3]
        waiting = asyncio.ensure_future(event_numbers_until(reader, 5))
        await asyncio.sleep(0)
        assert not waiting.done()
        await backend.queue.emit(claimed, [artifact_chunk(4, 'c')])
        await backend.queue.emit(claimed, [artifact_chunk(5, 'd')])
        assert await waiting == [4, 5]
        reader.close()

    async def test_event_in_snapshot_is_not_delivered_again(self, backend: Backend) -> None:
        claimed = await working_task(backend)
        reader = backend.events.subscribe('t', ignore)
        await backend.queue.emit(claimed, [artifact_chunk(2, 'in the snapshot')])
        task = await load(backend, 't', None)
        await backend.queue.emit(claimed, [artifact_chunk(3, 'after it')])
        reader.start(task.header.last_event)
        assert await next_event_numbers(reader) == [3]
        reader.close()

    async def test_long_event_log_is_delivered_without_gaps(self, backend: Backend) -> None:
        claimed = await working_task(backend)
        await backend.queue.emit(claimed, [artifact_chunk(n, 'x' * 100) for n in range(2, 1001)])
        reader = backend.events.subscribe('t', ignore)
        reader.start(0)
        got = await event_numbers_until(reader, 1000)
        waiting = asyncio.ensure_future(event_numbers_until(reader, 1500))
        await asyncio.sleep(0)
        await backend.queue.emit(claimed, [artifact_chunk(n, 'y' * 100) for n in range(1001, 1501)])
        assert got + await waiting == list(range(1, 1501))
        reader.close()

    async def test_subscribers_at_different_positions_get_same_events(self, backend: Backend) -> None:
        """Some readers read from memory, other readers from the store."""
        claimed = await working_task(backend)
        readers = {after: backend.events.subscribe('t', ignore) for after in (0, 1, 300, 599)}
        for after, reader in readers.items():
            reader.start(after)
        for n in range(2, 601):
            await backend.queue.emit(claimed, [artifact_chunk(n, 'x' * 50)])
        for after, reader in readers.items():
            assert await event_numbers_until(reader, 600) == list(range(after + 1, 601))
            reader.close()

    async def test_slow_subscriber_over_lag_limit_is_dropped(self, backend: Backend) -> None:
        claimed = await working_task(backend)
        dropped: list[str] = []
        slow = backend.events.subscribe('t', lambda: dropped.append('slow'))
        quick = backend.events.subscribe('t', lambda: dropped.append('quick'))
        for reader in (slow, quick):
            reader.start(0)
            assert await next_event_numbers(reader) == [1]
        for n in range(2, 5):
            await backend.queue.emit(claimed, [artifact_chunk(n, 'x' * (READER_LAG // 2))])
            assert await next_event_numbers(quick) == [n]
        await asyncio.sleep(0)
        assert (dropped, slow.dropped, quick.dropped) == (['slow'], True, False)
        await backend.queue.emit(claimed, [artifact_chunk(5, 'x' * (READER_LAG // 2))])
        assert await next_event_numbers(slow) == []
        assert await next_event_numbers(quick) == [5]
        assert dropped == ['slow']
        slow.close()
        quick.close()

    async def test_waiting_subscriber_is_not_dropped_by_large_batch(self, backend: Backend) -> None:
        claimed = await working_task(backend)
        reader = backend.events.subscribe('t', pytest.fail)
        reader.start(1)
        waiting = asyncio.ensure_future(event_numbers_until(reader, 11))
        await asyncio.sleep(0)
        await backend.queue.emit(claimed, [artifact_chunk(n, 'x' * READER_LAG) for n in range(2, 12)])
        assert await waiting == list(range(2, 12))
        reader.close()

    async def test_nudge_wakes_waiting_subscriber_once_without_events(self, backend: Backend) -> None:
        claimed = await working_task(backend)
        reader = backend.events.subscribe('t', ignore)
        reader.start(1)
        reader.nudge()  # without a waiting reader, nudge() does nothing
        waiting = asyncio.ensure_future(next_event_numbers(reader))
        await asyncio.sleep(0)
        reader.nudge()
        assert await waiting == []
        waiting = asyncio.ensure_future(next_event_numbers(reader))
        await asyncio.sleep(0)
        assert not waiting.done()
        await backend.queue.emit(claimed, [artifact_chunk(2, 'a')])
        assert await waiting == [2]
        reader.close()

    async def test_event_arriving_with_nudge_is_not_lost(self, backend: Backend) -> None:
        claimed = await working_task(backend)
        reader = backend.events.subscribe('t', ignore)
        reader.start(1)
        waiting = asyncio.ensure_future(next_event_numbers(reader))
        await asyncio.sleep(0)
        reader.nudge()
        await backend.queue.finish(claimed, finish_of(claimed))
        assert (await waiting or await next_event_numbers(reader)) == [2]
        reader.close()

    async def test_task_is_watched_while_subscribed(self, backend: Backend) -> None:
        await working_task(backend)
        assert not backend.events.watched('t')
        one, two = (backend.events.subscribe('t', ignore) for _ in range(2))
        one.close()
        one.close()
        assert backend.events.watched('t')
        assert not backend.events.watched('t', live=True)
        live = backend.events.subscribe('t', ignore, live=True)
        assert backend.events.watched('t', live=True)
        live.close()
        live.close()
        assert not backend.events.watched('t', live=True)
        two.close()
        assert not backend.events.watched('t')

    async def test_new_subscriber_gets_events_after_previous_subscriber_closed(self, backend: Backend) -> None:
        claimed = await working_task(backend)
        backend.events.subscribe('t', ignore).close()
        await backend.queue.emit(claimed, [artifact_chunk(2, 'a')])
        reader = backend.events.subscribe('t', ignore)
        reader.start(0)
        assert await next_event_numbers(reader) == [1, 2]
        reader.close()

    async def test_wait_for_task_ends_when_task_is_interrupted(self, backend: Backend) -> None:
        claimed = await working_task(backend)
        waits = [asyncio.ensure_future(backend.events.wait('t', after)) for after in (0, 1, 1)]
        await asyncio.sleep(0)
        await backend.queue.emit(claimed, [artifact_chunk(2, 'a')])
        await asyncio.sleep(0)
        assert not any(wait.done() for wait in waits)
        waits.pop().cancel()
        await backend.queue.finish(claimed, finish_of(claimed, 'auth-required', after=2))
        async with asyncio.timeout(WAIT_LIMIT):
            await asyncio.gather(*waits)

    async def test_wait_ignores_interruption_before_given_event(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        await claim_and_finish(backend, 't', 'input-required')
        accepted = await submit(backend, message('answer', to='t'))
        async with asyncio.timeout(WAIT_LIMIT):
            await backend.events.wait('t', 0)
            await backend.events.wait('t', 1)
        waiting = asyncio.ensure_future(backend.events.wait('t', accepted.after))
        await asyncio.sleep(0)
        assert not waiting.done()
        await claim_and_finish(backend, 't')
        async with asyncio.timeout(WAIT_LIMIT):
            await waiting

    async def test_wait_for_ended_task_returns_at_once(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        await claim_and_finish(backend, 't')
        async with asyncio.timeout(WAIT_LIMIT):
            await backend.events.wait('t', 0)

    async def test_event_log_resumes_only_from_existing_events(self, backend: Backend) -> None:
        claimed = await working_task(backend)
        assert [await backend.events.has('t', n) for n in (0, 1, 2, 2**62)] == [True, True, False, False]
        await backend.queue.finish(claimed, finish_of(claimed))
        assert [await backend.events.has('t', n) for n in (0, 1, 2, 3)] == [True, True, True, False]
        assert not await backend.events.has('nowhere', 0)

    async def test_swept_event_log_resumes_only_from_its_end(self, backend: Backend) -> None:
        await working_task(backend)
        await expire_lease(backend, 't')
        claimed = await claim_after_emitting(backend, 1200)
        await backend.queue.finish(claimed, finish_of(claimed, after=1200))
        retention = Retention()
        later = START + int(retention.events.total_seconds() * 1000) + 1
        assert await backend.housekeeping.sweep(retention, at=later)
        partly = [await backend.events.has('t', n) for n in (0, 100, 1201)]
        await sweep(backend, retention, at=later)
        assert partly == [False, False, True]
        assert [await backend.events.has('t', n) for n in (1199, 1200, 1201, 1202)] == [False, False, True, False]
        async with asyncio.timeout(WAIT_LIMIT):
            await backend.events.wait('t', 0)

    @pytest.mark.parametrize('chunks', [20, 1200])
    async def test_subscriber_missing_swept_events_is_dropped(self, backend: Backend, chunks: int) -> None:
        """A dropped reader has to begin with a new snapshot."""
        claimed = await working_task(backend)
        reader = backend.events.subscribe('t', pytest.fail)
        reader.start(1)
        await backend.queue.emit(claimed, [artifact_chunk(n, 'x' * 1000) for n in range(2, chunks)])
        await backend.queue.finish(claimed, finish_of(claimed, after=chunks - 1))
        async with asyncio.timeout(WAIT_LIMIT):
            # A sweep skips a task whose row is locked, as by the mark of the reader.
            while await backend.events.has('t', 1):
                await backend.housekeeping.sweep(Retention(), at=START + 61_000)
        assert await next_event_numbers(reader) == []
        assert reader.dropped
        reader.close()

    async def test_events_reach_subscribers_in_another_thread(self, backend: Backend) -> None:
        claimed = await working_task(backend)
        reading = threading.Event()
        got: list[list[int]] = []

        async def read() -> None:
            reader = backend.events.subscribe('t', ignore)
            reader.start(1)
            stopped = asyncio.ensure_future(backend.events.wait('t', 1))
            waiting = asyncio.ensure_future(next_event_numbers(reader))
            await asyncio.sleep(0)
            reading.set()
            got.append(await waiting)
            reader.close()
            async with asyncio.timeout(WAIT_LIMIT):
                await stopped

        thread = threading.Thread(target=lambda: asyncio.run(read()))
        thread.start()
        assert await asyncio.to_thread(reading.wait, WAIT_LIMIT)
        await backend.queue.finish(claimed, finish_of(claimed, 'canceled'))
        await asyncio.to_thread(thread.join, WAIT_LIMIT)
        assert got == [[2]]

    async def test_subscriber_of_closed_event_loop_blocks_no_subscriber(self, backend: Backend) -> None:
        claimed = await working_task(backend)
        leavers: list[Subscription] = []

        async def leave() -> None:
            reader = backend.events.subscribe('t', ignore)
            reader.start(1)
            leavers.append(reader)
            waiting = asyncio.ensure_future(next_event_numbers(reader))
            await asyncio.sleep(0)
            waiting.cancel()

        await asyncio.to_thread(lambda: asyncio.run(leave()))
        reader = backend.events.subscribe('t', ignore)
        reader.start(1)
        await backend.queue.emit(claimed, [status_event(2, 'working')])
        assert await next_event_numbers(reader) == [2]
        for subscription in (reader, *leavers):
            subscription.close()

    async def test_subscriber_gets_events_of_its_task_only(self, backend: Backend) -> None:
        first, second = await working_task(backend, 'a'), await working_task(backend, 'b')
        reader = backend.events.subscribe('a', ignore)
        reader.start(1)
        await backend.queue.emit(second, [artifact_chunk(2, 'b')])
        await backend.queue.emit(first, [artifact_chunk(2, 'a')])
        async with asyncio.timeout(WAIT_LIMIT):
            assert list(await reader.next()) == [TaskEvent(2, None, artifact_chunk(2, 'a').payload)]
        reader.close()

    async def test_events_reach_subscriber_only_after_commit(self, backend: Backend) -> None:
        claimed = await working_task(backend)
        reader = backend.events.subscribe('t', ignore)
        reader.start(1)

        async def read() -> list[bool]:
            stored: list[bool] = []
            while not await backend.events.has('t', 6):
                async with asyncio.timeout(WAIT_LIMIT):
                    newest = [*await reader.next()][-1].n
                stored.append(await backend.events.has('t', newest))
            return stored

        reading = asyncio.ensure_future(read())
        for n in range(2, 6):
            await backend.queue.emit(claimed, [artifact_chunk(n, 'x', append=n > 2)])
        await backend.queue.finish(claimed, finish_of(claimed, after=5))
        assert all(await reading)
        reader.close()

    async def test_refused_events_do_not_reach_subscribers(self, backend: Backend) -> None:
        stale = await working_task(backend)
        await expire_lease(backend, 't')
        [valid] = await backend.queue.claim(Slot('other', LEASE), at=START, limit=1)
        reader = backend.events.subscribe('t', ignore)
        reader.start(1)
        for late in (
            backend.queue.emit(stale, [artifact_chunk(2, 'late')]),
            backend.queue.finish(stale, finish_of(stale, events=[artifact_chunk(2, 'late')], after=2)),
        ):
            with pytest.raises(LeaseLost):
                await late
        await backend.queue.emit(valid, [artifact_chunk(2, 'valid')])
        async with asyncio.timeout(WAIT_LIMIT):
            assert [*await reader.next()] == [artifact_chunk(2, 'valid')]
        reader.close()
