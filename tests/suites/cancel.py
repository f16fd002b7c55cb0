"""Cancelling through the queue: at once where nothing runs, else by asking the holder, else over its head."""

from __future__ import annotations

import pytest

from pydantic_ai_a2a.errors import LeaseLost, TaskNotCancelableError, TaskNotFoundError
from pydantic_ai_a2a.server.store.ports import Backend, Marks
from pydantic_ai_a2a.types import TaskState

from .base import PortSuite
from .values import (
    EXPIRED,
    LEASE,
    OWNER,
    START,
    artifact_chunk,
    claim_all,
    claim_and_finish,
    claim_task,
    conversation_texts,
    events,
    finish_of,
    history_texts,
    message,
    model_turn,
    state_of,
    submit,
)

__all__ = ('CancelSuite',)


class CancelSuite(PortSuite):
    """Cancelling through the queue."""

    async def test_canceled_queued_task_never_runs(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        header = await backend.queue.cancel('t', OWNER, at=START + 5)
        assert (header.state, header.status_at, header.last_event) == ('canceled', START + 5, 1)
        assert [(event.n, event.state) for event in await events(backend, 't')] == [(1, 'canceled')]
        assert await claim_all(backend) == []

    async def test_canceling_queued_task_unblocks_next_task_of_context(self, backend: Backend) -> None:
        for task_id in 'abc':
            await submit(backend, message(new=task_id, context='c'))
        await claim_and_finish(backend, 'a')
        await backend.queue.cancel('b', OWNER, at=START)
        assert [task.header.id for task in await claim_all(backend)] == ['c']

    async def test_canceling_interrupted_task_keeps_its_messages_in_context(self, backend: Backend) -> None:
        await submit(backend, message('hi', new='t', context='c'))
        await claim_and_finish(
            backend,
            't',
            'input-required',
            messages=model_turn('hi', 'which?'),
            status_message=b'{"parts":[{"text":"?"}]}',
        )
        header = await backend.queue.cancel('t', OWNER, at=START)
        assert (header.state, header.status_message) == ('canceled', None)
        assert await conversation_texts(backend, 'c') == ['hi', 'which?']
        assert await history_texts(backend, 't') == ['hi', '?']

    async def test_answered_queued_task_is_canceled_at_once(self, backend: Backend) -> None:
        await submit(backend, message(new='t', context='c'))
        await claim_and_finish(backend, 't', 'input-required')
        await submit(backend, message(new='other', context='c'))
        running = await claim_task(backend, 'other')
        await submit(backend, message('answer', to='t'))
        header = await backend.queue.cancel('t', OWNER, at=START)
        assert (header.state, header.queued, header.last_event) == ('canceled', False, 4)
        await backend.queue.finish(running, finish_of(running))
        assert await claim_all(backend) == []

    async def test_cancel_of_running_task_is_passed_to_holder(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        claimed = await claim_task(backend, 't')
        asked: list[str] = []
        stop = backend.listen(lambda task_id: None, asked.append)
        header = await backend.queue.cancel('t', OWNER, at=START)
        assert (header.state, header.last_event) == ('working', 1)
        assert {*asked} == {'t'}
        assert await backend.queue.renew('holder', ['t'], lease=LEASE) == Marks([], ['t'])
        await backend.queue.finish(claimed, finish_of(claimed, 'canceled', messages=model_turn('hi', 'half')))
        assert await state_of(backend, 't') == 'canceled'
        stop()
        await submit(backend, message(new='u'))
        await backend.queue.cancel('u', OWNER, at=START)
        assert {*asked} == {'t'}

    async def test_run_completing_after_cancel_request_stays_completed(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        claimed = await claim_task(backend, 't')
        await backend.queue.cancel('t', OWNER, at=START)
        await backend.queue.finish(claimed, finish_of(claimed))
        with pytest.raises(TaskNotCancelableError):
            await backend.queue.cancel('t', OWNER, at=START)
        assert await state_of(backend, 't') == 'completed'

    async def test_cancel_request_is_dropped_when_task_is_interrupted(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        claimed = await claim_task(backend, 't')
        await backend.queue.cancel('t', OWNER, at=START)
        await backend.queue.finish(claimed, finish_of(claimed, 'input-required'))
        await submit(backend, message('answer', to='t'))
        await claim_task(backend, 't')
        assert await backend.queue.renew('holder', ['t'], lease=LEASE) == Marks([], [])

    async def test_forced_cancel_ends_running_task_and_invalidates_claim(self, backend: Backend) -> None:
        await submit(backend, message(new='t', context='c'))
        await submit(backend, message(new='next', context='c'))
        claimed = await claim_task(backend, 't')
        await backend.queue.emit(claimed, [artifact_chunk(2, 'half', append=False)])
        header = await backend.queue.cancel('t', OWNER, at=START, force=True)
        assert (header.state, header.last_event) == ('canceled', 3)
        for late in (
            backend.queue.emit(claimed, [artifact_chunk(3, 'late')]),
            backend.queue.finish(claimed, finish_of(claimed, after=3, messages=model_turn('hi', 'late'))),
        ):
            with pytest.raises(LeaseLost):
                await late
        await backend.queue.release(claimed)
        assert await backend.queue.renew('holder', ['t'], lease=LEASE) == Marks(['t'], [])
        assert [event.n for event in await events(backend, 't')] == [1, 2, 3]
        assert await conversation_texts(backend, 'c') == []
        assert [task.header.id for task in await claim_all(backend)] == ['next']

    async def test_released_task_is_canceled_at_once(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        await backend.queue.release(await claim_task(backend, 't'))
        assert (await backend.queue.cancel('t', OWNER, at=START)).state == 'canceled'
        assert await claim_all(backend) == []

    @pytest.mark.parametrize('state', ['completed', 'failed', 'canceled', 'rejected'])
    @pytest.mark.parametrize('force', [False, True])
    async def test_cancel_of_ended_task_is_refused(self, backend: Backend, state: TaskState, force: bool) -> None:
        await submit(backend, message(new='t'))
        await claim_and_finish(backend, 't', state)
        with pytest.raises(TaskNotCancelableError):
            await backend.queue.cancel('t', OWNER, at=START, force=force)
        assert [event.n for event in await events(backend, 't')] == [1, 2]

    async def test_cancel_of_task_of_another_owner_is_not_found(self, backend: Backend) -> None:
        await submit(backend, message(new='t', owner='/bob'))
        for task_id in ('t', 'nowhere'):
            with pytest.raises(TaskNotFoundError):
                await backend.queue.cancel(task_id, OWNER, at=START)
        assert await state_of(backend, 't') == 'submitted'
        assert (await backend.queue.cancel('t', None, at=START)).state == 'canceled'

    async def test_cancel_request_reaches_next_holder_of_lost_task(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        await claim_task(backend, 't', 'lost', lease=EXPIRED)
        await backend.queue.cancel('t', OWNER, at=START)
        await claim_all(backend, 'other')
        assert await backend.queue.renew('other', ['t'], lease=LEASE) == Marks([], ['t'])
