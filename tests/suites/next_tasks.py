"""Tests of ends that claim the next queued task for the slot of their run."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from pydantic_ai_a2a.errors import LeaseLost, OverloadedError
from pydantic_ai_a2a.server.store.ports import Backend, Claim, Slot

from .base import MakeBackend, PortSuite
from .values import (
    EXPIRED,
    LEASE,
    OWNER,
    START,
    artifact_chunk,
    claim_all,
    claim_and_finish,
    claim_task,
    finish_of,
    message,
    submit,
)

__all__ = ('NextTaskSuite',)

SLOT = Slot('holder', LEASE)
_TAKING = pytest.mark.usefixtures('takes_next')
STEPS = 60


async def queue(backend: Backend, task_id: str, **fields: Any) -> None:
    """Queue a task without a reader of its events."""
    await submit(backend, replace(message(new=task_id, **fields), logged=False))


async def end(backend: Backend, claimed: Claim, *, slot: Slot | None = SLOT) -> Claim | None:
    """End a run, and return the claim of the next queued task."""
    return await backend.queue.finish(claimed, finish_of(claimed, artifacts=[], slot=slot))


async def run_at_random(backend: Backend, seed: int, *, slot: Slot | None) -> list[str]:
    """Queue and run tasks of three owners in two slots. Return the tasks in the order of their claims."""
    random, held, order = Random(seed), list[Claim](), list[str]()
    for step in range(STEPS):
        if random.random() < 0.6:
            owner = random.choice(['/ada', '/bob', '/eve'])
            await queue(backend, f'{step}', owner=owner, context=random.choice([None, 'b', 'c']))
        if len(held) < 2:
            claims = await claim_all(backend, limit=1)
        else:
            following = await end(backend, held.pop(random.randrange(2)), slot=slot)
            claims = await claim_all(backend, limit=1) if slot is None else [] if following is None else [following]
        held += claims
        order += [claim.header.id for claim in claims]
    return order


class NextTaskSuite(PortSuite):
    """Tests of `TaskQueue.takes_next`."""

    @pytest.fixture
    def takes_next(self, backend: Backend) -> None:
        if not backend.queue.takes_next:
            pytest.skip('The ends of this backend claim no task.')

    @_TAKING
    @pytest.mark.parametrize('seed', range(3))
    async def test_ends_take_tasks_in_order_of_claims(self, make_backend: MakeBackend, seed: int) -> None:
        orders: list[list[str]] = []
        for slot in (SLOT, None):
            backend = make_backend()
            orders.append(await run_at_random(backend, seed, slot=slot))
            backend.close()
        assert orders[0] == orders[1]
        assert len(orders[0]) > STEPS / 4

    @_TAKING
    async def test_end_returns_claim_of_next_task(self, backend: Backend) -> None:
        for task_id in ('t', 'u'):
            await queue(backend, task_id)
        following = await end(backend, await claim_task(backend, 't'))
        assert following is not None
        assert (following.header.id, following.header.state, following.header.last_event) == ('u', 'working', 1)
        assert (following.holder, following.fence, following.attempt, following.run) == ('holder', 1, 1, 1)
        await backend.queue.emit(following, [artifact_chunk(2, 'a')])
        assert await end(backend, replace(following, header=replace(following.header, last_event=2))) is None

    @_TAKING
    @pytest.mark.parametrize(
        'case', ['events have a reader', 'a released task goes first', 'its context runs', 'it goes on after a pause']
    )
    async def test_end_leaves_ineligible_task_to_claim(self, backend: Backend, case: str) -> None:
        await queue(backend, 't')
        if case == 'a released task goes first':
            await queue(backend, 'released')
        await queue(backend, 'runs', context='c')
        claims = await claim_all(backend)
        expected = ['u']
        if case == 'events have a reader':
            await submit(backend, message(new='u'))
        elif case == 'a released task goes first':
            await backend.queue.release(claims[1])
            await queue(backend, 'u')
            expected = ['released', 'u']
        elif case == 'it goes on after a pause':
            await queue(backend, 'u')
            await claim_and_finish(backend, 'u', 'input-required')
            await submit(backend, replace(message('answer', to='u'), logged=False))
        else:
            await queue(backend, 'u', context='c')
            expected = []
        assert await end(backend, claims[0]) is None
        assert [claim.header.id for claim in await claim_all(backend)] == expected

    @_TAKING
    async def test_end_takes_next_task_of_same_context(self, backend: Backend) -> None:
        for task_id in ('t', 'u'):
            await queue(backend, task_id, context='c')
        following = await end(backend, await claim_task(backend, 't'))
        assert following is not None
        assert following.header.id == 'u'

    @_TAKING
    async def test_continued_run_takes_no_next_task(self, backend: Backend) -> None:
        for task_id in ('t', 'u'):
            await queue(backend, task_id)
        claimed = await claim_task(backend, 't')
        await submit(backend, message('more', to='t'))
        following = await end(backend, claimed)
        assert following is not None
        assert (following.header.id, following.run) == ('t', 2)

    @_TAKING
    async def test_task_taken_by_end_frees_place_in_queue(self, backend: Backend) -> None:
        for task_id in ('t', 'u'):
            await queue(backend, task_id)
        claimed = await claim_task(backend, 't')
        with pytest.raises(OverloadedError):
            await submit(backend, message(new='v'), queue_limit=1)
        await end(backend, claimed)
        await submit(backend, message(new='w'), queue_limit=1)

    @_TAKING
    async def test_continued_run_frees_no_place_in_queue(self, backend: Backend) -> None:
        for task_id in ('t', 'u'):
            await queue(backend, task_id)
        claimed = await claim_task(backend, 't')
        await submit(backend, message('more', to='t'))
        await end(backend, claimed)
        with pytest.raises(OverloadedError):
            await submit(backend, message(new='v'), queue_limit=1)

    @_TAKING
    async def test_repeated_end_releases_next_task_of_first_end(self, backend: Backend) -> None:
        for task_id in ('t', 'u', 'v'):
            await queue(backend, task_id)
        claimed = await claim_task(backend, 't')
        following = await end(backend, claimed)
        assert await end(backend, claimed) is None  # the answer to the first one was lost
        [again] = await claim_all(backend, 'other', limit=1)
        assert (again.header.id, again.attempt) == ('u', 1)
        assert following is not None
        with pytest.raises(LeaseLost):
            await end(backend, following)

    @_TAKING
    async def test_release_after_end_without_answer_releases_next_task(self, backend: Backend) -> None:
        for task_id in ('t', 'u'):
            await queue(backend, task_id)
        claimed = await claim_task(backend, 't')
        await end(backend, claimed)  # without an answer; then the worker gives up the task
        with pytest.raises(LeaseLost):
            await backend.queue.finish(claimed, finish_of(claimed, 'failed'))
        await backend.queue.release(claimed)
        [again] = await claim_all(backend)
        assert (again.header.id, again.attempt) == ('u', 1)

    @_TAKING
    async def test_repeated_end_leaves_task_with_later_claim(self, backend: Backend) -> None:
        for task_id in ('t', 'u'):
            await queue(backend, task_id)
        claimed = await claim_task(backend, 't')
        following = await end(backend, claimed)
        assert following is not None
        await backend.queue.release(following)
        [later] = await claim_all(backend)
        assert await end(backend, claimed) is None
        assert await end(backend, later) is None
        assert await claim_all(backend) == []

    @_TAKING
    async def test_release_of_stale_claim_keeps_next_task(self, backend: Backend) -> None:
        for task_id in ('t', 'u', 'v'):
            await queue(backend, task_id)
        earlier = await end(backend, await claim_task(backend, 't'))
        assert earlier is not None
        await backend.queue.release(earlier)
        [later] = await claim_all(backend, limit=1)
        following = await end(backend, later)
        await backend.queue.release(earlier)
        assert following is not None
        assert await end(backend, following) is None

    @_TAKING
    async def test_next_task_of_lost_process_is_claimed_again(self, backend: Backend) -> None:
        for task_id in ('t', 'u'):
            await queue(backend, task_id)
        await end(backend, await claim_task(backend, 't'))
        await backend.queue.renew('holder', ['u'], lease=EXPIRED)
        [taken] = await claim_all(backend, 'other')
        assert (taken.header.id, taken.fence, taken.attempt) == ('u', 2, 2)
        assert (taken.header.owner, taken.header.status_at) == (OWNER, START)
