"""The port for retention, dead letters, erasing and exporting."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import astuple, dataclass
from typing import NamedTuple, TypeAlias

from pydantic_ai.conversation_store import ConversationRecord
from pydantic_ai.messages import ModelMessage

from ..settings import Retention
from ..types import StoredTask, TaskHeader

__all__ = (
    'DEAD_LETTER',
    'DEAD_LETTERS',
    'DeadLetter',
    'Erased',
    'ExportedConversation',
    'Housekeeping',
    'OnExpired',
)

OnExpired: TypeAlias = Callable[[TaskHeader, str, str], object]
"""Takes a task that failed because its client did not answer in time, the class of the failure, the correlation id."""


DEAD_LETTER = 'attempts'
"""Class of the failure of a task that was started too often."""
DEAD_LETTERS = (DEAD_LETTER, 'storage')
"""Classes of the failures with which a task is a dead letter: it can be retried after its last step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A task that was started too often without coming to an end, or that ended because of its store."""

    task_id: str
    context_id: str
    owner: str
    at: int
    """Time of the failure (ms)."""
    attempts: int
    """Number of attempts."""
    failure: str
    """Class of the failure."""
    correlation_id: str | None
    """Names the failure in the log and to the client."""
    retried_as: str | None
    """The task that was made of it last; None if it was not retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """Counts of erased rows; false if all counts are 0."""

    tasks: int = 0
    items: int = 0
    """Messages and artifacts of tasks."""
    events: int = 0
    conversations: int = 0
    entries: int = 0
    """Model messages of conversations."""

    def __bool__(self) -> bool:
        return any(astuple(self))

    def __add__(self, other: Erased) -> Erased:
        return Erased(
            tasks=self.tasks + other.tasks,
            items=self.items + other.items,
            events=self.events + other.events,
            conversations=self.conversations + other.conversations,
            entries=self.entries + other.entries,
        )


class ExportedConversation(NamedTuple):
    """A conversation, with all of its messages."""

    record: ConversationRecord
    """Its usage, and how it came to be."""
    messages: Sequence[ModelMessage]
    branches: Sequence[Sequence[ModelMessage]]
    """The histories that it has left, of `record.branches`."""


class Housekeeping(ABC):
    """Retention, and the operations of operators."""

    @abstractmethod
    async def sweep(self, retention: Retention, *, at: int, on_expired: OnExpired | None = None) -> int:
        """Drop a bounded batch of what is past its time; how many rows went. Call again until it is 0.

        `on_expired` is called for each task that this sweep has failed because its client did not answer within
        `retention.waiting`, once that is stored.

        A task that has ended stays, and counts for nothing, while it has deliveries that are neither done nor given up:
        for `retention.waiting` after its end, or as long as the others if that is longer.
        """

    @abstractmethod
    async def erase_task(self, task_id: str, owner: str | None, *, at: int) -> bool:
        """Delete a finished or waiting task, its messages, artifacts and events; whether it was there.

        Readers of a waiting one get a last event: it is canceled. Those in other processes are dropped.

        Raises:
            UnsupportedOperationError: It is queued or running; cancel it first.
        """

    @abstractmethod
    async def erase(self, owner: str, context_id: str | None = None, *, at: int) -> Erased:
        """Delete a bounded batch of all that an owner has, or of one of its contexts; what went.

        Call again until nothing does. Readers of a waiting task are told as by `erase_task`.

        Raises:
            UnsupportedOperationError: One of its tasks is queued or running; this call has deleted nothing.
        """

    @abstractmethod
    async def dead_letters(
        self, owner: str | None = None, *, limit: int = 100, after: tuple[int, str] | None = None
    ) -> Sequence[DeadLetter]:
        """The dead letters, those that failed first at the beginning; of any owner, if None.

        `after` is (at, task_id) of the last one of the page before.
        """

    @abstractmethod
    async def retry(self, task_id: str, *, new_id: str, at: int, again: bool = False) -> TaskHeader:
        """Make a new, queued task of a dead letter: with its message, for its owner and in its context.

        The message gets an id of its own and names the dead letter in `referenceTaskIds`. The new task goes on from the
        dead letter's checkpoint, and with the answer and the model messages of one that had waited and was answered;
        its push notification configurations are copied. A dead letter is retried once, whoever asks at the same time,
        unless `again` says otherwise; then what had been moved is gone, and the new task begins with its message.

        Raises:
            TaskNotFoundError: There is no such task.
            UnsupportedOperationError: It is no dead letter, or was retried already.
        """

    @abstractmethod
    def export(self, owner: str, context_id: str | None = None) -> AsyncIterator[StoredTask | ExportedConversation]:
        """All tasks of an owner and then all its conversations, or those of one context; one at a time in memory.

        What is written meanwhile may or may not be among them.
        """
