"""Calls to an unavailable store are repeated, and writes that it did not take are written later."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from pydantic_ai_a2a.errors import LeaseLost, StoreFailed, StoreUnavailable
from pydantic_ai_a2a.server.runs.store_outages import Outages, PendingWrites, StoreRetries, StoreWrite

from ...app_client import LIMIT


def failing_write(done: list[str], name: str, *errors: BaseException) -> StoreWrite:
    """Writes a name, after it has failed so often."""
    left = [*errors]

    async def attempt() -> None:
        if left:
            raise left.pop(0)
        done.append(name)

    return attempt


async def test_write_added_while_settling_stays_pending() -> None:
    pending_writes, begun, go_on, done = PendingWrites(), asyncio.Event(), asyncio.Event(), list[str]()

    async def slow() -> None:
        begun.set()
        await go_on.wait()
        done.append('first')

    pending_writes.add('first', slow)
    settling = asyncio.ensure_future(pending_writes.settle())
    async with asyncio.timeout(LIMIT):
        await begun.wait()
        assert pending_writes.tasks() == ['first']
        pending_writes.add('second', failing_write(done, 'second'))
        go_on.set()
        await settling
    assert (done, pending_writes.tasks()) == (['first'], ['second'])
    await pending_writes.settle()
    assert (done, pending_writes.tasks()) == (['first', 'second'], [])


async def test_concurrent_settling_stores_each_write_once() -> None:
    pending_writes, done = PendingWrites(), list[str]()

    async def slow(name: str) -> None:
        await asyncio.sleep(0)
        done.append(name)

    for name in ('first', 'second', 'third'):
        pending_writes.add(name, partial(slow, name))
    async with asyncio.timeout(LIMIT):
        await asyncio.gather(pending_writes.settle(), pending_writes.settle())
    assert (done, pending_writes.tasks()) == (['first', 'second', 'third'], [])


async def test_failed_write_stays_pending_and_later_writes_are_stored(caplog: pytest.LogCaptureFixture) -> None:
    pending_writes, done = PendingWrites(), list[str]()
    pending_writes.add('bad', failing_write(done, 'bad', OSError('the disk is full')))
    pending_writes.add('good', failing_write(done, 'good'))
    await pending_writes.settle()
    assert (done, pending_writes.tasks()) == (['good'], ['bad'])
    assert caplog.messages == [
        'A pending write of task bad could not be stored; the task runs again once its lease expires.'
    ]


async def test_settling_stops_while_the_store_is_unavailable() -> None:
    pending_writes, done = PendingWrites(), list[str]()
    pending_writes.add('first', failing_write(done, 'first', StoreUnavailable()))
    pending_writes.add('second', failing_write(done, 'second'))
    with pytest.raises(StoreUnavailable):
        await pending_writes.settle()
    assert (done, sorted(pending_writes.tasks())) == ([], ['first', 'second'])


async def test_cancelled_write_stays_pending() -> None:
    pending_writes, begun = PendingWrites(), asyncio.Event()

    async def hang() -> None:
        begun.set()
        await asyncio.Future()

    giving = asyncio.ensure_future(pending_writes.give('task', hang))
    async with asyncio.timeout(LIMIT):
        await begun.wait()
        giving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await giving
    assert pending_writes.tasks() == ['task']


@pytest.mark.parametrize('away', [True, False], ids=['away', 'silent'])
async def test_final_settling_is_bounded_and_logs_unstored_tasks(away: bool, caplog: pytest.LogCaptureFixture) -> None:
    pending_writes = PendingWrites()
    pending_writes.add('task', failing_write([], 'task', StoreUnavailable()) if away else asyncio.Event().wait)
    async with asyncio.timeout(LIMIT):
        await pending_writes.settle_at_last(0.01)
    assert caplog.messages == [
        'The ends of tasks could not be stored; these tasks run again once their leases expire: task'
    ]


LEASE = 36_000.0
"""Seconds that no test waits for: the loop's clock is set ahead."""


class FlakyStore:
    """Raises errors, one for each call, and answers then."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = [*errors]
        self.calls = 0

    async def call(self) -> int:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.calls


async def test_store_call_is_retried_until_store_is_available() -> None:
    store = FlakyStore(*[StoreUnavailable()] * 6)
    assert await StoreRetries().of('t')(store.call) == 7


async def test_store_call_fails_after_five_statement_timeouts() -> None:
    store = FlakyStore(*[StoreUnavailable('statement timeout', busy=True)] * 100)
    with pytest.raises(StoreFailed) as failed:
        await StoreRetries().of('t')(store.call)
    assert store.calls == 5
    assert isinstance(failed.value.__cause__, StoreUnavailable)


async def test_store_call_is_not_retried_after_retries_have_ended() -> None:
    store = FlakyStore(StoreUnavailable())
    with pytest.raises(StoreUnavailable):
        await StoreRetries.once().of('t')(store.call)
    assert store.calls == 1


@pytest.mark.parametrize(('error', 'raised'), [(LeaseLost(), LeaseLost), (OSError(), StoreFailed)])
async def test_lost_lease_and_unexpected_errors_are_not_retried(error: Exception, raised: type[Exception]) -> None:
    store = FlakyStore(error)
    with pytest.raises(raised):
        await StoreRetries().of('t')(store.call)
    assert store.calls == 1


async def test_claims_pause_after_outage_with_possibly_expired_leases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    now = float(int(loop.time()))  # sums of whole seconds are exact
    monkeypatch.setattr(loop, 'time', lambda: now)
    asked = 0

    async def answer() -> None:
        nonlocal asked
        asked += 1

    async def answer_late() -> None:
        nonlocal now
        now += LEASE * 0.7

    outages = Outages(LEASE)
    assert await outages.claim_delay(answer) == 0
    assert await outages.claim_delay(answer) == 0
    assert asked == 1
    now += LEASE / 20
    pause = await outages.claim_delay(answer_late)
    assert 0 < pause <= LEASE / 3
    now += pause + 1
    assert await outages.claim_delay(answer) == 0
