"""Tests of claims: order, one run for each context, leases, fences."""

from __future__ import annotations

import asyncio
import json

import pytest
from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a.errors import LeaseLost
from pydantic_ai_a2a.server.store.ports import Backend, Marks, Slot
from pydantic_ai_a2a.server.store.ports.failed_tries import Tried

from .base import PortSuite
from .values import (
    EXPIRED,
    LEASE,
    OWNER,
    START,
    claim_all,
    claim_and_finish,
    claim_task,
    events,
    expire_lease,
    finish_and_continue,
    finish_of,
    message,
    state_of,
    status_event,
    submit,
    text_of_body,
)

__all__ = ('ClaimSuite',)


HOUR = 3_600_000
TRIED = Tried(number=2, spent=1.5, usage=RunUsage(requests=3, input_tokens=10, details={'cached': 3}))


class ClaimSuite(PortSuite):
    """Tests of claims."""

    async def test_claim_moves_task_to_working_and_returns_message(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        claimed = await claim_task(backend, 't', at=START + 7)
        assert (claimed.header.state, claimed.header.status_at, claimed.header.last_event) == ('working', START + 7, 1)
        assert (claimed.holder, claimed.attempt, claimed.run) == ('holder', 1, 1)
        assert (claimed.head, claimed.own_messages) == (None, None)
        assert text_of_body(claimed.message) == 'hi'
        [event] = await events(backend, 't')
        assert (event.n, event.state) == (1, 'working')
        assert json.loads(event.payload) == {
            'statusUpdate': {
                'taskId': 't',
                'contextId': 'context of t',
                'status': {'state': 'TASK_STATE_WORKING', 'timestamp': '2023-11-14T22:13:20.007Z'},
            }
        }

    async def test_claims_follow_queue_order_up_to_limit(self, backend: Backend) -> None:
        for task_id in 'edcba':
            await submit(backend, message(new=task_id))
        assert [task.header.id for task in await claim_all(backend, limit=2)] == ['e', 'd']
        assert [task.header.id for task in await claim_all(backend, limit=9)] == ['c', 'b', 'a']
        assert await claim_all(backend) == []

    async def test_claim_skips_given_tasks(self, backend: Backend) -> None:
        for task_id in 'abcd':
            await submit(backend, message(new=task_id))
        queue = backend.queue
        claims = await queue.claim(Slot('holder', LEASE), at=START, limit=2, skip=['a', 'c', 'unknown'])
        assert [task.header.id for task in claims] == ['b', 'd']
        assert await queue.claim(Slot('holder', LEASE), at=START, limit=1, task_id='a', skip={'a'}) == []
        assert [task.header.id for task in await claim_all(backend)] == ['a', 'c']

    async def test_owners_take_turns_in_task_queue(self, backend: Backend) -> None:
        for n in range(40):
            await submit(backend, message(new=f'ada {n}'))
        for n in range(3):
            await submit(backend, message(new=f'bob {n}', owner='/bob'))
        await submit(backend, message(new='eve', owner='/eve'))
        order = [task.header.id for _ in range(9) for task in await claim_all(backend, limit=1)]
        assert order == ['ada 0', 'bob 0', 'eve', 'ada 1', 'bob 1', 'ada 2', 'bob 2', 'ada 3', 'ada 4']
        await submit(backend, message(new='late', owner='/bob'))
        assert [task.header.id for task in await claim_all(backend, limit=3)] == ['ada 5', 'late', 'ada 6']

    async def test_owner_without_queued_tasks_saves_up_no_turns(self, backend: Backend) -> None:
        for n in range(20):
            await submit(backend, message(new=f'ada {n}'))
        await claim_all(backend, limit=15)
        for n in range(3):
            await submit(backend, message(new=f'bob {n}', owner='/bob'))
        order = [task.header.id for task in await claim_all(backend, limit=6)]
        assert order == ['ada 15', 'bob 0', 'ada 16', 'bob 1', 'ada 17', 'bob 2']

    async def test_canceled_and_blocked_tasks_take_no_turns(self, backend: Backend) -> None:
        for n in range(10):
            await submit(backend, message(new=f'canceled {n}'))
            await submit(backend, message(new=f'busy {n}', context='busy', owner='/eve'))
            await submit(backend, message(new=f'bob {n}', owner='/bob'))
        for n in range(10):
            await backend.queue.cancel(f'canceled {n}', OWNER, at=START)
        for task_id, owner in (('ada', OWNER), ('eve', '/eve')):
            await submit(backend, message(new=task_id, owner=owner))
        order = [task.header.id for task in await claim_all(backend, limit=5)]
        assert order == ['busy 0', 'bob 0', 'ada', 'bob 1', 'eve']

    async def test_answered_and_unblocked_tasks_queue_behind_tasks_of_owner(self, backend: Backend) -> None:
        await submit(backend, message(new='asks'))
        await claim_and_finish(backend, 'asks', 'input-required')
        for n in range(3):
            await submit(backend, message(new=f'ada {n}', context='c' if n < 2 else None))
            await submit(backend, message(new=f'bob {n}', owner='/bob'))
        await submit(backend, message('answer', to='asks'))
        [first] = await claim_all(backend, limit=1)
        await backend.queue.finish(first, finish_of(first))
        order = [task.header.id for _ in range(6) for task in await claim_all(backend, limit=1)]
        # The tasks of a round are claimed in the order of their times, which may be equal.
        rounds = [order[:1], sorted(order[1:3]), sorted(order[3:5]), order[5:]]
        assert (first.header.id, rounds) == ('ada 0', [['bob 0'], ['ada 2', 'bob 1'], ['asks', 'bob 2'], ['ada 1']])

    async def test_task_is_claimed_by_id_only_once(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        await submit(backend, message(new='u'))
        assert (await claim_task(backend, 'u')).header.id == 'u'
        assert await backend.queue.claim(Slot('other', LEASE), at=START, limit=1, task_id='u') == []
        assert await backend.queue.claim(Slot('other', LEASE), at=START, limit=1, task_id='nowhere') == []

    async def test_tasks_of_same_context_are_claimed_sequentially(self, backend: Backend) -> None:
        for task_id in 'abc':
            await submit(backend, message(new=task_id, context='c'))
        await submit(backend, message(new='elsewhere'))
        order: list[str] = []
        while claims := await claim_all(backend):
            order.append('+'.join(task.header.id for task in claims))
            for task in claims:
                await backend.queue.finish(task, finish_of(task))
        assert order == ['a+elsewhere', 'b', 'c']

    async def test_claim_by_id_keeps_order_of_context(self, backend: Backend) -> None:
        await submit(backend, message(new='a', context='c'))
        await submit(backend, message(new='b', context='c'))
        assert await backend.queue.claim(Slot('h', LEASE), at=START, limit=1, task_id='b') == []
        await claim_and_finish(backend, 'a')
        assert (await claim_task(backend, 'b')).header.id == 'b'

    async def test_context_of_another_owner_blocks_no_task(self, backend: Backend) -> None:
        await submit(backend, message(new='theirs', context='c', owner='/bob'))
        await submit(backend, message(new='their next', context='c', owner='/bob'))
        await submit(backend, message(new='a', context='c'))
        await submit(backend, message(new='b', context='c'))
        _, first = await claim_all(backend)
        await backend.queue.finish(first, finish_of(first, 'input-required'))
        [second] = await claim_all(backend)
        assert (first.header.id, second.header.id) == ('a', 'b')
        await backend.queue.finish(second, finish_of(second))
        await submit(backend, message('answer', to='a'))
        assert [task.header.id for task in await claim_all(backend)] == ['a']

    async def test_interrupted_task_does_not_block_its_context(self, backend: Backend) -> None:
        await submit(backend, message(new='a', context='c'))
        await submit(backend, message(new='b', context='c'))
        await claim_and_finish(backend, 'a', 'input-required')
        assert [task.header.id for task in await claim_all(backend)] == ['b']

    async def test_answered_task_queues_behind_earlier_tasks_of_context(self, backend: Backend) -> None:
        await submit(backend, message(new='a', context='c'))
        await submit(backend, message(new='b', context='c'))
        await claim_and_finish(backend, 'a', 'auth-required')
        await submit(backend, message('answer', to='a'))
        assert [task.header.id for task in await claim_all(backend)] == ['b']

    async def test_answered_task_is_working_while_context_is_busy(self, backend: Backend) -> None:
        await submit(backend, message(new='a', context='c'))
        await claim_and_finish(backend, 'a', 'input-required')
        await submit(backend, message(new='b', context='c'))
        other = await claim_task(backend, 'b')
        await submit(backend, message('answer', to='a', at=START + 5))
        assert await state_of(backend, 'a') == 'working'
        assert await claim_all(backend, 'other') == []
        assert await backend.queue.claim(Slot('other', LEASE), at=START, limit=1, task_id='a') == []
        assert await backend.queue.renew('holder', ['a', 'b'], lease=LEASE) == Marks(['a'], [])
        await expire_lease(backend, 'b')
        late = await claim_all(backend, 'other')
        assert [task.header.id for task in late] == ['b']  # the lease of task b has expired
        with pytest.raises(LeaseLost):
            await backend.queue.finish(other, finish_of(other))
        await backend.queue.finish(late[0], finish_of(late[0]))
        [claimed] = await claim_all(backend, at=START + 9)
        header = claimed.header
        assert (header.id, header.state, header.queued, header.status_at) == ('a', 'working', False, START + 5)
        assert (claimed.run, claimed.attempt, header.last_event) == (2, 1, 3)
        states = [event.state for event in await events(backend, 'a')]
        assert states == ['working', 'input-required', 'working']

    async def test_expired_lease_lets_another_holder_claim_task(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        first = await claim_task(backend, 't', 'lost')
        assert await claim_all(backend, 'other') == []
        await expire_lease(backend, 't', 'lost')
        [second] = await claim_all(backend, 'other')
        assert (second.header.id, second.holder, second.attempt, second.run) == ('t', 'other', 2, 1)
        assert second.fence > first.fence
        assert text_of_body(second.message) == 'hello'
        assert second.header.last_event == 1  # the task was working before: no new event
        for late in (
            backend.queue.emit(first, [status_event(2, 'working')]),
            backend.queue.finish(first, finish_of(first)),
        ):
            with pytest.raises(LeaseLost):
                await late
        await backend.queue.release(first)
        assert await state_of(backend, 't') == 'working'
        assert await claim_all(backend, 'third') == []

    async def test_holder_does_not_reclaim_its_own_expired_lease(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        await claim_task(backend, 't', 'slow', lease=EXPIRED)
        assert await claim_all(backend, 'slow') == []

    async def test_lost_tasks_are_claimed_before_queued_tasks(self, backend: Backend) -> None:
        await submit(backend, message(new='lost'))
        await claim_task(backend, 'lost', 'gone', lease=EXPIRED)
        await submit(backend, message(new='queued'))
        assert [task.header.id for task in await claim_all(backend, limit=1)] == ['lost']
        assert [task.header.id for task in await claim_all(backend, limit=1)] == ['queued']

    async def test_claim_can_leave_out_lost_tasks(self, backend: Backend) -> None:
        for task_id in ('lost', 'released', 'queued'):
            await submit(backend, message(new=task_id))
        await claim_task(backend, 'lost', 'gone', lease=EXPIRED)
        await backend.queue.release(await claim_task(backend, 'released', 'gone'))
        claims = await backend.queue.claim(Slot('holder', LEASE), at=START, limit=9, lost=False)
        assert [task.header.id for task in claims] == ['released', 'queued']
        assert [task.header.id for task in await claim_all(backend)] == ['lost']

    async def test_renewed_lease_does_not_expire(self, backend: Backend) -> None:
        for task_id in 'ab':
            await submit(backend, message(new=task_id))
        await claim_all(backend, 'holder', lease=EXPIRED)
        assert await backend.queue.renew('holder', ['a'], lease=LEASE) == Marks([], [])
        assert [task.header.id for task in await claim_all(backend, 'other')] == ['b']

    @pytest.mark.parametrize('hours', [-1, 1], ids=['back', 'forward'])
    async def test_wall_clock_change_does_not_affect_leases(self, backend: Backend, hours: int) -> None:
        for task_id in ('kept', 'lost'):
            await submit(backend, message(new=task_id))
        await claim_task(backend, 'kept')
        await claim_task(backend, 'lost', lease=EXPIRED)
        at = START + hours * HOUR
        assert [task.header.id for task in await claim_all(backend, 'other', at=at)] == ['lost']

    async def test_renewal_reports_lost_tasks_and_requested_cancels(self, backend: Backend) -> None:
        for task_id in ('taken', 'forced', 'done', 'asked', 'kept'):
            await submit(backend, message(new=task_id))
            await claim_task(backend, task_id, 'holder', lease=EXPIRED)
        await backend.queue.renew('holder', ['forced', 'done', 'asked', 'kept'], lease=LEASE)
        await claim_all(backend, 'other', lease=EXPIRED)
        await backend.queue.cancel('forced', None, at=START, force=True)
        await backend.queue.cancel('asked', None, at=START)
        await backend.queue.renew('holder', ['done', 'asked', 'kept'], lease=EXPIRED)
        [done] = [task for task in await claim_all(backend, 'third') if task.header.id == 'done']
        await backend.queue.finish(done, finish_of(done))
        held = ['taken', 'forced', 'done', 'asked', 'kept', 'nowhere']
        marks = await backend.queue.renew('other', held, lease=LEASE)
        assert marks == Marks(lost=['taken', 'forced', 'done', 'asked', 'kept', 'nowhere'], cancel=[])
        marks = await backend.queue.renew('third', held, lease=LEASE)
        assert marks == Marks(lost=['forced', 'done', 'nowhere'], cancel=['asked'])

    async def test_released_task_keeps_attempt_and_blocks_its_context(self, backend: Backend) -> None:
        await submit(backend, message(new='a', context='c'))
        await submit(backend, message(new='b', context='c'))
        first = await claim_task(backend, 'a', 'one')
        await backend.queue.release(first)
        assert await state_of(backend, 'a') == 'working'
        [again] = await claim_all(backend, 'two')
        assert (again.header.id, again.attempt, again.run) == ('a', 1, 1)
        assert again.fence > first.fence
        with pytest.raises(LeaseLost):
            await backend.queue.finish(first, finish_of(first))

    async def test_released_task_can_be_claimed_by_id(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        await backend.queue.release(await claim_task(backend, 't', 'one'))
        assert (await claim_task(backend, 't', 'two')).holder == 'two'

    async def test_released_task_is_claimed_after_its_pause(self, backend: Backend) -> None:
        for task_id in ('waits', 'due'):
            await submit(backend, message(new=task_id, context=task_id))
        waits, due = await claim_all(backend)
        await backend.queue.release(waits, TRIED, pause=HOUR)
        await backend.queue.release(due, TRIED, pause=0)
        await submit(backend, message(new='behind', context='waits'))
        assert [task.header.id for task in await claim_all(backend)] == ['due']
        assert await state_of(backend, 'waits') == 'working'
        again = await claim_task(backend, 'waits', 'other')  # by its id, before the end of the pause
        assert (again.holder, again.attempt, again.fence > waits.fence) == ('other', 1, True)
        assert await claim_all(backend) == []

    async def test_due_retries_and_queued_tasks_alternate_after_lost_tasks(self, backend: Backend) -> None:
        for n in range(2):
            await submit(backend, message(new=f'tried {n}'))
        for claimed in await claim_all(backend):
            await backend.queue.release(claimed, TRIED, pause=0)
        for task_id in ('lost', 'queued 0', 'queued 1'):
            await submit(backend, message(new=task_id))
        await claim_task(backend, 'lost', 'gone', lease=EXPIRED)
        claims = [task.header.id.partition(' ')[0] for task in await claim_all(backend, limit=3)]
        assert (claims[0], sorted(claims)) == ('lost', ['lost', 'queued', 'tried'])
        assert len(await claim_all(backend)) == 2

    async def test_task_canceled_during_retry_pause_ends_at_once(self, backend: Backend) -> None:
        await submit(backend, message(new='t', context='c'))
        await backend.queue.release(await claim_task(backend, 't'), TRIED, pause=HOUR)
        assert (await backend.queue.cancel('t', None, at=START)).state == 'canceled'
        await submit(backend, message(new='next', context='c'))
        assert [task.header.id for task in await claim_all(backend)] == ['next']

    async def test_failed_tries_are_kept_until_run_ends(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        await submit(backend, message('more', to='t'))
        first = await claim_task(backend, 't')
        assert (first.tried, first.used) == (None, None)
        await backend.queue.release(first, TRIED)
        second = await claim_task(backend, 't')
        assert (second.tried, second.used) == (TRIED, TRIED.usage)
        await backend.queue.release(second)
        third = await claim_task(backend, 't')
        assert third.tried == TRIED
        following = await finish_and_continue(backend, third, finish_of(third))
        assert following.tried is None
        await backend.queue.release(following, TRIED)
        fourth = await claim_task(backend, 't')
        await backend.queue.finish(fourth, finish_of(fourth, 'input-required', after=3))
        await submit(backend, message('answer', to='t'))
        assert (await claim_task(backend, 't')).tried is None

    async def test_release_of_stale_claim_has_no_effect(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        stale = await claim_task(backend, 't', 'lost', lease=EXPIRED)
        [valid] = await claim_all(backend, 'other')
        await backend.queue.release(stale, TRIED, pause=HOUR)
        assert await backend.queue.renew('other', ['t'], lease=LEASE) == Marks([], [])
        await backend.queue.release(valid)
        assert (await claim_task(backend, 't')).tried is None

    async def test_release_after_end_leaves_task_completed(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        claimed = await claim_and_finish(backend, 't')
        await backend.queue.release(claimed)
        assert await state_of(backend, 't') == 'completed'
        assert await claim_all(backend) == []

    async def test_concurrent_claims_never_share_task_or_context(self, backend: Backend) -> None:
        for n in range(12):
            await submit(backend, message(new=f't{n}', context=f'c{n % 4}'))
        order: list[str] = []
        while any(rounds := await asyncio.gather(*(claim_all(backend, f'holder {n}', limit=2) for n in range(3)))):
            claims = [task for taken in rounds for task in taken]
            assert len({task.header.context_id for task in claims}) == len(claims)
            order += sorted(task.header.id for task in claims)
            await asyncio.gather(*(backend.queue.finish(task, finish_of(task)) for task in claims))
        assert sorted(order) == sorted(f't{n}' for n in range(12))

    async def test_released_task_can_be_claimed_by_same_holder(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        first = await claim_task(backend, 't')
        await backend.queue.release(first)
        again = await claim_task(backend, 't')
        assert (again.attempt, again.fence > first.fence) == (1, True)
