"""The port for reading tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

from ....errors import UnsupportedOperationError
from ....types.stored_tasks import StoredTask, TaskHeader
from ....types.task_queries import Page, TaskQuery
from .pause import Pause

_FINDS_NO_APPROVALS = 'The store of this agent does not find the approvals of other owners.'


class TaskReader(ABC):
    """Consistent reads of tasks."""

    @abstractmethod
    async def load(
        self, task_id: str, owner: str | None, *, history_length: int | None = None, artifacts: bool = True
    ) -> StoredTask | None:
        """The task, with its newest `history_length` messages (None: all); or None. `owner` None reads any owner's."""

    async def queued_among(self, task_ids: Sequence[str]) -> Collection[str]:
        """Return which of these tasks of any owners wait for a worker."""
        tasks = [await self.load(task_id, None, history_length=0, artifacts=False) for task_id in task_ids]
        return {task.header.id for task in tasks if task is not None and task.header.queued}

    async def watch(self, task_id: str, owner: str | None, *, live: bool = True) -> StoredTask | None:
        """Like `load`, with the whole history, for a reader of the events that follow: the log has all of them.

        A store may leave events out of the log until a task has a reader. With `live` False, the artifacts lack an
        answer that is still being written: the reader gets the answer as a whole.
        """
        return await self.load(task_id, owner)

    @abstractmethod
    async def list(self, query: TaskQuery) -> Page:
        """One page of tasks, newest status first."""

    @abstractmethod
    async def pause(self, task_id: str, owner: str) -> Pause | None:
        """Return the current pause of an owner's task; None for a task that does not wait for its client."""

    async def open_approvals(
        self, owner: str, *, limit: int, before: tuple[int, str] | None = None, since: int | None = None
    ) -> Sequence[tuple[TaskHeader, Pause]]:
        """Return the waiting tasks of an owner's tenant with an approval without a decision, newest status first.

        Args:
            owner: The owner, whose own tasks are among them.
            limit: The most tasks.
            before: Only tasks after the task with this (status_at, id).
            since: Oldest time of the status (ms, inclusive).

        Raises:
            UnsupportedOperationError: The store cannot find them.
        """
        raise UnsupportedOperationError(_FINDS_NO_APPROVALS)

    async def count_open_approvals(self, owner: str, *, since: int | None = None) -> int:
        """Return the number of all tasks of `open_approvals`, without the tasks of the owner.

        Raises:
            UnsupportedOperationError: The store cannot find them.
        """
        raise UnsupportedOperationError(_FINDS_NO_APPROVALS)

    async def page_key(self) -> bytes:
        """Return 32 random bytes that all processes of the store share, and nobody else knows.

        Raises:
            UnsupportedOperationError: The store does not find the approvals of other owners.
        """
        raise UnsupportedOperationError(_FINDS_NO_APPROVALS)

    @abstractmethod
    async def unread(self, task_id: str, after: int) -> Sequence[tuple[int, bytes, bytes | None]]:
        """Return the unread prompts of a running task after a row: (row, JSON, fields of its request), oldest first.

        Rows are the rows of `Claim.inbox`, `Checkpoint.taken` and `Finish.taken`. Answers to pending calls are
        left out. The fields of the request are those of `Claim.request`.
        """
