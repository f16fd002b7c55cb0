"""Tests of rehearsals: each write has its result or its error, and leaves nothing."""

from __future__ import annotations

import pytest

from pydantic_ai_a2a.errors import LeaseLost, TaskNotCancelableError
from pydantic_ai_a2a.server.store.ports import Backend, Marks, Slot, WrappedQueue

from .base import PortSuite
from .values import (
    LEASE,
    OWNER,
    START,
    artifact_chunk,
    claim_all,
    claim_and_finish,
    claim_task,
    events,
    finish_of,
    message,
    state_of,
    submit,
)

__all__ = ('RehearsalSuite',)


class RehearsalSuite(PortSuite):
    """Tests of `TaskQueue.rehearsal`."""

    async def test_rehearsed_message_is_answered_but_not_stored(self, backend: Backend) -> None:
        heard: list[str | None] = []
        stop = backend.listen(heard.append, heard.append)
        rehearsal = backend.queue.rehearsal()
        accepted = await rehearsal.submit(message(new='t'), queue_limit=10, idempotency_window=1000)
        assert (accepted.header.id, accepted.header.state, accepted.replayed) == ('t', 'submitted', False)
        assert await backend.reader.load('t', OWNER) is None
        assert not await backend.queued()
        assert not (await submit(backend, message(new='t'))).replayed
        assert (await rehearsal.submit(message(new='t'), queue_limit=10, idempotency_window=1000)).replayed
        assert [each for each in heard if each is not None] == ['t']
        stop()

    async def test_rehearsed_cancel_leaves_task_unchanged(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        rehearsal = WrappedQueue(backend.queue).rehearsal()
        assert (await rehearsal.cancel('t', OWNER, at=START)).state == 'canceled'
        assert await state_of(backend, 't') == 'submitted'
        await claim_and_finish(backend, 't')
        with pytest.raises(TaskNotCancelableError):
            await rehearsal.cancel('t', OWNER, at=START)

    async def test_rehearsed_claim_leaves_tasks_queued(self, backend: Backend) -> None:
        for task_id in 'ab':
            await submit(backend, message(new=task_id))
        rehearsal = backend.queue.rehearsal()
        for _ in range(2):
            claims = await rehearsal.claim(Slot('other', LEASE), at=START, limit=9)
            assert [each.header.id for each in claims] == ['a', 'b']
        assert [each.attempt for each in await claim_all(backend)] == [1, 1]

    async def test_rehearsed_writes_leave_run_unchanged(self, backend: Backend) -> None:
        await submit(backend, message(new='t'))
        claimed = await claim_task(backend, 't')
        rehearsal = backend.queue.rehearsal()
        await rehearsal.emit(claimed, [artifact_chunk(2, 'hello')])
        assert await rehearsal.finish(claimed, finish_of(claimed)) is None
        assert await rehearsal.renew('holder', ['t'], lease=-1) == Marks([], [])
        await rehearsal.release(claimed)
        assert await state_of(backend, 't') == 'working'
        assert [event.n for event in await events(backend, 't')] == [1]
        assert await backend.queue.claim(Slot('other', LEASE), at=START, limit=1) == []
        await backend.queue.finish(claimed, finish_of(claimed))
        with pytest.raises(LeaseLost):
            await rehearsal.emit(claimed, [artifact_chunk(3, 'hello')])
