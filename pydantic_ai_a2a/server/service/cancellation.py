"""The cancellation of a task: its run is asked to stop, and given up after a while."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from ...bounded_wait import bounded_wait
from ...errors import TaskNotCancelableError
from ...task_states import TERMINAL
from ...telemetry.metrics import metrics
from ...types.stored_tasks import StoredTask, TaskHeader
from ..audit import Fact, audit
from ..store.ports import Backend
from .loaded_task import loaded


async def canceled(
    backend: Backend,
    task_id: str,
    owner: str | None,
    *,
    grace: float,
    correlation_id: str,
    facts: Callable[[TaskHeader], Mapping[str, Fact]],
) -> StoredTask:
    """Cancel a task, and write the audit log. Return the task after its run has stopped or was given up.

    Args:
        backend: The backend of the task.
        task_id: The task.
        owner: Owner of the task; None for any owner.
        grace: Seconds that a run has to stop.
        correlation_id: Names the request or command in the audit log.
        facts: Returns the canceller for the audit log.

    Raises:
        TaskNotFoundError: The owner has no such task.
        TaskNotCancelableError: The task has ended.
    """
    header = await backend.queue.cancel(task_id, owner, at=backend.now())
    if metrics.instruments is not None and header.state == 'canceled':
        metrics.instruments.enter('canceled')
    record: dict[str, Fact] = {'task': task_id, 'context': header.context_id, 'ended': 'asked'}
    try:
        task = await _stopped(backend, header, owner, grace)
        del record['ended']
        return task
    except TaskNotCancelableError:
        record.clear()
        raise
    finally:
        if record:
            audit('task-canceled', correlation_id=correlation_id, **record, **facts(header))


async def _stopped(backend: Backend, header: TaskHeader, owner: str | None, grace: float) -> StoredTask:
    task_id = header.id
    if header.state not in TERMINAL:
        await bounded_wait(grace, backend.events.wait(task_id, header.last_event))
        task = await loaded(backend, task_id, owner, None)
        if task.header.state not in TERMINAL:
            await _end_by_force(backend, task_id, owner)
    task = await loaded(backend, task_id, owner, None)
    if task.header.state != 'canceled':
        raise TaskNotCancelableError
    return task


async def _end_by_force(backend: Backend, task_id: str, owner: str | None) -> None:
    """End a task whose run does not stop in time."""
    with suppress(TaskNotCancelableError):  # the task has ended meanwhile
        await backend.queue.cancel(task_id, owner, at=backend.now(), force=True)
        if metrics.instruments is not None:
            metrics.instruments.enter('canceled')
