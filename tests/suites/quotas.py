"""Tests of quotas: no request above the limit, and no usage lost or counted twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a.errors import LeaseLost, QuotaExceededError
from pydantic_ai_a2a.server.store.ports import Backend, Bucket, Charge, Spent, Submission, Swept
from pydantic_ai_a2a.server.store.ports.failed_tries import Tried
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.types import TaskState

from .base import PortSuite
from .values import (
    OWNER,
    START,
    claim_and_finish,
    claim_task,
    finish_and_continue,
    finish_of,
    message,
    state_of,
    submit,
    sweep,
)

__all__ = ('QuotaSuite',)

MINUTE = 60_000
BUCKET = Bucket('/ada', 'SendMessage', interval=1_000_000, burst=3)
"""Three at once, and one a second."""
CHARGE = Charge('/ada', MINUTE, START + MINUTE, requests=1, tokens=20, cost=300)


async def usage_of(backend: Backend, subject: str = '/ada', *, at: int = START) -> list[tuple[int, int, int]]:
    """The usage of a subject: requests, tokens, cost."""
    return [usage[1:] for usage in await backend.quotas.spent(subject, MINUTE, at=at)]


def with_task_limit(sent: Submission, limit: int) -> Submission:
    """A message of an owner who may have so many tasks."""
    return replace(sent, task_limit=limit)


class QuotaSuite(PortSuite):
    """Tests of `QuotaStore`, and of the charges in `TaskQueue`."""

    async def test_charge_sums_stop_before_64_bit_overflow(self, backend: Backend) -> None:
        near = CHARGE._replace(requests=2**62 - 1, tokens=2**63 - 2001, cost=2**62)
        largest = CHARGE._replace(requests=2**53, tokens=2**53, cost=2**53)
        for charge in (near, largest, largest):
            await backend.quotas.charge([charge])
        assert await usage_of(backend) == [(2**62 - 1 + 2**53, 2**63 - 2001, 2**62)]

    async def test_rate_limit_allows_burst_then_steady_rate(self, backend: Backend) -> None:
        async def take(at: int) -> int:
            return await backend.quotas.take(BUCKET, at=START + at)

        assert [await take(0) for _ in range(4)] == [0, 0, 0, 1000]
        assert [await take(400), await take(999), await take(1000), await take(1000)] == [600, 1, 0, 1000]
        assert [await take(10**6) for _ in range(4)] == [0, 0, 0, 1000]

    async def test_rate_limits_are_separate_per_subject_and_operation(self, backend: Backend) -> None:
        for bucket in (BUCKET, BUCKET._replace(subject='/bob'), BUCKET._replace(name='GetTask')):
            assert [await backend.quotas.take(bucket, at=START) for _ in range(4)] == [0, 0, 0, 1000]

    async def test_rate_limit_follows_changed_burst_setting(self, backend: Backend) -> None:
        assert [await backend.quotas.take(BUCKET, at=START) for _ in range(3)] == [0, 0, 0]
        larger = BUCKET._replace(burst=4)
        assert [await backend.quotas.take(larger, at=START) for _ in range(2)] == [0, 1000]

    async def test_concurrent_requests_never_exceed_rate_limit_burst(self, backend: Backend) -> None:
        waits = await asyncio.gather(*(backend.quotas.take(BUCKET, at=START) for _ in range(20)))
        assert waits.count(0) == 3

    @settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        interval=st.integers(1, 10**7), burst=st.integers(1, 5), pauses=st.lists(st.integers(0, 20_000), max_size=20)
    )
    async def test_rate_limit_matches_token_bucket_model(
        self, backend: Backend, interval: int, burst: int, pauses: Sequence[int]
    ) -> None:
        # An owner of its own for each example.
        bucket = Bucket(f'/{uuid4()}', 'SendMessage', interval=interval, burst=burst)
        at = START
        held, capacity = bucket.burst * bucket.interval, bucket.burst * bucket.interval  # microseconds' worth
        for pause in pauses:
            at += pause
            held = min(capacity, held + pause * 1000)
            wait = await backend.quotas.take(bucket, at=at)
            assert wait == max(0, -(-(bucket.interval - held) // 1000))
            held -= bucket.interval if wait == 0 else 0

    async def test_usage_charges_add_up_until_expiry(self, backend: Backend) -> None:
        later = CHARGE._replace(until=START + MINUTE + 1000)
        await backend.quotas.charge([later, CHARGE])
        await backend.quotas.charge([CHARGE, CHARGE._replace(subject='/bob'), CHARGE._replace(window=MINUTE * 60)])
        assert await backend.quotas.spent('/ada', MINUTE, at=START) == [
            Spent(CHARGE.until, 2, 40, 600),
            Spent(later.until, 1, 20, 300),
        ]
        assert await usage_of(backend, at=CHARGE.until) == [(1, 20, 300)]
        assert await usage_of(backend, at=later.until) == []

    async def test_concurrent_usage_charges_are_all_counted(self, backend: Backend) -> None:
        await asyncio.gather(*(backend.quotas.charge([CHARGE]) for _ in range(20)))
        assert await usage_of(backend) == [(20, 400, 6000)]

    @pytest.mark.parametrize('state', ['completed', 'canceled', 'failed', 'input-required'])
    async def test_usage_of_run_is_charged_at_its_end(self, backend: Backend, state: TaskState) -> None:
        await submit(backend, message(new='t'))
        await claim_and_finish(backend, 't', state, charges=[CHARGE])
        assert await usage_of(backend) == [(1, 20, 300)]

    async def test_failed_tries_of_run_are_charged_once(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        claimed = await claim_task(backend, 't')
        for _ in range(2):  # a repeated release, as after a commit without an answer, changes nothing
            await backend.queue.release(
                claimed, Tried(number=1, spent=1.0, usage=RunUsage(requests=1)), charges=[CHARGE]
            )
        assert await usage_of(backend) == [(1, 20, 300)]
        again = await claim_task(backend, 't')
        await backend.queue.finish(again, finish_of(again, charges=[CHARGE._replace(requests=3, tokens=50)]))
        assert await usage_of(backend) == [(3, 50, 300)]

    async def test_each_run_of_task_is_charged(self, backend: Backend) -> None:
        await submit(backend, message('one', new='t'))
        claimed = await claim_task(backend, 't')
        await submit(backend, message('two', to='t'))
        following = await finish_and_continue(backend, claimed, finish_of(claimed, charges=[CHARGE]))
        await backend.queue.finish(following, finish_of(following, charges=[CHARGE]))
        assert await usage_of(backend) == [(2, 40, 600)]

    async def test_finish_after_forced_cancel_adds_no_charge(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        claimed = await claim_task(backend, 't')
        await backend.queue.cancel('t', OWNER, at=START, force=True)
        with pytest.raises(LeaseLost):
            await backend.queue.finish(claimed, finish_of(claimed, charges=[CHARGE]))
        assert await usage_of(backend) == []

    async def test_repeated_settling_of_force_canceled_run_charges_once(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        claimed = await claim_task(backend, 't')
        await backend.quotas.settle('t', claimed.run, [CHARGE])
        assert await usage_of(backend) == []
        await backend.queue.cancel('t', OWNER, at=START, force=True)
        await backend.quotas.settle('t', claimed.run, [])
        other = CHARGE._replace(subject='/')
        await asyncio.gather(*(backend.quotas.settle('t', claimed.run, [CHARGE, other]) for _ in range(5)))
        assert (await usage_of(backend), await usage_of(backend, '/')) == ([(1, 20, 300)], [(1, 20, 300)])
        await backend.quotas.settle('t', claimed.run, [CHARGE._replace(requests=3, tokens=30)])
        assert await usage_of(backend) == [(3, 30, 300)]

    @pytest.mark.parametrize('state', ['completed', 'failed', 'input-required'])
    async def test_settling_charged_run_adds_no_charge(self, backend: Backend, state: TaskState) -> None:
        await submit(backend, message(new='t'))
        claimed = await claim_and_finish(backend, 't', state, charges=[CHARGE])
        await backend.quotas.settle('t', claimed.run, [CHARGE])
        assert await usage_of(backend) == [(1, 20, 300)]

    async def test_settling_charges_only_canceled_run_of_task(self, backend: Backend) -> None:
        await submit(backend, message('one', new='t'))
        claimed = await claim_task(backend, 't')
        await submit(backend, message('two', to='t'))
        following = await finish_and_continue(backend, claimed, finish_of(claimed, charges=[CHARGE]))
        await backend.queue.cancel('t', OWNER, at=START, force=True)
        await backend.quotas.settle('t', claimed.run, [CHARGE])
        assert await usage_of(backend) == [(1, 20, 300)]
        await backend.quotas.settle('t', following.run, [CHARGE])
        assert await usage_of(backend) == [(2, 40, 600)]

    async def test_earlier_run_is_not_charged_again(self, backend: Backend) -> None:
        await submit(backend, message('one', new='t'))
        claimed = await claim_task(backend, 't')
        await submit(backend, message('two', to='t'))
        following = await finish_and_continue(backend, claimed, finish_of(claimed, charges=[CHARGE]))
        await backend.queue.finish(following, finish_of(following, charges=[CHARGE]))
        await backend.quotas.settle('t', claimed.run, [CHARGE])
        assert await usage_of(backend) == [(2, 40, 600)]

    @pytest.mark.parametrize('gone', ['erased', 'swept'])
    async def test_settling_after_task_deletion_adds_no_charge(self, backend: Backend, gone: str) -> None:
        lasting = CHARGE._replace(until=START + 60 * 24 * 60 * MINUTE)
        await submit(backend, message(new='ended'))
        ended = await claim_and_finish(backend, 'ended', charges=[lasting])
        await submit(backend, message(new='taken'))
        taken = await claim_task(backend, 'taken')
        await backend.queue.cancel('taken', OWNER, at=START, force=True)
        await backend.quotas.settle('taken', taken.run, [lasting])
        assert await usage_of(backend) == [(2, 40, 600)]
        if gone == 'erased':
            assert await backend.housekeeping.erase_task('ended', None, at=START)
            assert await backend.housekeeping.erase_task('taken', None, at=START)
        else:
            await sweep(backend, Retention(), at=START + 8 * 24 * 60 * MINUTE)
        assert (await backend.reader.load('ended', None), await backend.reader.load('taken', None)) == (None, None)
        await backend.quotas.settle('ended', ended.run, [lasting])
        await backend.quotas.settle('taken', taken.run, [lasting])
        assert await usage_of(backend) == [(2, 40, 600)]

    async def test_task_quota_limits_unfinished_tasks_of_owner(self, backend: Backend) -> None:
        for task_id in 'ab':
            await submit(backend, with_task_limit(message(new=task_id), 2))
        await claim_task(backend, 'a')
        with pytest.raises(QuotaExceededError) as refused:
            await submit(backend, with_task_limit(message(new='c'), 2))
        assert refused.value.metadata == {'quota': 'tasks'}
        assert await backend.reader.load('c', None) is None
        await submit(backend, with_task_limit(message(new='of bob', owner='/bob'), 2))
        await submit(backend, with_task_limit(message('more', to='a'), 2))  # a task that exists
        assert (await submit(backend, with_task_limit(message(new='b'), 2))).replayed
        await backend.queue.cancel('b', OWNER, at=START)
        await submit(backend, with_task_limit(message(new='c'), 2))

    async def test_interrupted_task_is_outside_task_quota_until_answered(self, backend: Backend) -> None:
        await submit(backend, message(new='paused'))
        await claim_and_finish(backend, 'paused', 'input-required')
        await submit(backend, with_task_limit(message(new='t'), 1))
        with pytest.raises(QuotaExceededError):
            await submit(backend, with_task_limit(message('answer', to='paused'), 1))
        assert await state_of(backend, 'paused') == 'input-required'
        await backend.queue.cancel('t', OWNER, at=START)
        await submit(backend, with_task_limit(message('answer', to='paused'), 1))
        assert await state_of(backend, 'paused') == 'working'

    async def test_concurrent_messages_never_exceed_task_quota(self, backend: Backend) -> None:
        sent = [submit(backend, with_task_limit(message(new=f't{n}'), 3)) for n in range(10)]
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
        assert sum(isinstance(outcome, QuotaExceededError) for outcome in outcomes) == 7

    async def test_sweep_deletes_only_full_buckets_and_expired_charges(self, backend: Backend) -> None:
        await backend.quotas.take(BUCKET, at=START)
        await backend.quotas.take(BUCKET._replace(subject='/bob'), at=START)
        await backend.quotas.take(BUCKET._replace(subject='/bob'), at=START)
        await backend.quotas.charge([CHARGE, CHARGE._replace(until=CHARGE.until + 1)])
        assert not await backend.housekeeping.sweep(Retention(), at=START + 999)
        assert await backend.housekeeping.sweep(Retention(), at=START + 1000) == Swept(rows=1)
        assert await backend.housekeeping.sweep(Retention(), at=CHARGE.until) == Swept(rows=2)
        assert await usage_of(backend) == [(1, 20, 300)]
