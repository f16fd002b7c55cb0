"""Tests of the queue as operators see it."""

from __future__ import annotations

from dataclasses import asdict

from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.store.ports import DEAD_LETTER, Backend, QueueCounts, Slot, Tried

from .base import PortSuite
from .values import AT, LEASE, OVER, claim, claim_one, claim_some, ending, expire, message, run, state_of, submit

__all__ = ('QueuesSuite',)

MINUTE = 60_000


async def counts(backend: Backend, at: int = AT) -> dict[str, object]:
    """The numbers that are not 0."""
    [found] = await backend.housekeeping.queues(at=at, every=False)
    return {name: value for name, value in asdict(found).items() if value not in (0, None)}


class QueuesSuite(PortSuite):
    """Tests of the counts of a queue."""

    async def test_the_queue_counts_tasks_that_have_not_ended(self, backend: Backend) -> None:
        for n in range(3):
            await submit(backend, message(new=f'submitted {n}', at=AT + n))
        for name in ('answered', 'asks', 'signs'):
            await submit(backend, message(new=name))
            await run(backend, name, 'auth-required' if name == 'signs' else 'input-required', at=AT)
        await submit(backend, message('yes', to='answered', at=AT + 5))
        for name in ('running', 'lost', 'tried'):
            await submit(backend, message(new=name))
            claimed = await claim_one(backend, name)
            if name == 'lost':
                await expire(backend, name)
            elif name == 'tried':
                await backend.queue.release(claimed, Tried(number=1, spent=1, usage=RunUsage()), pause=MINUTE)
        await submit(backend, message(new='dead'))
        await run(backend, 'dead', 'failed', at=AT, failure=DEAD_LETTER)
        await submit(backend, message(new='behind', context='context of running'))
        [found] = await backend.housekeeping.queues(at=AT + MINUTE, every=False)
        assert found == QueueCounts(
            namespace='agent',
            submitted=4,
            queued=5,
            running=3,
            leases=1,
            waiting=2,
            dead=1,
            oldest=AT,
            accepted=11,
            ended=1,
            paused_at=None,
        )
        assert await backend.housekeeping.queues(at=AT + MINUTE, every=True) == [found]

    async def test_work_counts_for_five_minutes(self, backend: Backend) -> None:
        for n in range(3):
            await submit(backend, message(new=f't{n}', at=AT + n * MINUTE))
            await run(backend, f't{n}', at=AT + n * 2 * MINUTE)
        found = [await counts(backend, at=AT + n * MINUTE) for n in (5, 6, 7, 8)]
        assert [(each.get('accepted', 0), each.get('ended', 0)) for each in found] == [(3, 3), (2, 2), (1, 2), (0, 1)]
        assert await backend.housekeeping.sweep(Retention(), at=AT + 5 * MINUTE)  # files them, and deletes events
        assert [await counts(backend, at=AT + n * MINUTE) for n in (5, 6, 7, 8)] == found

    async def test_an_empty_queue_counts_nothing(self, backend: Backend) -> None:
        assert await counts(backend) == {'namespace': 'agent'}
        assert await backend.housekeeping.queues(at=AT, every=True) == []

    async def test_an_answered_task_waits_since_its_answer(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        await run(backend, 't', 'input-required', at=AT)
        await submit(backend, message('yes', to='t', at=AT + 7))
        assert (await counts(backend))['oldest'] == AT + 7
        await claim_one(backend, 't', lease=OVER)
        assert 'oldest' not in await counts(backend)

    async def test_a_paused_queue_accepts_tasks_and_lets_none_be_claimed(self, backend: Backend) -> None:
        await submit(backend, message(new='running'))
        running = await claim_one(backend, 'running')
        for name in ('lost', 'released'):
            await submit(backend, message(new=name))
        await claim_one(backend, 'lost', 'lost holder', lease=OVER)
        await backend.queue.release(await claim_one(backend, 'released'))
        assert not await backend.paused()
        await backend.housekeeping.pause(AT)
        assert await backend.paused()
        assert (await counts(backend))['paused_at'] == AT
        accepted = [
            await submit(backend, message(new=f'offered {n}', context='c' if n else None), slot=Slot('holder', LEASE))
            for n in range(2)
        ]
        await submit(backend, message(new='queued'))
        assert [(each.header.queued, each.claim) for each in accepted] == [(True, None)] * 2
        assert await claim(backend) == []
        for name in ('queued', 'lost', 'released'):
            assert await backend.queue.claim('holder', at=AT, lease=LEASE, limit=1, task_id=name) == []
        assert await backend.queue.finish(running, ending(running)) is None
        assert await state_of(backend, 'running') == 'completed'
        await backend.housekeeping.pause(None)
        assert not await backend.paused()
        claimed = await claim_some(backend, 5, limit=100)
        assert sorted(each.header.id for each in claimed) == ['lost', 'offered 0', 'offered 1', 'queued', 'released']
