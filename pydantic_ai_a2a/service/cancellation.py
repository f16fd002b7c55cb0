"""The cancellation of a task: its run is asked to stop, and given up after a while."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from ..audit import Fact, audit
from ..errors import TaskNotCancelableError
from ..store.ports import Backend
from ..telemetry import metrics
from ..types import TERMINAL, StoredTask, TaskHeader
from .ends import within

__all__ = ('Cancellation',)


class Cancellation:
    """Cancels tasks, and writes the audit log.

    Args:
        backend: The backend of the tasks.
        load: Returns a task of an owner with some of its history, or raises `TaskNotFoundError`.
        grace: Seconds that a run has to stop.
    """

    def __init__(
        self,
        backend: Backend,
        load: Callable[[str, str | None, int | None], Awaitable[StoredTask]],
        *,
        grace: float,
    ) -> None:
        self._backend = backend
        self._load = load
        self._grace = grace

    async def cancel(
        self, task_id: str, owner: str | None, correlation_id: str, facts: Callable[[TaskHeader], Mapping[str, Fact]]
    ) -> StoredTask:
        """Cancel a task of an owner, or of any owner for None. `facts` returns the canceller for the audit log."""
        header = await self._backend.queue.cancel(task_id, owner, at=self._backend.now())
        if metrics.instruments is not None and header.state == 'canceled':
            metrics.instruments.enter('canceled')
        record: dict[str, Fact] = {'task': task_id, 'context': header.context_id, 'ended': 'asked'}
        try:
            task = await self._canceled(header, owner)
            del record['ended']
            return task
        except TaskNotCancelableError:
            record.clear()
            raise
        finally:
            if record:
                audit('task-canceled', correlation_id=correlation_id, **record, **facts(header))

    async def _canceled(self, header: TaskHeader, owner: str | None) -> StoredTask:
        """Return the task after its run has stopped or was given up."""
        queue, task_id = self._backend.queue, header.id
        if header.state not in TERMINAL:
            await within(self._grace, self._backend.events.wait(task_id, header.last_event))
            task = await self._load(task_id, owner, None)
            if task.header.state not in TERMINAL:
                with suppress(TaskNotCancelableError):  # the task has ended meanwhile
                    await queue.cancel(task_id, owner, at=self._backend.now(), force=True)
                    if metrics.instruments is not None:
                        metrics.instruments.enter('canceled')
        task = await self._load(task_id, owner, None)
        if task.header.state != 'canceled':
            raise TaskNotCancelableError
        return task
