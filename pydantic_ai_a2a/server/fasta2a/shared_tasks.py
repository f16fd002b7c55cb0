"""Tasks shared by processes through a user's FastA2A storage and broker: taken over, or watched in another process."""

from __future__ import annotations

import sys

from ...errors import TaskNotFoundError, UnsupportedOperationError
from ...task_states import STOPPED
from ...types.stored_events import TaskEvent
from ...types.stored_tasks import StoredTask
from ...wire.protocol import stored, stored_values
from ..store.ports import Claim, Finish, Slot, Status, Submission
from ..store.status_events import status_event
from .storage_backend import FastA2ABackend
from .storage_tasks import stored_task

_ANOTHER = 'another process'
_FOR_EVER = 10**12
"""Milliseconds, beyond the end of every process."""


async def adopt(backend: FastA2ABackend, task_id: str, *, at: int) -> None:
    """Take over a task of another process, to run the task here.

    Raises:
        TaskNotFoundError: The storage has no such task.
        UnsupportedOperationError: The task has begun.
    """
    task = await backend.load(task_id, None)
    if task is None:
        raise TaskNotFoundError
    read = stored_task(task, None, history_length=1, artifacts=False)
    if read.header.state != 'submitted' or not read.history:
        raise UnsupportedOperationError(
            f'The task is {read.header.state}, and only a submitted task can be started: the delivery is ignored.'
        )
    submission = Submission(
        owner=read.header.owner,
        anonymous=True,
        message_id='',  # too short for replay: the accepting process keeps the id
        digest=b'',
        body=read.history[0],
        task_id=task_id,
        new=True,
        context_id=read.header.context_id,
        at=at,
    )
    await backend.memory.queue.submit(submission, queue_limit=sys.maxsize, idempotency_window=0)


class SharedTask:
    """One task that may run in another process.

    Args:
        backend: Publishes the events of the task.
        task_id: Id of the task.
    """

    def __init__(self, backend: FastA2ABackend, task_id: str) -> None:
        self._backend = backend
        self._task_id = task_id
        self._claim: Claim | None = None

    async def look(self, *, at: int) -> bool:
        """Publish the start and the end of the task. Return True after the end."""
        task = await self._backend.load(self._task_id, None)
        if task is None:
            return True
        read = stored_task(task, None, history_length=0, artifacts=True)
        if self._claim is None and read.header.state != 'submitted':
            self._claim = await self._take(at)
        if read.header.state not in STOPPED:
            return False
        if self._claim is not None:
            await self._backend.memory.queue.finish(self._claim, _end_of(self._claim, read, at))
        return True

    async def _take(self, at: int) -> Claim | None:
        """Claim the task for the other process, unless the task runs here after all."""
        task_id, queue = self._task_id, self._backend.memory.queue
        async with self._backend.lock(task_id):
            if task_id not in self._backend.withheld:
                return None
            claims = await queue.claim(Slot(_ANOTHER, _FOR_EVER), at=at, limit=1, task_id=task_id)
        return claims[0] if claims else None


def _end_of(claim: Claim, read: StoredTask, at: int) -> Finish:
    """Return the end of a task from another process."""
    header, bodies = claim.header, read.artifacts or ()
    status = Status(read.header.state, at, read.header.status_message)
    payloads = (stored.artifact_update(header.id, header.context_id, body) for body in bodies)
    events = [TaskEvent(n, None, payload) for n, payload in enumerate(payloads, header.last_event + 1)]
    return Finish(
        status=status,
        events=events,
        final=status_event(header, status, header.last_event + len(events) + 1),
        artifacts=[(stored_values.load_artifact(body)['artifact_id'], body) for body in bodies],
    )
