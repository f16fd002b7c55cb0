"""The port for reading the events of tasks, and for waiting for the end of a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from ....types.stored_events import TaskEvent
from ....types.stored_tasks import StoredTask


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

        Return the whole task if the wait has read it, or if a run of this process has just stored the end and has all
        of the task; else None.

        Raises:
            TaskNotFoundError: The task was erased.
        """

    @abstractmethod
    def close(self) -> None:
        """Unregister the caller, once."""


class EventLog(ABC):
    """The numbered events of each task."""

    @abstractmethod
    def subscribe(self, task_id: str, on_drop: Callable[[], object], *, live: bool = False) -> Subscription:
        """A place in the log.

        Args:
            task_id: The task.
            on_drop: Called when more than the lag limit piles up behind a batch in the reader's hands.
            live: True if the reader wants the text of the answer while the model writes the text.
        """

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
    def watched(self, task_id: str, *, live: bool = False) -> bool:
        """True if the task's events have a reader now; with `live`, a reader of live text.

        Cheap; may lag behind for readers in other processes.
        """

    @abstractmethod
    async def has(self, task_id: str, n: int) -> bool:
        """True if the log has all events after number `n`, so that a reader can resume there."""
