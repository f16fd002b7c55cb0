"""Tests of durable backends: one process plays several processes that share the tasks.

Each open backend stands for a process. All backends are opened before the first backend listens, and only one backend
listens, because a backend may refuse two listeners in one process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from pydantic_ai import Conversation
from pydantic_ai.conversation_store import ConversationConflict

from pydantic_ai_a2a.errors import BackendUnusable, LeaseLost
from pydantic_ai_a2a.server.store.ports import Backend, Claim, Subscription
from pydantic_ai_a2a.types import TaskQuery

from .base import OpenBackend, PortSuite
from .owners import run_scenarios
from .push import with_config
from .values import (
    EXPIRED,
    LEASE,
    OWNER,
    START,
    WAIT_LIMIT,
    artifact_chunk,
    claim_all,
    claim_and_finish,
    claim_task,
    conversation_texts,
    erase,
    finish_of,
    history_texts,
    ignore,
    message,
    model_texts,
    model_turn,
    state_of,
    submit,
)

__all__ = ('DurableSuite',)

Opened = Callable[..., Backend]

NOW = 4_000_000_000_000
"""Later than any test runs (ms): whose events are read is remembered for a while from now on."""


async def event_numbers_until(reader: Subscription, n: int) -> list[int]:
    """The numbers of the events up to one."""
    got: list[int] = []
    async with asyncio.timeout(WAIT_LIMIT):
        while not got or got[-1] < n:
            got += [event.n for event in await reader.next()]
    return got


async def drain_loop(backend: Backend) -> None:
    """Run all ready callbacks, and finish all reads that were begun: several reads at once reach each connection."""
    for _ in range(10):
        await asyncio.gather(*(backend.queued() for _ in range(5)))


async def release_waiters(backend: Backend) -> None:
    """Release all waiters of this event loop: none."""
    backend.events.release(lambda task_id: False)


class DurableSuite(PortSuite):
    """Several processes over one store.

    The suite needs a fixture `open_backend`, in the class or in a `conftest.py`: a function of a namespace. Each call
    opens the same store, empty at first.
    """

    @pytest.fixture
    def opened(self, open_backend: OpenBackend) -> Iterator[Opened]:
        """Opens the store once more, as another process would."""
        backends: list[Backend] = []

        def another(namespace: str = 'agent') -> Backend:
            backends.append(open_backend(namespace))
            return backends[-1]

        yield another
        for backend in backends:
            backend.close()

    # --- the store --------------------------------------------------------------------------------------------------

    async def test_tasks_and_conversations_survive_process_restart(self, opened: Opened) -> None:
        first = opened()
        assert first.durable
        await submit(first, message('one', new='t', context='c'))
        await claim_and_finish(first, 't', messages=model_turn('one', '1'))
        await submit(first, message('two', new='u', context='c'))
        first.close()
        second = opened()
        assert (await state_of(second, 't'), await history_texts(second, 't')) == ('completed', ['one'])
        claimed = await claim_task(second, 'u')
        assert model_texts(await second.history(claimed)) == ['one', '1']

    async def test_another_process_reads_committed_write_at_once(self, opened: Opened) -> None:
        here, there = opened(), opened()
        for n in range(20):
            task_id = f't{n}'
            await submit(there, message(new=task_id))
            assert (await here.reader.list(TaskQuery(owner=OWNER))).total == n + 1
            await claim_and_finish(there, task_id, messages=model_turn('hi', task_id))
            assert await state_of(here, task_id) == 'completed'
            assert await here.events.has(task_id, 2)
            assert await conversation_texts(here, f'context of {task_id}') == ['hi', task_id]

    async def test_agents_in_shared_store_are_isolated(self, opened: Opened) -> None:
        one, other = opened('one'), opened('other')
        for backend, text in ((one, 'hi'), (other, 'hello')):
            await submit(backend, message(text, new='t', context='c', message_id='m'))
        [claimed] = await claim_all(one)
        assert await state_of(other, 't') == 'submitted'
        await one.queue.finish(claimed, finish_of(claimed, messages=model_turn('hi', '1')))
        assert (await history_texts(one, 't'), await history_texts(other, 't')) == (['hi'], ['hello'])
        assert await conversation_texts(other, 'c') == []
        assert await erase(one, context='c')
        assert await other.events.has('t', 0)
        await other.queue.cancel('t', OWNER, at=START)
        assert (await one.reader.list(TaskQuery(owner=None))).total == 0

    async def test_claiming_process_is_hinted_of_due_webhook_deliveries(self, opened: Opened) -> None:
        first, second = opened(), opened()
        if second.outbox is None:
            pytest.skip('The backend has no push notifications.')
        heard: list[str] = []
        stop = second.outbox.listen(lambda: heard.append('due'))
        await submit(first, with_config(message(new='t'), 'a'))
        await claim_task(second, 't')
        assert heard == ['due']
        stop()

    async def test_owners_are_isolated_between_agents(self, opened: Opened) -> None:
        alone = [seen async for [seen] in run_scenarios((opened('alone'), OWNER))]
        async for seen in run_scenarios((opened('one'), OWNER), (opened('other'), OWNER)):
            assert seen == [alone[0]] * 2
            alone.pop(0)
        assert not alone

    async def test_message_sent_to_several_processes_creates_single_task(self, opened: Opened) -> None:
        processes = [opened() for _ in range(4)]
        sent = [
            submit(process, message('hi', new=f't{n}', context='c', message_id='m'))
            for n, process in enumerate(processes)
        ]
        accepted = await asyncio.gather(*sent)
        assert len({submission.header.id for submission in accepted}) == 1
        assert sorted(submission.replayed for submission in accepted) == [False, True, True, True]
        assert (await processes[0].reader.list(TaskQuery(owner=OWNER))).total == 1

    async def test_saving_conversation_changed_by_another_process_conflicts(self, opened: Opened) -> None:
        here, there = (backend.conversations(OWNER) for backend in (opened(), opened()))
        await here.save(Conversation(conversation_id='c', messages=model_turn('one', '1')))
        old, new = await here.load('c'), await there.load('c')
        assert old is not None
        assert new is not None
        new.messages += model_turn('two', '2')
        await there.save(new)
        old.messages += model_turn('other', 'x')
        with pytest.raises(ConversationConflict):
            await here.save(old)

    # --- the queue --------------------------------------------------------------------------------------------------

    async def test_concurrent_processes_run_tasks_of_context_in_order(self, opened: Opened) -> None:
        processes = [opened() for _ in range(3)]
        for n in range(24):
            await submit(processes[0], message(new=f't{n}', context=f'c{n % 4}'))
        order: list[Claim] = []
        async with asyncio.timeout(WAIT_LIMIT):
            while len(order) < 24:  # a claim skips a task with a lock of the database
                claiming = (claim_all(process, f'holder {n}', limit=3) for n, process in enumerate(processes))
                rounds = await asyncio.gather(*claiming)
                claims = [(process, task) for process, taken in zip(processes, rounds, strict=True) for task in taken]
                assert len({task.header.context_id for _, task in claims}) == len(claims)
                order += [task for _, task in claims]
                await asyncio.gather(*(process.queue.finish(task, finish_of(task)) for process, task in claims))
        for context in range(4):
            ran = [task.header.id for task in order if task.header.context_id == f'c{context}']
            assert ran == [f't{n}' for n in range(24) if n % 4 == context]

    async def test_process_with_lost_lease_cannot_write(self, opened: Opened) -> None:
        here, there = opened(), opened()
        await submit(here, message(new='t'))
        held = await claim_task(here, 't', 'here', lease=EXPIRED)
        taken = await claim_task(there, 't', 'there')
        assert (taken.attempt, taken.fence > held.fence) == (2, True)
        for late in (here.queue.emit(held, [artifact_chunk(2, 'late')]), here.queue.finish(held, finish_of(held))):
            with pytest.raises(LeaseLost):
                await late
        await here.queue.release(held)
        assert (await here.queue.renew('here', ['t'], lease=LEASE)).lost == ['t']
        await there.queue.finish(taken, finish_of(taken))
        assert await state_of(here, 't') == 'completed'

    # --- events -----------------------------------------------------------------------------------------------------

    async def test_events_of_another_process_reach_subscribers(self, opened: Opened) -> None:
        here, there = opened(), opened()
        await submit(there, message(new='t'))
        claimed = await claim_task(there, 't')
        reader = here.events.subscribe('t', ignore)
        reader.start(0)
        stopped = asyncio.ensure_future(here.events.wait('t', 0))
        assert await event_numbers_until(reader, 1) == [1]
        await there.queue.emit(claimed, [artifact_chunk(2, 'a')])
        assert await event_numbers_until(reader, 2) == [2]
        assert not stopped.done()
        await there.queue.finish(claimed, finish_of(claimed, after=2))
        assert await event_numbers_until(reader, 3) == [3]
        async with asyncio.timeout(WAIT_LIMIT):
            await stopped
        reader.close()

    async def test_event_log_of_two_processes_has_no_gaps(self, opened: Opened) -> None:
        here, there = opened(), opened()
        await submit(here, message(new='t'))
        reader = here.events.subscribe('t', ignore)
        reader.start(0)
        held = await claim_task(here, 't', 'here', lease=EXPIRED)
        await here.queue.emit(held, [artifact_chunk(2, 'a')])
        lost = await claim_task(there, 't', 'there', lease=EXPIRED)
        await there.queue.emit(lost, [artifact_chunk(3, 'b', append=False), artifact_chunk(4, 'c')])
        with pytest.raises(LeaseLost):
            await here.queue.emit(held, [artifact_chunk(3, 'late')])
        again = await claim_task(here, 't', 'here again')
        await here.queue.emit(again, [artifact_chunk(5, 'd', append=False)])
        await here.queue.finish(again, finish_of(again, after=5))
        assert await event_numbers_until(reader, 6) == [1, 2, 3, 4, 5, 6]
        reader.close()

    async def test_subscriber_resumes_in_another_process_after_restart(self, opened: Opened) -> None:
        first = opened()
        await submit(first, message(new='t'))
        claimed = await claim_task(first, 't')
        await first.queue.emit(claimed, [artifact_chunk(2, 'a'), artifact_chunk(3, 'b')])
        first.close()
        second = opened()
        assert await second.events.has('t', 2)
        reader = second.events.subscribe('t', ignore)
        reader.start(2)
        assert await event_numbers_until(reader, 3) == [3]
        await second.queue.finish(claimed, finish_of(claimed, after=3))
        assert await event_numbers_until(reader, 4) == [4]
        reader.close()

    async def test_erasure_by_another_process_ends_subscribers_and_waiters(self, opened: Opened) -> None:
        here, there = opened(), opened()
        await submit(there, message(new='t'))
        await claim_and_finish(there, 't', 'input-required')
        reader = here.events.subscribe('t', ignore)
        reader.start(2)
        waiting = asyncio.ensure_future(reader.next())
        stopped = asyncio.ensure_future(here.events.wait('t', 2))
        await asyncio.sleep(0)
        await there.housekeeping.erase_task('t', OWNER, at=START)
        async with asyncio.timeout(WAIT_LIMIT):
            assert await waiting == ()
            await stopped
        assert reader.dropped
        reader.close()

    async def test_erasure_by_another_process_ends_wait(self, opened: Opened) -> None:
        here, there = opened(), opened()
        await submit(there, message(new='t'))
        await claim_and_finish(there, 't', 'input-required')
        stopped = asyncio.ensure_future(here.events.wait('t', 2))
        await drain_loop(here)
        assert not stopped.done()
        await there.housekeeping.erase_task('t', OWNER, at=START)
        async with asyncio.timeout(WAIT_LIMIT):
            await stopped

    async def test_releasing_waiters_spares_tasks_held_by_process(self, opened: Opened) -> None:
        backend = opened()
        for task_id in ('kept', 'left'):
            await submit(backend, message(new=task_id))
        waiter, loser = (asyncio.ensure_future(backend.events.wait(task_id, 0)) for task_id in ('kept', 'left'))
        async with asyncio.timeout(WAIT_LIMIT):
            await drain_loop(backend)
            backend.events.release(lambda task_id: task_id == 'kept')
            await loser
            await asyncio.to_thread(lambda: asyncio.run(release_waiters(backend)))  # waits of another event loop
            await drain_loop(backend)
            assert not waiter.done()
            await backend.queue.cancel('kept', OWNER, at=START)
            await waiter

    # --- what processes tell each other -----------------------------------------------------------------------------

    async def test_hints_between_processes_arrive_in_own_event_loop(self, opened: Opened) -> None:
        here, there = opened(), opened()
        ready: asyncio.Queue[tuple[str | None, asyncio.AbstractEventLoop]] = asyncio.Queue()
        stop = here.listen(lambda task_id: ready.put_nowait((task_id, asyncio.get_running_loop())), ignore)
        here.set_idle('here', idle=True)
        hint = (None, asyncio.get_running_loop())
        async with asyncio.timeout(WAIT_LIMIT):
            await submit(there, message(new='t'))
            assert await ready.get() == hint
            claimed = await claim_task(there, 't')
            await there.queue.release(claimed)
            taken: list[Claim] = []
            while not taken:
                assert await ready.get() == hint
                taken = await claim_all(here, 'here')
        stop()

    async def test_cancel_by_another_process_reaches_holder(self, opened: Opened) -> None:
        here, there = opened(), opened()
        asked: asyncio.Queue[str] = asyncio.Queue()
        stop = here.listen(ignore, asked.put_nowait)
        await submit(here, message(new='t'))
        await claim_task(here, 't')
        await there.queue.cancel('t', OWNER, at=START)
        async with asyncio.timeout(WAIT_LIMIT):
            assert await asked.get() == 't'
        assert (await here.queue.renew('holder', ['t'], lease=LEASE)).cancel == ['t']
        stop()

    async def test_process_sees_subscribers_of_another_process(self, opened: Opened) -> None:
        here, there = opened(), opened()
        stop = here.listen(ignore, ignore)
        await submit(here, message(new='queued'))
        await submit(here, message(new='before', at=NOW))
        from_now_on = there.events.subscribe('before', ignore)
        from_the_start = there.events.subscribe('new', ignore, live=True)
        await submit(there, message(new='new', at=NOW))

        async def hint(task_id: str, *, live: bool) -> None:
            while not here.events.watched(task_id, live=live):  # the hint may arrive later
                await state_of(here, task_id)

        async with asyncio.timeout(WAIT_LIMIT):
            await hint('new', live=True)
            await hint('before', live=False)
            assert not here.events.watched('before', live=True)
            live_from_now_on = there.events.subscribe('before', ignore, live=True)
            await there.reader.watch('before', OWNER)
            await hint('before', live=True)
        assert not here.events.watched('queued')
        for reader in (from_now_on, from_the_start, live_from_now_on):
            reader.close()
        stop()

    async def test_plain_subscriber_hides_no_live_subscriber_of_another_process(self, opened: Opened) -> None:
        here, one, two = opened(), opened(), opened()
        stop = here.listen(ignore, ignore)
        await submit(here, message(new='t', at=NOW))
        readers = [one.events.subscribe('t', ignore, live=True), two.events.subscribe('t', ignore)]
        async with asyncio.timeout(WAIT_LIMIT):
            for backend in (one, two):
                await backend.reader.watch('t', OWNER)
            for _ in range(10):
                await state_of(here, 't')
            # On a stopped machine, the other processes count as dead until they renew their rows.
            while not here.events.watched('t', live=True):
                await state_of(here, 't')
        for reader in readers:
            reader.close()
        stop()

    async def test_second_worker_of_agent_in_process_is_refused(self, opened: Opened) -> None:
        first, second, other = opened(), opened(), opened('other')
        stop, stop_other = (backend.listen(ignore, ignore) for backend in (first, other))
        with pytest.raises(BackendUnusable):
            second.listen(ignore, ignore)
        stop()
        stop_other()
        second.listen(ignore, ignore)()
