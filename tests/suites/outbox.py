"""Tests of deliveries to webhooks: none is lost, doubled or out of order, and a task stays until all are made."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from pydantic_ai_a2a.errors import InvalidParamsError, LeaseLost, UnsupportedOperationError
from pydantic_ai_a2a.server.store.ports import Backend, DeadDelivery, Slot, Takes
from pydantic_ai_a2a.settings import Retention

from .answers import answer_to, current_pause, interrupt_task
from .base import PortSuite
from .push import (
    artifact,
    artifact_event,
    cancel_task_with_webhooks,
    complete_task_with_webhook,
    config,
    configs_of,
    deliver_all,
    event_summary,
    give_up,
    lease_deliveries,
    outbox_of,
    register,
    with_config,
)
from .values import (
    EXPIRED,
    LEASE,
    OWNER,
    START,
    claim_all,
    claim_and_finish,
    claim_task,
    finish_of,
    load,
    message,
    submit,
    sweep,
    task_ids,
)

__all__ = (
    'OutboxSuite',
    'PendingDeliverySuite',
)


class OutboxSuite(PortSuite):
    """Tests of deliveries, from the commit of the events to the deletion."""

    async def test_each_webhook_gets_all_events_in_order(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        await register(backend, 'a', 'b')
        claimed = await claim_task(backend, 't')
        await backend.queue.emit(claimed, [artifact_event(2, 'whole', last=True)])
        await backend.queue.finish(claimed, finish_of(claimed, after=2))
        heard = ['1 working', '2 whole', '3 completed']
        assert await deliver_all(backend) == {'a': heard, 'b': heard}

    async def test_webhook_gets_events_after_its_message(self, backend: Backend) -> None:
        await submit(backend, with_config(message(new='t'), 'a'))
        await claim_and_finish(backend, 't', 'input-required')
        await submit(backend, with_config(message('more', to='t'), 'b'))
        await claim_and_finish(backend, 't')
        rest = ['3 working', '4 completed']
        assert await deliver_all(backend) == {'a': ['1 working', '2 input-required', *rest], 'b': rest}

    async def test_webhook_gets_working_after_end_of_another_task(self, backend: Backend) -> None:
        await submit(backend, message(new='ends'))
        ending = await claim_task(backend, 'ends')
        await submit(backend, replace(with_config(message(new='t'), 'c'), logged=False))
        slot = Slot('holder', LEASE)
        await backend.queue.finish(ending, finish_of(ending, artifacts=[], slot=slot))
        await claim_all(backend)
        assert await deliver_all(backend) == {'c': ['1 working']}

    async def test_message_with_push_config_over_limit_is_refused(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        await register(backend, *'0123456789')
        await claim_and_finish(backend, 't', 'input-required')
        with pytest.raises(InvalidParamsError):
            await submit(backend, with_config(message('more', to='t'), 'one more'))
        task = await load(backend, 't')
        assert task.header.state == 'input-required'

    async def test_webhook_gets_statuses_artifacts_or_chunks_as_configured(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        takes: tuple[Takes, ...] = ('statuses', 'artifacts', 'chunks')
        for take in takes:
            await register(backend, take, takes=take)
        claimed = await claim_task(backend, 't')
        await backend.queue.emit(claimed, [artifact_event(2, 'one ')])
        await backend.queue.emit(
            claimed, [artifact_event(3, 'two', append=True), artifact_event(4, '', append=True, last=True)]
        )
        await backend.queue.finish(claimed, finish_of(claimed, after=4))
        assert await deliver_all(backend) == {
            'statuses': ['1 working', '5 completed'],
            'artifacts': ['1 working', '4 one two', '5 completed'],
            'chunks': ['1 working', '2 one ', '3 two', '4 ', '5 completed'],
        }

    async def test_webhook_gets_final_artifact_as_stored(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        await register(backend, 'c')
        claimed = await claim_task(backend, 't')
        await backend.queue.emit(claimed, [artifact_event(2, 'draft')])
        last = artifact_event(3, '', append=True, last=True)
        await backend.queue.finish(
            claimed, finish_of(claimed, after=3, events=[last], artifacts=[('a', artifact('the end'))])
        )
        assert await deliver_all(backend) == {'c': ['1 working', '3 the end', '4 completed']}

    async def test_webhook_is_notified_of_cancel_and_expiry(self, backend: Backend) -> None:
        for task_id in ('queued', 'waits'):
            await submit(backend, message(new=task_id))
            await register(backend, task_id, task_id=task_id)
        await claim_and_finish(backend, 'waits', 'input-required')
        await backend.queue.cancel('queued', OWNER, at=START)
        await sweep(backend, Retention(waiting=timedelta(seconds=1)), at=START + 10_000)
        assert await deliver_all(backend) == {
            'queued': ['1 canceled'],
            'waits': ['1 working', '2 input-required', '3 failed'],
        }

    async def test_webhook_is_notified_of_question_after_partial_answer(self, backend: Backend) -> None:
        await interrupt_task(backend)
        await register(backend, 'c')
        waiting = await current_pause(backend)
        await submit(backend, answer_to(waiting, 'one', rest=b'{"messageId":"r","parts":[]}'))
        assert await deliver_all(backend) == {'c': [f'{waiting.number + 1} input-required']}

    async def test_refused_write_notifies_no_webhook(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        claimed = await claim_task(backend, 't')
        await register(backend, 'c')
        await backend.queue.cancel('t', OWNER, at=START, force=True)
        with pytest.raises(LeaseLost):
            await backend.queue.finish(claimed, finish_of(claimed))
        assert await deliver_all(backend) == {'c': ['2 canceled']}

    async def test_leased_delivery_is_exclusive_until_lease_expires(self, backend: Backend) -> None:
        await complete_task_with_webhook(backend)
        [first] = await lease_deliveries(backend, lease=EXPIRED)
        [again] = await lease_deliveries(backend)
        assert (again.id, again.event, again.failures) == (first.id, first.event, 0)
        waiting = await outbox_of(backend).lease(lease=LEASE, limit=1, held={})
        assert list(waiting.deliveries) == []
        assert waiting.wait is not None
        assert 0 < waiting.wait <= LEASE
        await outbox_of(backend).done(first)  # too late: another sender may have the delivery
        assert await lease_deliveries(backend) == []
        await outbox_of(backend).done(again)
        assert await deliver_all(backend) == {'c': ['2 completed']}

    async def test_delivery_has_task_owner_and_config_as_registered(self, backend: Backend) -> None:
        await complete_task_with_webhook(backend)
        [delivery] = await lease_deliveries(backend)
        assert (delivery.task_id, delivery.owner, delivery.config) == ('t', OWNER, config())
        assert delivery.id.isascii()
        assert delivery.id.isprintable()

    async def test_failed_delivery_is_retried_before_following_deliveries(self, backend: Backend) -> None:
        await complete_task_with_webhook(backend)
        [first] = await lease_deliveries(backend)
        await outbox_of(backend).failed(first, at=START, pause=EXPIRED, error='HTTP 500')
        [again] = await lease_deliveries(backend)
        assert (again.id, again.failures) == (first.id, 1)
        await outbox_of(backend).done(again)
        assert await deliver_all(backend) == {'c': ['2 completed']}
        nothing = await outbox_of(backend).lease(lease=LEASE, limit=1, held={})
        assert (list(nothing.deliveries), nothing.wait) == ([], None)

    async def test_failed_delivery_delays_following_deliveries_until_retry(self, backend: Backend) -> None:
        await complete_task_with_webhook(backend)
        [first] = await lease_deliveries(backend)
        await outbox_of(backend).failed(first, at=START, pause=LEASE, error='HTTP 500')
        waiting = await outbox_of(backend).lease(lease=EXPIRED, limit=1, held={})
        assert list(waiting.deliveries) == []
        assert waiting.wait is not None
        assert 0 < waiting.wait <= LEASE

    async def test_released_delivery_can_be_leased_at_once(self, backend: Backend) -> None:
        await complete_task_with_webhook(backend)
        [first] = await lease_deliveries(backend)
        await outbox_of(backend).release(first)
        [again] = await lease_deliveries(backend)
        assert (again.id, again.failures) == (first.id, 0)
        for late in (outbox_of(backend).release(first), give_up(backend, first)):
            await late
        assert await lease_deliveries(backend) == []

    async def test_dead_delivery_does_not_block_next_delivery(self, backend: Backend) -> None:
        await complete_task_with_webhook(backend)
        [first] = await lease_deliveries(backend)
        await give_up(backend, first)
        assert await deliver_all(backend) == {'c': ['2 completed']}
        [dead] = await outbox_of(backend).dead()
        assert dead == DeadDelivery(
            id=first.id,
            task_id='t',
            config_id='c',
            owner=OWNER,
            n=1,
            state='working',
            at=START,
            failures=1,
            error='HTTP 500',
        )

    async def test_retried_dead_delivery_starts_without_failures(self, backend: Backend) -> None:
        heard: list[str] = []
        stop = outbox_of(backend).listen(lambda: heard.append('due'))
        await complete_task_with_webhook(backend)
        [first] = await lease_deliveries(backend)
        await give_up(backend, first)
        heard.clear()
        await outbox_of(backend).retry(first.id)
        stop()
        assert heard == ['due']
        assert list(await outbox_of(backend).dead()) == []
        [again] = await lease_deliveries(backend)
        assert (again.id, again.failures, again.event) == (first.id, 0, first.event)
        with pytest.raises(UnsupportedOperationError):
            await outbox_of(backend).retry(first.id)
        with pytest.raises(UnsupportedOperationError):
            await outbox_of(backend).retry('no such delivery')

    async def test_dead_deliveries_are_listed_by_owner_and_page(self, backend: Backend) -> None:
        for n, (task_id, owner) in enumerate((('t', OWNER), ('u', '/bob'), ('v', OWNER))):
            await submit(backend, message(new=task_id, owner=owner))
            await configs_of(backend).create(task_id, owner, config(task_id), limit=1)
            await backend.queue.cancel(task_id, owner, at=START)
            [delivery] = await lease_deliveries(backend)
            await give_up(backend, delivery, at=START + n)
        outbox = outbox_of(backend)
        everything = list(await outbox.dead())
        assert [delivery.task_id for delivery in everything] == ['t', 'u', 'v']
        assert [delivery.task_id for delivery in await outbox.dead('/bob')] == ['u']
        [first, *_] = everything
        assert list(await outbox.dead(limit=1, after=(first.at, first.id))) == [everything[1]]

    async def test_events_stored_during_delivery_are_not_lost(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        await register(backend, 'c')
        claimed = await claim_task(backend, 't')
        heard: list[str] = []

        async def deliver() -> None:
            for delivery in await lease_deliveries(backend):
                heard.append(event_summary(delivery.event))
                await outbox_of(backend).done(delivery)

        for n in range(2, 32):
            await asyncio.gather(deliver(), backend.queue.emit(claimed, [artifact_event(n, 'whole', last=True)]))
        heard += (await deliver_all(backend)).get('c', [])
        assert heard == ['1 working', *(f'{n} whole' for n in range(2, 32))]

    async def test_lease_of_deliveries_respects_limit(self, backend: Backend) -> None:
        for name in 'abc':
            await cancel_task_with_webhooks(backend, f'/{name}', name)
        assert [delivery.config.id for delivery in await lease_deliveries(backend, limit=2)] == ['a', 'b']
        assert [delivery.config.id for delivery in await lease_deliveries(backend, limit=2)] == ['c']

    async def test_owner_leases_only_its_share_of_deliveries(self, backend: Backend) -> None:
        await cancel_task_with_webhooks(backend, '/bob', *(f'b{n}' for n in range(20)))
        await cancel_task_with_webhooks(backend, '/cid', 'c')
        assert [delivery.config.id for delivery in await lease_deliveries(backend, limit=8)] == [
            'b0',
            'b1',
            'b2',
            'b3',
            'c',
        ]
        for bob in (4, 5):  # deliveries beyond an owner's share set no wait
            held = {'/bob': bob, '/cid': 4}
            nothing = await outbox_of(backend).lease(lease=LEASE, limit=4, held=held)
            assert (list(nothing.deliveries), nothing.wait) == ([], None)
        assert [delivery.config.id for delivery in await lease_deliveries(backend, limit=4, held={'/bob': 3})] == ['b4']
        assert [delivery.config.id for delivery in await lease_deliveries(backend, limit=1)] == ['b5']

    @pytest.mark.parametrize('owners', [2, 12])
    async def test_owner_behind_saturated_owners_gets_its_delivery(self, backend: Backend, owners: int) -> None:
        greedy = [f'/{n:02}' for n in range(owners)]
        for owner in greedy:
            await cancel_task_with_webhooks(backend, owner, *(f'{owner} {n}' for n in range(3)))
        await cancel_task_with_webhooks(backend, '/zoe', 'z')
        assert [
            delivery.config.id for delivery in await lease_deliveries(backend, limit=1, held=dict.fromkeys(greedy, 1))
        ] == ['z']

    async def test_concurrent_senders_lease_different_deliveries(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        await register(backend, *'abcdef')
        await backend.queue.cancel('t', OWNER, at=START)
        shares = await asyncio.gather(*(lease_deliveries(backend, limit=2) for _ in range(6)))
        got = [delivery.config.id for share in shares for delivery in share]
        got += [delivery.config.id for delivery in await lease_deliveries(backend)]
        assert sorted(got) == [*'abcdef']

    async def test_webhook_deleted_during_delivery_gets_no_more_events(self, backend: Backend) -> None:
        await complete_task_with_webhook(backend)
        [first] = await lease_deliveries(backend)
        await configs_of(backend).delete('t', OWNER, 'c')
        await outbox_of(backend).done(first)
        await give_up(backend, first)
        assert await lease_deliveries(backend) == []
        assert list(await outbox_of(backend).dead()) == []

    async def test_replaced_push_config_gets_pending_deliveries(self, backend: Backend) -> None:
        await complete_task_with_webhook(backend)
        await register(backend, 'c', body=b'new')
        [first] = await lease_deliveries(backend)
        assert first.config.body == b'new'
        assert event_summary(first.event) == '1 working'

    async def test_registering_webhook_hints_delivery_listeners(self, backend: Backend) -> None:
        heard: list[str] = []
        await submit(backend, message(new='t'))
        stop = outbox_of(backend).listen(lambda: heard.append('due'))
        await register(backend, 'c')
        stop()
        assert heard

    async def test_delivery_listeners_are_hinted_only_of_tasks_with_webhooks(self, backend: Backend) -> None:
        heard: list[str] = []
        stop = outbox_of(backend).listen(lambda: heard.append('due'))
        await submit(backend, message(new='other'))
        await claim_and_finish(backend, 'other')
        assert heard == []
        await complete_task_with_webhook(backend)
        assert heard
        stop()
        heard.clear()
        await submit(backend, message('more', new='u'))
        await register(backend, 'c', task_id='u')
        await claim_and_finish(backend, 'u')
        assert heard == []


class PendingDeliverySuite(PortSuite):
    """Tests of ended tasks whose webhooks have not been notified yet."""

    async def test_task_is_kept_until_its_webhooks_are_notified(self, backend: Backend) -> None:
        await complete_task_with_webhook(backend)
        keep = Retention(tasks=timedelta(seconds=1))
        for heard in ('1 working', '2 completed'):
            await sweep(backend, keep, at=START + 10_000)
            assert await task_ids(backend) == ['t']
            [delivery] = await lease_deliveries(backend)
            assert event_summary(delivery.event) == heard
            await outbox_of(backend).done(delivery)
        await sweep(backend, keep, at=START + 10_000)
        assert await task_ids(backend) == []

    async def test_tasks_with_pending_deliveries_are_outside_max_tasks(self, backend: Backend) -> None:
        for n in range(60):
            await submit(backend, with_config(message(new=f'untold {n}'), 'c'))
            await backend.queue.cancel(f'untold {n}', OWNER, at=START + n)
        for n in range(60):
            await submit(backend, message(new=f'other {n:02}'))
            await claim_and_finish(backend, f'other {n:02}', at=START + 100 + n)
        await sweep(backend, Retention(max_tasks=2), at=START + 200)
        tasks = await task_ids(backend)
        assert [task for task in tasks if task.startswith('other')] == ['other 58', 'other 59']
        assert len(tasks) == 62

    async def test_task_is_kept_while_delivery_awaits_retry(self, backend: Backend) -> None:
        await complete_task_with_webhook(backend)
        [first] = await lease_deliveries(backend)
        await outbox_of(backend).failed(first, at=START, pause=LEASE, error='HTTP 500')
        await sweep(backend, Retention(tasks=timedelta(seconds=1)), at=START + 10_000)
        assert await task_ids(backend) == ['t']

    async def test_task_with_only_dead_deliveries_is_swept(self, backend: Backend) -> None:
        for task_id in 'tu':
            await submit(backend, with_config(message(new=task_id), task_id))
            await backend.queue.cancel(task_id, OWNER, at=START)
        for delivery in await lease_deliveries(backend):
            await give_up(backend, delivery)
        [first, second] = await outbox_of(backend).dead()
        await outbox_of(backend).retry(second.id)
        await sweep(backend, Retention(tasks=timedelta(seconds=1)), at=START + 10_000)
        assert await task_ids(backend) == [second.task_id]
        assert list(await outbox_of(backend).dead()) == []
        with pytest.raises(UnsupportedOperationError):
            await outbox_of(backend).retry(first.id)

    async def test_task_with_pending_delivery_is_swept_after_waiting_time(self, backend: Backend) -> None:
        await complete_task_with_webhook(backend)
        keep = Retention(tasks=timedelta(seconds=1), waiting=timedelta(seconds=100))
        await sweep(backend, keep, at=START + 100_000)
        assert await task_ids(backend) == ['t']
        await sweep(backend, keep, at=START + 100_001)
        assert await task_ids(backend) == []
        assert await lease_deliveries(backend) == []
