"""Calls to a store that are repeated while it is unavailable."""

from __future__ import annotations

import asyncio

import pytest

from pydantic_ai_a2a.errors import LeaseLost, StoreFailed, StoreUnavailable
from pydantic_ai_a2a.runs.recorder import Outages, Retries

LEASE = 36_000.0
"""Seconds that no test waits for: the loop's clock is set ahead."""


class Store:
    """Raises errors, one for each call, and answers then."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = [*errors]
        self.calls = 0

    async def call(self) -> int:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.calls


async def test_a_call_is_repeated_until_the_store_is_available() -> None:
    store = Store(*[StoreUnavailable()] * 6)
    assert await Retries().of('t')(store.call) == 7


async def test_a_transaction_that_takes_too_long_is_repeated_a_few_times_only() -> None:
    store = Store(*[StoreUnavailable('statement timeout', busy=True)] * 100)
    with pytest.raises(StoreFailed) as failed:
        await Retries().of('t')(store.call)
    assert store.calls == 5
    assert isinstance(failed.value.__cause__, StoreUnavailable)


async def test_after_the_end_each_call_is_tried_once() -> None:
    store = Store(StoreUnavailable())
    with pytest.raises(StoreUnavailable):
        await Retries.once().of('t')(store.call)
    assert store.calls == 1


@pytest.mark.parametrize(('error', 'raised'), [(LeaseLost(), LeaseLost), (OSError(), StoreFailed)])
async def test_any_other_error_is_raised_at_once(error: Exception, raised: type[Exception]) -> None:
    store = Store(error)
    with pytest.raises(raised):
        await Retries().of('t')(store.call)
    assert store.calls == 1


async def test_claims_are_paused_for_a_third_of_a_lease_after_an_outage_that_may_have_ended_leases(
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
    assert await outages.pause(answer) == 0
    assert await outages.pause(answer) == 0
    assert asked == 1
    now += LEASE / 20
    pause = await outages.pause(answer_late)
    assert 0 < pause <= LEASE / 3
    now += pause + 1
    assert await outages.pause(answer) == 0
