"""Tests of the queue as operators see it."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a.server.store.ports import DEAD_LETTER, Backend, Claim, Slot
from pydantic_ai_a2a.server.store.ports.failed_tries import Tried
from pydantic_ai_a2a.server.store.ports.housekeeping import QueueCounts
from pydantic_ai_a2a.settings import Retention

from ..bounds import LIMIT
from .base import PortSuite
from .values import (
    EXPIRED,
    LEASE,
    START,
    claim_all,
    claim_and_finish,
    claim_task,
    claim_up_to,
    expire_lease,
    finish_of,
    message,
    state_of,
    submit,
)

__all__ = ('OwnerLimitSuite', 'QueuesSuite')

MINUTE = 60_000


async def nonzero_counts(backend: Backend, at: int = START) -> dict[str, object]:
    """The numbers that are not 0."""
    [found] = await backend.housekeeping.queues(at=at, every=False)
    return {name: value for name, value in asdict(found).items() if value not in (0, None)}


class QueuesSuite(PortSuite):
    """Tests of the counts of a queue."""

    async def test_queue_counts_unfinished_tasks_by_state(self, backend: Backend) -> None:
        for n in range(3):
            await submit(backend, message(new=f'submitted {n}', at=START + n))
        for name in ('answered', 'asks', 'signs'):
            await submit(backend, message(new=name))
            await claim_and_finish(backend, name, 'auth-required' if name == 'signs' else 'input-required', at=START)
        await submit(backend, message('yes', to='answered', at=START + 5))
        for name in ('running', 'lost', 'tried'):
            await submit(backend, message(new=name))
            claimed = await claim_task(backend, name)
            if name == 'lost':
                await expire_lease(backend, name)
            elif name == 'tried':
                await backend.queue.release(claimed, Tried(number=1, spent=1, usage=RunUsage()), pause=MINUTE)
        await submit(backend, message(new='dead'))
        await claim_and_finish(backend, 'dead', 'failed', at=START, failure=DEAD_LETTER)
        await submit(backend, message(new='behind', context='context of running'))
        [found] = await backend.housekeeping.queues(at=START + MINUTE, every=False)
        assert found == QueueCounts(
            namespace='agent',
            submitted=4,
            queued=5,
            running=3,
            leases=1,
            waiting=2,
            dead=1,
            oldest=START,
            accepted=11,
            ended=1,
            paused_at=None,
        )
        assert await backend.housekeeping.queues(at=START + MINUTE, every=True) == [found]

    async def test_queue_counts_recent_work_for_five_minutes(self, backend: Backend) -> None:
        for n in range(3):
            await submit(backend, message(new=f't{n}', at=START + n * MINUTE))
            await claim_and_finish(backend, f't{n}', at=START + n * 2 * MINUTE)
        found = [await nonzero_counts(backend, at=START + n * MINUTE) for n in (5, 6, 7, 8)]
        assert [(each.get('accepted', 0), each.get('ended', 0)) for each in found] == [(3, 3), (2, 2), (1, 2), (0, 1)]
        assert await backend.housekeeping.sweep(Retention(), at=START + 5 * MINUTE)  # files them, and deletes events
        assert [await nonzero_counts(backend, at=START + n * MINUTE) for n in (5, 6, 7, 8)] == found

    async def test_empty_queue_has_no_counts(self, backend: Backend) -> None:
        assert await nonzero_counts(backend) == {'namespace': 'agent'}
        assert await backend.housekeeping.queues(at=START, every=True) == []

    async def test_waiting_time_of_answered_task_starts_at_answer(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        await claim_and_finish(backend, 't', 'input-required', at=START)
        await submit(backend, message('yes', to='t', at=START + 7))
        assert (await nonzero_counts(backend))['oldest'] == START + 7
        await claim_task(backend, 't', lease=EXPIRED)
        assert 'oldest' not in await nonzero_counts(backend)

    async def test_paused_queue_accepts_tasks_but_allows_no_claims(self, backend: Backend) -> None:
        await submit(backend, message(new='running'))
        running = await claim_task(backend, 'running')
        for name in ('lost', 'released'):
            await submit(backend, message(new=name))
        await claim_task(backend, 'lost', 'lost holder', lease=EXPIRED)
        await backend.queue.release(await claim_task(backend, 'released'))
        assert not await backend.paused()
        await backend.housekeeping.pause(START)
        assert await backend.paused()
        assert (await nonzero_counts(backend))['paused_at'] == START
        accepted = [
            await submit(backend, message(new=f'offered {n}', context='c' if n else None), slot=Slot('holder', LEASE))
            for n in range(2)
        ]
        await submit(backend, message(new='queued'))
        assert [(each.header.queued, each.claim) for each in accepted] == [(True, None)] * 2
        assert await claim_all(backend) == []
        for name in ('queued', 'lost', 'released'):
            assert await backend.queue.claim(Slot('holder', LEASE), at=START, limit=1, task_id=name) == []
        assert await backend.queue.finish(running, finish_of(running)) is None
        assert await state_of(backend, 'running') == 'completed'
        await backend.housekeeping.pause(None)
        assert not await backend.paused()
        claimed = await claim_up_to(backend, 5, limit=100)
        assert sorted(each.header.id for each in claimed) == ['lost', 'offered 0', 'offered 1', 'queued', 'released']


class OwnerLimitSuite(PortSuite):
    """Tests of a limit of running tasks for each owner."""

    async def test_running_limit_leaves_slots_to_other_owners(self, backend: Backend) -> None:
        for n in range(5):
            await submit(backend, message(new=f'ann {n}', owner='/ann'))
        for owner in ('/bob', '/cid'):
            await submit(backend, message(new=f'{owner} 0', owner=owner))
        first = await claim_limited(backend, 4, limit=4)
        assert sorted(first) == ['/bob 0', '/cid 0', 'ann 0', 'ann 1']
        assert await claim_limited(backend, 0, limit=4) == {}
        await backend.queue.finish(first['ann 0'], finish_of(first['ann 0']))
        await submit(backend, message(new='/bob 1', owner='/bob'))
        assert sorted(await claim_limited(backend, 2, limit=4)) == ['/bob 1', 'ann 2']

    async def test_interrupted_or_released_task_frees_slot_of_owner(self, backend: Backend) -> None:
        for n in range(4):
            await submit(backend, message(new=f't{n}'))
        first = await claim_limited(backend, 2, limit=4)
        await backend.queue.finish(first['t0'], finish_of(first['t0'], 'input-required'))
        await backend.queue.release(first['t1'], Tried(number=1, spent=1, usage=RunUsage()), pause=EXPIRED)
        assert sorted(await claim_limited(backend, 2, limit=4)) in (['t1', 't2'], ['t2', 't3'])
        await submit(backend, message('yes', to='t0', at=START + 5))
        assert await claim_limited(backend, 0, limit=4) == {}

    async def test_lost_task_keeps_its_place_in_running_limit(self, backend: Backend) -> None:
        for n in range(3):
            await submit(backend, message(new=f't{n}'))
        await claim_limited(backend, 2, limit=2)
        await expire_lease(backend, 't0')
        assert sorted(await claim_limited(backend, 1, limit=4, holder='other')) == ['t0']

    async def test_message_of_owner_at_running_limit_is_queued(self, backend: Backend) -> None:
        slot = Slot('holder', LEASE, owner_limit=1)
        [begun, waits, other] = [
            await submit(backend, message(new=name, owner=f'/{name[0]}'), slot=slot) for name in ('a0', 'a1', 'b0')
        ]
        assert begun.claim is not None
        assert (waits.header.queued, waits.claim) == (True, None)
        assert other.header.queued, 'another task is queued, and is looked at first'
        assert sorted(await claim_limited(backend, 1, limit=4, most=1)) == ['b0']
        assert await backend.queue.claim(Slot('holder', LEASE, 1), at=START, limit=1, task_id='a1') == []
        await backend.queue.finish(begun.claim, finish_of(begun.claim))
        assert sorted(await claim_limited(backend, 1, limit=4, most=1)) == ['a1']

    async def test_concurrent_workers_keep_running_limit_of_owner(self, backend: Backend) -> None:
        for n in range(12):
            await submit(backend, message(new=f't{n}', owner='/ann' if n % 2 else '/bob'))
        claims = [claim_limited(backend, 0, limit=6, holder=f'holder {n}') for n in range(6)]
        claimed = [task for some in await asyncio.gather(*claims) for task in some.values()]
        claimed += (await claim_limited(backend, 4 - len(claimed), limit=12)).values()
        assert sorted(task.header.owner for task in claimed) == ['/ann', '/ann', '/bob', '/bob']


async def claim_limited(
    backend: Backend, count: int, *, limit: int, holder: str = 'holder', most: int = 2
) -> dict[str, Claim]:
    """Claim at least `count` tasks, with at most `most` running tasks of an owner."""
    claims: dict[str, Claim] = {}
    async with asyncio.timeout(LIMIT):
        while True:
            rest = limit - len(claims)
            some = await backend.queue.claim(Slot(holder, LEASE, most), at=START, limit=rest)
            claims |= {task.header.id: task for task in some}
            if len(claims) >= count:
                return claims
            await asyncio.sleep(0)
