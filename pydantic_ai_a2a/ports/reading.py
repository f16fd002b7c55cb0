"""The ports for reading tasks and their events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..types import Page, StoredTask, TaskEvent, TaskQuery

__all__ = ('EventLog', 'Pause', 'Subscription', 'TaskReader')


class Pause(NamedTuple):
    """The wait of a task for its client."""

    number: int
    """Number of the newest event of the task."""
    context_id: str
    pending: bytes | None
    """The pending calls of the task, as stored; None if the task waits without calls."""
    request: bytes | None = None
    """The fields of the request of the waiting run, like `Claim.request`."""


class TaskReader(ABC):
    """Consistent reads of tasks."""

    @abstractmethod
    async def load(
        self, task_id: str, owner: str | None, *, history_length: int | None = None, artifacts: bool = True
    ) -> StoredTask | None:
        """The task, with its newest `history_length` messages (None: all); or None. `owner` None reads any owner's."""

    async def watch(self, task_id: str, owner: str | None) -> StoredTask | None:
        """Like `load`, with the whole history, for a reader of the events that follow: the log has all of them.

        A store may leave events out of the log until a task has a reader.
        """
        return await self.load(task_id, owner)

    @abstractmethod
    async def list(self, query: TaskQuery) -> Page:
        """One page of tasks, newest status first."""

    @abstractmethod
    async def pause(self, task_id: str, owner: str) -> Pause | None:
        """Return the current pause of an owner's task; None for a task that does not wait for its client."""

    @abstractmethod
    async def unread(self, task_id: str, after: int) -> Sequence[tuple[int, bytes, bytes | None]]:
        """Return the unread prompts of a running task after a row: (row, JSON, fields of its request), oldest first.

        Rows are the rows of `Claim.inbox`, `Checkpoint.taken` and `Finish.taken`. Answers to pending calls are left
        out. The fields of the request are those of `Claim.request`.
        """


class Subscription(ABC):
    """A reader's position in the log of a task. An open subscription counts as a reader of the task."""

    dropped: bool = False
    """True once the reader fell too far behind: no event follows."""

    @abstractmethod
    def start(self, after: int) -> None:
        """Set the number before the first event to read: from a snapshot after subscribing, or from the client."""

    @abstractmethod
    async def next(self) -> Sequence[TaskEvent]:
        """The next events, in order and without gaps; waits for one. Empty after `nudge`, or when dropped."""

    @abstractmethod
    def nudge(self) -> None:
        """Make a waiting `next` return without events."""

    @abstractmethod
    def close(self) -> None:
        """Stop. Idempotent; never blocks."""


class Ending(ABC):
    """The registered wait of a caller for the end of a task."""

    @abstractmethod
    async def wait(self, after: int) -> StoredTask | None:
        """Return once an event after this number has stopped the task.

        Return the whole task if a run of this process has just stored the end and has all of the task; else None.
        """

    @abstractmethod
    def close(self) -> None:
        """Unregister the caller, once."""


class EventLog(ABC):
    """The numbered events of each task."""

    @abstractmethod
    def subscribe(self, task_id: str, on_drop: Callable[[], object]) -> Subscription:
        """A place in the log. `on_drop` is called when more than the lag limit piles up behind a batch in its hands."""

    @abstractmethod
    async def wait(self, task_id: str, after: int) -> None:
        """Return once an event after this number has moved the task to an interrupted or terminal state."""

    def expect(self, task_id: str) -> Ending | None:
        """Register a wait for the end of a task before the submission.

        None: the caller has to `wait` after the message is stored.
        """
        return None

    def release(self, held: Callable[[str], bool]) -> None:  # noqa: B027 - a store that ends with its process needs none
        """End every `wait` in this event loop for tasks of other holders, which continue in other processes.

        Called only where tasks outlive the process.
        """

    @abstractmethod
    def watched(self, task_id: str) -> bool:
        """True if the task's events have a reader now. Cheap; may lag behind for readers in other processes."""

    @abstractmethod
    async def has(self, task_id: str, n: int) -> bool:
        """True if the log has all events after number `n`, so that a reader can resume there."""
