"""The port for retention, dead letters, erasing and exporting, and for the queue as operators see it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import astuple, field
from typing import NamedTuple, TypeAlias

from pydantic_ai.conversation_store import ConversationRecord
from pydantic_ai.messages import ModelMessage

from ....errors import UnsupportedOperationError
from ....settings.retention import Retention
from ....types.frozen_values import frozen
from ....types.stored_tasks import StoredTask, TaskHeader

OnExpired: TypeAlias = Callable[[TaskHeader, str, str], object]
"""Called with a task that failed without an answer in time, the class of the failure, and the correlation id."""
DEAD_LETTER = 'attempts'
"""Failure class of a task with too many attempts."""
DEAD_LETTERS = (DEAD_LETTER, 'storage')
"""Failure classes of dead letters: tasks to retry from the last checkpoint."""


@frozen
class DeadLetter:
    """A failed task, for an operator to retry."""

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
    """Id of the failure in the log and in the client's error."""
    retried_as: str | None
    """Id of the newest retry; None without a retry."""


@frozen
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


@frozen
class Swept:
    """What one batch of a sweep has done; false if nothing was due."""

    rows: int = 0
    """Deleted and changed rows."""
    full: bool = False
    """True if a part of the batch was as large as a batch may be: more is due now."""
    over: Mapping[str, int] = field(default_factory=dict[str, int])
    """Number of `tasks` and `contexts` that were deleted before their time, because of `Retention.max_tasks`."""

    def __bool__(self) -> bool:
        return self.rows > 0

    def __add__(self, other: Swept) -> Swept:
        return Swept(rows=self.rows + other.rows, full=self.full or other.full, over={**self.over, **other.over})


class ExportedTask(NamedTuple):
    """A task with all messages and artifacts."""

    task: StoredTask
    requests: Sequence[bytes]
    """The requests of the task's messages, oldest first, like `Claim.request`. Empty requests are left out."""


class ExportedConversation(NamedTuple):
    """A conversation with all messages."""

    record: ConversationRecord
    """Usage and origin of the conversation."""
    messages: Sequence[ModelMessage]
    branches: Sequence[Sequence[ModelMessage]]
    """The abandoned histories of `record.branches`."""


@frozen
class QueueCounts:
    """The tasks of a namespace in numbers."""

    namespace: str
    submitted: int
    """Queued tasks that have never run."""
    queued: int
    """Tasks that wait for a worker: submitted, or answered."""
    running: int
    """Tasks that were claimed, also those that wait for another try or holder."""
    leases: int
    """Running tasks with a holder whose lease has not expired."""
    waiting: int
    """Tasks that wait for their clients."""
    dead: int
    """Dead letters."""
    oldest: int | None
    """Since when the oldest queued task waits (ms); None without one."""
    accepted: int
    """Tasks accepted in the last five minutes."""
    ended: int
    """Tasks ended in the last five minutes."""
    paused_at: int | None
    """Since when no task is claimed (ms); None if tasks are claimed."""


class Housekeeping(ABC):
    """Retention, and the operations of operators."""

    async def queues(self, *, at: int, every: bool) -> Sequence[QueueCounts]:
        """Return the counts of this namespace; with `every`, of each namespace with tasks in the same store.

        Large numbers are bounded or estimated, so that a million tasks take no longer.
        """
        raise UnsupportedOperationError('This backend cannot show its queue.')

    async def pause(self, at: int | None) -> None:
        """Let no task be claimed, by any process, from the time `at` on (ms). None ends the pause.

        Runs go on, and messages are accepted.
        """
        raise UnsupportedOperationError('This backend cannot pause its queue.')

    @abstractmethod
    async def sweep(self, retention: Retention, *, at: int, on_expired: OnExpired | None = None) -> Swept:
        """Delete a bounded batch of expired rows. Call again at once while batches are full.

        The sweep fails tasks without an answer within `retention.waiting`, and calls `on_expired` for each failed task
        after the commit.

        An ended task with pending deliveries stays, and does not count against limits: for `retention.waiting` after
        the end, or for the retention of ended tasks if longer.
        """

    @abstractmethod
    async def erase_task(self, task_id: str, owner: str | None, *, at: int) -> bool:
        """Delete a finished or waiting task with all messages, artifacts and events. Return True if the task existed.

        Readers of a waiting task get a last event: canceled. Readers in other processes are dropped.

        Raises:
            UnsupportedOperationError: The task is queued or running; cancel the task first.
        """

    @abstractmethod
    async def erase(self, owner: str, context_id: str | None = None, *, at: int) -> Erased:
        """Delete a bounded batch of an owner's rows, or of one context of the owner. Return the deleted rows.

        Call again until nothing is deleted. Readers of a waiting task get a last event, as in `erase_task`.

        Raises:
            UnsupportedOperationError: A task of the owner is queued or running; this call has deleted nothing.
        """

    @abstractmethod
    async def set_erasing(self, owner: str, context_id: str | None, *, until: int | None) -> None:
        """Refuse messages of an owner, or in one context, until a time (ms). None accepts messages again."""

    @abstractmethod
    async def check_erasing(self, owner: str, context_id: str, *, at: int) -> None:
        """Check that messages of an owner in a context are not refused by `set_erasing`.

        Raises:
            BeingErased: They are refused.
        """

    @abstractmethod
    async def dead_letters(
        self, owner: str | None = None, *, limit: int = 100, after: tuple[int, str] | None = None, failed: bool = False
    ) -> Sequence[DeadLetter]:
        """Return a page of dead letters, the oldest failure first; of all owners, if `owner` is None.

        `after` is (at, task_id) of the last dead letter of the previous page. With `failed`, the page has all failed
        tasks.
        """

    @abstractmethod
    async def retry(
        self, task_id: str, *, new_id: str, at: int, again: bool = False, failed: bool = False
    ) -> TaskHeader:
        """Queue a dead letter as a new task, with the same message, owner and context.

        The message gets a new id and names the dead letter in `referenceTaskIds`. The new task continues the dead
        letter's checkpoint. For an answered dead letter the new task also has the answer and the model messages. The
        push notification configurations are copied. A dead letter is retried once, even by concurrent calls; with
        `again` another task is made, which begins with the message, without a checkpoint. With `failed`, any failed
        task is queued; a task that is no dead letter begins with the messages of its last turn.

        Raises:
            TaskNotFoundError: The task does not exist.
            UnsupportedOperationError: The task is no dead letter, or has not failed; or it was retried already.
        """

    @abstractmethod
    def export(self, owner: str, context_id: str | None = None) -> AsyncIterator[ExportedTask | ExportedConversation]:
        """Yield all tasks of an owner, then all conversations; or the tasks and conversations of one context.

        One item is in memory at a time. The export may or may not include rows written after the start.
        """
