"""Tests of housekeeping: deletion by age, by number and on demand, never of running tasks."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from pydantic_core import from_json

from pydantic_ai_a2a.errors import BeingErased, TaskNotFoundError, UnsupportedOperationError
from pydantic_ai_a2a.server.store.ports import Backend, Slot
from pydantic_ai_a2a.settings import Retention
from pydantic_ai_a2a.types import TaskState

from .base import PortSuite
from .values import (
    LEASE,
    OWNER,
    START,
    WAIT_LIMIT,
    artifact_chunk,
    claim_and_finish,
    claim_task,
    conversation_texts,
    erase,
    events,
    finish_of,
    history_texts,
    load,
    message,
    model_turn,
    state_of,
    submit,
    task_ids,
    text_of_body,
)

__all__ = ('RetentionSuite',)


SECOND = 1000

KEEP = Retention(
    tasks=timedelta(seconds=100),
    events=timedelta(seconds=10),
    contexts=timedelta(seconds=1000),
    waiting=timedelta(seconds=500),
)


async def count_sweep_batches(backend: Backend, at: int, retention: Retention = KEEP) -> int:
    """Sweep until nothing is left to do; how many batches that took."""
    batches = 0
    while await backend.housekeeping.sweep(retention, at=at):
        batches += 1
        assert batches < 1000
    return batches


async def complete_task(
    backend: Backend, task_id: str, *, at: int = START, context: str | None = None, **rest: Any
) -> None:
    await submit(backend, message(new=task_id, context=context, at=at))
    await claim_and_finish(backend, task_id, at=at, **rest)


class RetentionSuite(PortSuite):
    """Tests of deletion by age, by number and on demand."""

    async def test_sweep_deletes_old_events_and_leaves_task_unchanged(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t'))
        claimed = await claim_task(backend, 't')
        await backend.queue.emit(claimed, [artifact_chunk(2, 'Hel', append=False), artifact_chunk(3, 'lo')])
        artifact = b'{"artifactId":"a","parts":[{"text":"Hello"}]}'
        await backend.queue.finish(claimed, finish_of(claimed, after=3, artifacts=[('a', artifact)]))
        before = await backend.reader.load('t', OWNER)
        await count_sweep_batches(backend, START + 10 * SECOND)
        assert len(await events(backend, 't')) == 4
        await count_sweep_batches(backend, START + 10 * SECOND + 1)
        assert not await backend.events.has('t', 0)
        assert await backend.reader.load('t', OWNER) == before

    async def test_sweep_deletes_old_task_and_keeps_conversation(self, backend: Backend) -> None:
        await complete_task(backend, 't', context='c', messages=model_turn('hi', 'hello'))
        await count_sweep_batches(backend, START + 100 * SECOND)
        assert await task_ids(backend) == ['t']
        await count_sweep_batches(backend, START + 100 * SECOND + 1)
        assert await task_ids(backend) == []
        assert await conversation_texts(backend, 'c') == ['hi', 'hello']
        with pytest.raises(TaskNotFoundError):
            await submit(backend, message('more', to='t'))

    async def test_repeated_message_of_swept_task_creates_new_task(self, backend: Backend) -> None:
        await complete_task(backend, 't', context='c')
        await count_sweep_batches(backend, START + 100 * SECOND + 1)
        accepted = await submit(backend, message(new='u', context='c', message_id='message hello for t'))
        assert (accepted.header.id, accepted.replayed) == ('u', False)

    async def test_sweep_deletes_oldest_finished_tasks_over_max_tasks(self, backend: Backend) -> None:
        for n in range(5):
            await complete_task(backend, f't{n}', at=START + n)
        await count_sweep_batches(backend, START + 5, Retention(max_tasks=2))
        assert await task_ids(backend) == ['t3', 't4']

    async def test_sweep_reports_tasks_and_contexts_deleted_before_expiry(self, backend: Backend) -> None:
        for n in range(5):
            await complete_task(
                backend, f't{n}', context=f'c{n}', at=START + n * SECOND, messages=model_turn('hi', '.')
            )
        span = timedelta(seconds=3)
        keep = Retention(tasks=span, contexts=span, max_tasks=1)
        swept = await backend.housekeeping.sweep(keep, at=START + 5 * SECOND)
        assert (swept.over, swept.full) == ({'tasks': 2, 'contexts': 2}, False)
        assert await task_ids(backend) == ['t4']

    @pytest.mark.parametrize('state', ['submitted', 'working', 'input-required', 'auth-required'])
    async def test_sweep_keeps_unfinished_task_and_its_events(self, backend: Backend, state: TaskState) -> None:
        await complete_task(backend, 'done')
        await submit(backend, message(new='t', context='c'))
        if state == 'working':
            await claim_task(backend, 't')
        elif state != 'submitted':
            await claim_and_finish(backend, 't', state, messages=model_turn('hi', '?'))
        keep = Retention(waiting=timedelta(days=400), max_tasks=1)
        await count_sweep_batches(backend, START + 365 * 86_400 * SECOND, keep)
        assert await task_ids(backend) == ['t']
        assert await state_of(backend, 't') == state
        assert await backend.events.has('t', 0)

    async def test_sweep_deletes_idle_conversations_without_unfinished_tasks(self, backend: Backend) -> None:
        for context in ('idle', 'used', 'waiting'):
            await complete_task(backend, f'first in {context}', context=context, messages=model_turn('hi', context))
        await submit(backend, message(new='again', context='waiting'))
        await complete_task(
            backend, 'later', context='used', at=START + 500 * SECOND, messages=model_turn('more', 'used')
        )
        await count_sweep_batches(backend, START + 1000 * SECOND)
        assert await conversation_texts(backend, 'idle') == ['hi', 'idle']
        await count_sweep_batches(backend, START + 1000 * SECOND + 1)
        assert await conversation_texts(backend, 'idle') == []
        assert await conversation_texts(backend, 'used') == ['hi', 'used', 'more', 'used']
        assert await conversation_texts(backend, 'waiting') == ['hi', 'waiting']

    async def test_sweep_deletes_least_recently_used_conversations_over_limit(self, backend: Backend) -> None:
        for n in range(4):
            await complete_task(backend, f't{n}', at=START + n, context=f'c{n}', messages=model_turn('hi', '.'))
        await complete_task(backend, 'again', at=START + 9, context='c0', messages=model_turn('again', '.'))
        await count_sweep_batches(backend, START + 10, Retention(max_tasks=2))
        records = await backend.conversations(OWNER).list_conversations()
        assert [record.conversation_id for record in records] == ['c0', 'c3']

    async def test_expired_interrupted_task_fails_with_event_for_subscribers(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t', context='c'))
        await claim_and_finish(
            backend,
            't',
            'input-required',
            messages=model_turn('hi', 'which?'),
            status_message=b'{"parts":[{"text":"?"}]}',
        )
        reader = backend.events.subscribe('t', lambda: None)
        reader.start(2)
        await count_sweep_batches(backend, START + 500 * SECOND)
        assert await state_of(backend, 't') == 'input-required'
        async with asyncio.timeout(WAIT_LIMIT):
            # A sweep leaves out a task that another transaction has locked, such as the one that marks its readers.
            while await state_of(backend, 't') == 'input-required':
                await count_sweep_batches(backend, START + 500 * SECOND + 1)
        task = await load(backend, 't')
        assert (task.header.state, task.header.status_at) == ('failed', START + 500 * SECOND + 1)
        assert task.header.status_message is not None
        assert text_of_body(task.header.status_message) == 'The task waited too long.'
        metadata = from_json(task.header.status_message)['metadata']
        assert (metadata['failure'], metadata['correlationId'][:2]) == ('expired', 't.')
        assert await history_texts(backend, 't') == ['hi', '?']
        assert [(event.n, event.state) for event in await reader.next()] == [(3, 'failed')]
        assert await conversation_texts(backend, 'c') == []
        reader.close()

    async def test_sweep_batch_is_full_while_more_rows_are_due(self, backend: Backend) -> None:
        await submit(backend, message(new='long'))
        claimed = await claim_task(backend, 'long')
        await backend.queue.emit(claimed, [artifact_chunk(n, '.') for n in range(2, 1201)])
        await backend.queue.finish(claimed, finish_of(claimed, after=1200))
        for n in range(120):
            await complete_task(backend, f't{n}')
        full: list[bool] = []
        while swept := await backend.housekeeping.sweep(KEEP, at=START + 1001 * SECOND):
            full.append(swept.full)
        assert full[0]
        assert not full[-1]
        assert await task_ids(backend) == []

    async def test_sweep_over_max_tasks_deletes_long_event_logs(self, backend: Backend) -> None:
        await submit(backend, message(new='long'))
        claimed = await claim_task(backend, 'long')
        await backend.queue.emit(claimed, [artifact_chunk(n, '.') for n in range(2, 1201)])
        await backend.queue.finish(claimed, finish_of(claimed, after=1200))
        await complete_task(backend, 'newer', at=START + 1)
        assert await count_sweep_batches(backend, START + 2, Retention(max_tasks=1)) > 1
        assert await task_ids(backend) == ['newer']
        assert [event.n for event in await events(backend, 'newer')] == [1, 2]

    async def test_sweep_of_empty_store_deletes_no_rows(self, backend: Backend) -> None:
        assert not await backend.housekeeping.sweep(Retention(), at=START)

    @pytest.mark.parametrize('state', ['completed', 'failed', 'canceled', 'input-required'])
    async def test_erased_task_leaves_no_events_or_message_ids(self, backend: Backend, state: TaskState) -> None:
        await submit(backend, message(new='t', context='c', message_id='m'))
        await claim_and_finish(backend, 't', state, messages=model_turn('hi', 'hello'))
        assert await backend.housekeeping.erase_task('t', OWNER, at=START)
        assert await backend.reader.load('t', None) is None
        assert not await backend.events.has('t', 0)
        assert not await backend.housekeeping.erase_task('t', OWNER, at=START)
        assert not (await submit(backend, message(new='t', context='c', message_id='m'))).replayed
        await claim_and_finish(backend, 't')
        assert [event.n for event in await events(backend, 't')] == [1, 2]

    @pytest.mark.parametrize('state', ['submitted', 'working'])
    async def test_erasing_queued_or_running_task_is_refused(self, backend: Backend, state: TaskState) -> None:
        await submit(backend, message(new='ended', context='other'))
        await claim_and_finish(backend, 'ended')
        await submit(backend, message(new='t', context='c'))
        if state == 'working':
            await claim_task(backend, 't')
        with pytest.raises(UnsupportedOperationError, match='cancel it'):
            await backend.housekeeping.erase_task('t', OWNER, at=START)
        for context in ('c', None):  # the context of the task, and all data of the owner
            with pytest.raises(UnsupportedOperationError, match='The task t is queued or running; cancel it before'):
                await erase(backend, context=context)
        assert [await state_of(backend, task) for task in ('ended', 't')] == ['completed', state]
        assert (await erase(backend, context='other')).tasks == 1

    async def test_context_is_erased_completely_or_not_at_all(self, backend: Backend) -> None:
        for task_id in 'ab':
            await complete_task(backend, task_id, context='c', messages=model_turn('hi', task_id))
        await complete_task(backend, 'elsewhere', messages=model_turn('hi', 'x'))
        await submit(backend, message(new='queued', context='c'))
        with pytest.raises(UnsupportedOperationError):
            await erase(backend, context='c')
        assert await task_ids(backend) == ['a', 'b', 'elsewhere', 'queued']
        await backend.queue.cancel('queued', OWNER, at=START)
        assert await erase(backend, context='c')
        assert await task_ids(backend) == ['elsewhere']
        assert await conversation_texts(backend, 'c') == []
        assert await conversation_texts(backend, 'context of elsewhere') == ['hi', 'x']
        assert not await erase(backend, context='c')

    async def test_context_of_erased_task_is_swept(self, backend: Backend) -> None:
        await submit(backend, message(new='t', context='c'))
        await claim_and_finish(backend, 't', messages=model_turn('one', 'two'))
        assert await backend.housekeeping.erase_task('t', OWNER, at=START)
        assert await conversation_texts(backend, 'c') == ['one', 'two']
        await count_sweep_batches(backend, START + 1001 * SECOND)
        assert await conversation_texts(backend, 'c') == []

    async def test_erasing_by_another_owner_deletes_no_data(self, backend: Backend) -> None:
        await complete_task(backend, 't', context='c', messages=model_turn('hi', 'hello'))
        assert not await backend.housekeeping.erase_task('t', '/bob', at=START)
        assert not await erase(backend, '/bob', 'c')
        assert await task_ids(backend) == ['t']
        assert await conversation_texts(backend, 'c') == ['hi', 'hello']
        assert await backend.housekeeping.erase_task('t', None, at=START)
        assert await erase(backend, context='c')

    @pytest.mark.parametrize('erased', ['task', 'owner'])
    async def test_erasing_interrupted_task_sends_canceled_to_subscribers(self, backend: Backend, erased: str) -> None:
        await submit(backend, message(new='t'))
        await claim_and_finish(backend, 't', 'input-required')
        reader = backend.events.subscribe('t', lambda: None)
        reader.start(2)
        if erased == 'task':
            await backend.housekeeping.erase_task('t', OWNER, at=START)
        else:
            await erase(backend)
        async with asyncio.timeout(WAIT_LIMIT):
            assert [(event.n, event.state) for event in await reader.next()] == [(3, 'canceled')]
        reader.close()

    @pytest.mark.parametrize('slot', [None, Slot('holder', LEASE)])
    @pytest.mark.parametrize('context', [None, 'c'])
    async def test_erasure_of_owner_or_context_refuses_messages(
        self, backend: Backend, context: str | None, slot: Slot | None
    ) -> None:
        await submit(backend, message(new='running', context='c'), slot=Slot('holder', LEASE))
        await complete_task(backend, 'waiting', context='d', state='input-required')
        await backend.housekeeping.set_erasing(OWNER, context, until=START + SECOND)
        for refused in (message(new='t', context='c'), message('more', to='running')):
            with pytest.raises(BeingErased):
                await submit(backend, refused, slot=slot)
        with pytest.raises(BeingErased):
            await backend.housekeeping.check_erasing(OWNER, 'c', at=START)
        assert (await submit(backend, message(new='running', context='c'))).replayed
        await submit(backend, message(new='of another', context='c', owner='/bob'), slot=slot)
        elsewhere = [message(new='elsewhere', context='e'), message('more', to='waiting')]
        for sent in elsewhere:
            if context is None:
                with pytest.raises(BeingErased):
                    await submit(backend, sent, slot=slot)
            else:
                await submit(backend, sent, slot=slot)
        await backend.housekeeping.set_erasing(OWNER, context, until=None)
        for sent in (message(new='t', context='c'), message('more', to='running'), *elsewhere):
            await submit(backend, sent, slot=slot)

    async def test_messages_are_refused_between_batches_of_erasure(self, backend: Backend) -> None:
        await backend.queued()  # the first answer of a database sets the clock
        before = backend.now()
        await backend.erase(OWNER, None)
        after = backend.now()
        with pytest.raises(BeingErased):
            await submit(backend, message(new='t', at=before + 60 * SECOND - 1))
        await submit(backend, message(new='t', at=after + 60 * SECOND))

    @pytest.mark.parametrize('swept', [False, True])
    async def test_unfinished_erasure_refuses_messages_only_until_expiry(self, backend: Backend, swept: bool) -> None:
        await backend.housekeeping.set_erasing(OWNER, None, until=START)
        await backend.housekeeping.set_erasing(OWNER, None, until=START + SECOND)
        await count_sweep_batches(backend, START + SECOND - 1)
        with pytest.raises(BeingErased):
            await submit(backend, message(new='t', at=START + SECOND - 1))
        if swept:
            assert await count_sweep_batches(backend, START + SECOND) == 1
        assert not (await submit(backend, message(new='t', at=START + SECOND))).replayed
        await backend.housekeeping.check_erasing(OWNER, 'c', at=START + SECOND)
