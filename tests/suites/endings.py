"""Callers that wait for a task before it is submitted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pydantic_ai_a2a.server.store.ports import Backend, Claim
from pydantic_ai_a2a.types import StoredTask

from .base import PortSuite
from .values import (
    OWNER,
    START,
    WAIT_LIMIT,
    artifact_chunk,
    claim_task,
    expire_lease,
    finish_and_continue,
    finish_of,
    message,
    status_event,
    submit,
)

__all__ = ('EndingSuite',)

RESULT: dict[str, Any] = {
    'history': [('answered', b'{"messageId":"answered","parts":[]}')],
    'artifacts': [('a', b'{"artifactId":"a","parts":[{"text":"hi"}]}')],
}

End = Callable[[Backend, Claim], Awaitable[object]]


async def completed(backend: Backend, claimed: Claim) -> None:
    """End the run with a result."""
    end = finish_of(claimed, metadata=b'{"usage":1}', **RESULT)
    assert await backend.queue.finish(claimed, end) is None


async def completed_without_result(backend: Backend, claimed: Claim) -> None:
    """End the run without artifacts: the task keeps the streamed artifacts."""
    await backend.queue.emit(claimed, [artifact_chunk(2, 'a', append=False)])
    await backend.queue.finish(claimed, finish_of(claimed, after=2))


async def completed_after_a_note(backend: Backend, claimed: Claim) -> None:
    """End the run after a status whose message moves into the history."""
    note = b'{"messageId":"note","parts":[]}'
    end = finish_of(claimed, 'working', status_message=note)
    await backend.queue.emit(claimed, [status_event(2, 'working')], end.status)
    await backend.queue.finish(claimed, finish_of(claimed, after=2, **RESULT))


async def completed_with_a_second_message(backend: Backend, claimed: Claim) -> None:
    """End both runs of a task with two messages."""
    await submit(backend, message('more', to='t'))
    following = await finish_and_continue(backend, claimed, finish_of(claimed, **RESULT))
    await backend.queue.finish(following, finish_of(following))


async def completed_by_another_holder(backend: Backend, claimed: Claim) -> None:
    """End the task by the next holder."""
    await expire_lease(backend, 't')
    another = await claim_task(backend, 't', 'another')
    await backend.queue.finish(another, finish_of(another, **RESULT))


async def failed(backend: Backend, claimed: Claim) -> None:
    """End the run with a failure."""
    await backend.queue.finish(claimed, finish_of(claimed, 'failed', failure='x', status_message=b'{"parts":[]}'))


async def interrupted(backend: Backend, claimed: Claim) -> None:
    """Let the task wait for the client."""
    await backend.queue.finish(claimed, finish_of(claimed, 'input-required', status_message=b'{"parts":[]}'))


async def canceled(backend: Backend, claimed: Claim) -> None:
    """Take the task away from the run."""
    await backend.queue.cancel('t', OWNER, at=START, force=True)


async def end_of(backend: Backend, end: End) -> tuple[StoredTask | None, StoredTask | None]:
    """Return the task as given to a waiting caller, and as read after the end."""
    waiting = backend.events.expect('t')
    await submit(backend, message('hi', new='t'))
    claimed = await claim_task(backend, 't')
    async with asyncio.timeout(WAIT_LIMIT):
        ended = asyncio.ensure_future(asyncio.sleep(0) if waiting is None else waiting.wait(0))
        await asyncio.sleep(0)
        assert waiting is None or not ended.done()
        await end(backend, claimed)
        task = await ended
        (waiting.close if waiting is not None else int)()
        return task, await backend.reader.load('t', None)


class EndingSuite(PortSuite):
    """Tests of the end of a task for a caller waiting since before the submission."""

    @pytest.mark.parametrize(
        'end',
        [
            completed,
            completed_without_result,
            completed_after_a_note,
            completed_with_a_second_message,
            completed_by_another_holder,
            failed,
            interrupted,
            canceled,
        ],
    )
    async def test_task_given_to_waiting_caller_equals_stored_task(self, backend: Backend, end: End) -> None:
        task, stored = await end_of(backend, end)
        assert stored is not None
        assert task is None or (task.header, [*(task.history or ())], [*(task.artifacts or ())]) == (
            stored.header,
            [*(stored.history or ())],
            [*(stored.artifacts or ())],
        )
