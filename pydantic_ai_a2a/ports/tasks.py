"""The port of the task queue: submit, claim, renew, emit, finish, release."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from pydantic_ai.messages import ModelMessage
from pydantic_ai.usage import RunUsage

from ..types import TaskEvent, TaskHeader, TaskState, frozen
from .credentials import SealedCredential
from .push import PushConfig
from .quotas import Charge
from .reading import Pause

__all__ = (
    'Accepted',
    'Answer',
    'Checkpoint',
    'Claim',
    'Finish',
    'Marks',
    'Slot',
    'Status',
    'Submission',
    'TaskQueue',
)


@frozen
class Answer:
    """A message as the checked answer to a waiting task."""

    pause: Pause
    """The answered pause: a task with a newer event refuses the answer."""
    pending: bytes | None
    """The pending calls with the answer, for the resumed run; None if the task waits without calls."""
    rest: bytes | None = None
    """The status message that asks for the missing answers; None if the run resumes."""
    again: bool = False
    """True if the message is no answer: the deadline of the waiting task stays as before."""


@frozen
class Submission:
    """A client's message after all checks without storage."""

    owner: str
    anonymous: bool
    message_id: str
    digest: bytes
    """Digest of the content: two messages with the same id and digest are one message, sent twice."""
    body: bytes
    """The message as 1.0 JSON, without taskId and contextId."""
    task_id: str
    """Id of the continued or created task."""
    new: bool
    """True if the message creates a task."""
    context_id: str | None
    """The context of a new task; for a continued task the context in the request or of the pause, or None."""
    request: bytes | None = None
    """The fields of the request for the run, as a JSON object."""
    traceparent: str | None = None
    dialect: str = '1.0'
    """Name of the codec of the request, stored with a new task."""
    at: int
    """Now (ms)."""
    logged: bool = False
    """True if the sender reads the events of the task: the log has all events from the message on."""
    watched_until: int = 0
    """Time until which the accepting process reads the events of the task, by the clock of the store (ms).

    The store sets the time, for the process that runs the task.
    """
    answers_calls: bool = False
    """True if the message has answers to calls: only a task with pending calls accepts the message."""
    answer: Answer | None = None
    """The checked answer, if the task waits for one."""
    only_waiting: bool = False
    """True if a queued or running task must refuse the message."""
    pause: int | None = None
    """Number of the event of the answered pause: a task that has resumed since refuses the message."""
    task_limit: int | None = None
    """Limit of the owner's queued and running tasks, including the message's task."""
    size: int = 0
    """Bytes of the stored parts."""
    unread_limit: int | None = None
    """Limit of unread messages in the task, without the message and the running one; None: `queue_limit`."""
    refusal: Exception | None = None
    """Error to raise for a message that was not accepted before."""
    push: PushConfig | None = None
    """A webhook for the task, as by `PushConfigs.create`, from the first event after the message."""
    push_limit: int = 0
    """Limit of the task's push configurations."""

    credential: SealedCredential | None = None
    """The credential for the run, stored with the message and deleted at the end of the task."""

    def header(self, state: TaskState = 'submitted') -> TaskHeader:
        """Return the header of the new task; a submitted task is queued."""
        assert self.context_id is not None, 'a new message has one'
        return TaskHeader(
            id=self.task_id,
            context_id=self.context_id,
            owner=self.owner,
            state=state,
            status_at=self.at,
            status_message=None,
            metadata=None,
            last_event=0,
            dialect=self.dialect,
            queued=state == 'submitted',
        )


class Slot(NamedTuple):
    """A free slot of a worker, offered for the task of a new message."""

    holder: str
    """Name of the worker, as in `TaskQueue.claim`."""
    lease: int
    """Milliseconds of the lease, as in `TaskQueue.claim`."""


class Accepted(NamedTuple):
    """The result of a submission."""

    header: TaskHeader
    after: int
    """Number of the newest event at the first acceptance of the message: a blocking send waits for later events."""
    replayed: bool
    """True if the message was accepted before: this submission stored nothing."""
    claim: Claim | None = None
    """The claim of the task for the offered slot; None if the task waits, or if the message queued no task."""


class Status(NamedTuple):
    """A status to store with an event."""

    state: TaskState
    at: int
    message: bytes | None


@frozen
class Checkpoint:
    """The progress of a run, for the next holder of the task."""

    run: str
    """Id of the run, the same in all attempts."""
    messages: Sequence[ModelMessage]
    """The model messages of the run, over all attempts, without the earlier messages of the conversation."""
    usage: RunUsage
    """The run's usage over all attempts."""
    first: int = 0
    """In a write: number of the first stored message to replace by `messages`; earlier messages stay. In a read: 0."""
    taken: int = 0
    """Row of the newest client message in `messages` that entered the running run; 0 if no message did."""


@frozen
class Claim:
    """A claimed task, with the holder's right to write."""

    header: TaskHeader
    holder: str
    fence: int
    """Number that grows with every claim; writes with an older fence are refused."""
    attempt: int
    """Number of the attempt, from 1: each lost holder adds 1."""
    run: int
    """Counts the agent runs of the task, from 1."""
    turn: int
    """Number of the run's turn, from 1. A turn begins with a prompt. Attempts after a crash and resumed runs belong to
    the same turn."""
    inbox: int
    """Row of the newest client message of this run and all earlier runs, without answers."""
    message: bytes
    """The message to run now, as JSON."""
    head: str | None
    """Newest entry of the continued conversation; None for a new conversation."""
    own_messages: Sequence[ModelMessage] | None
    """Model messages of the interrupted task, not yet in the context."""
    request: bytes | None
    """The fields of the request of `message` for the run, as a JSON object."""
    traceparent: str | None
    checkpoint: Checkpoint | None = None
    """The stored progress of earlier attempts; None without progress."""
    push: bool = False
    """True if the task has, or had, push notification configurations."""
    pending: bytes | None = None
    """The task's pending calls with their answers; None if the task waited only for a message."""


@frozen
class Finish:
    """The end of a run: all values of the last transaction."""

    status: Status
    events: Sequence[TaskEvent] = ()
    """Events before the status update, such as the closing artifact update."""
    final: TaskEvent
    """The status update; not stored if another message of the task is run next."""
    history: Sequence[tuple[str, bytes]] = ()
    """Messages to add to the task's history: (messageId, JSON)."""
    artifacts: Sequence[tuple[str, bytes]] | None = None
    """Artifacts to add to the task: (artifactId, JSON). A new artifact replaces the artifact with the same id. None
    keeps the artifacts in the log of a run that ends the task or the turn."""
    messages: Sequence[ModelMessage] = ()
    """The run's new model messages. Completed or canceled: appended to the context. Interrupted: kept with the task.
    Failed or rejected: dropped; the context stays as before the run."""
    usage: RunUsage | None = None
    """The run's usage, added to the conversation's usage."""
    metadata: bytes | None = None
    failure: str | None = None
    """Class of the failure, for a failed task."""
    pending: bytes | None = None
    """The pending calls of an interrupted task, to check answers."""
    charges: Sequence[Charge] = ()
    """The run's usage over all attempts, as charges of the quotas."""
    taken: int = 0
    """Row of the newest client message that entered the running run, now marked as read; 0 if no message did."""
    last: bool = False
    """True to end the task despite unread messages."""


class Marks(NamedTuple):
    """Changes to the holder's tasks since its last renewal."""

    lost: Sequence[str]
    """Tasks of other holders by now: this holder stops the runs and writes nothing."""
    cancel: Sequence[str]
    """Tasks to cancel."""


class TaskQueue(ABC):
    """The state machine of tasks. Every method is one transaction."""

    @abstractmethod
    async def submit(
        self, submission: Submission, *, queue_limit: int, idempotency_window: int, slot: Slot | None = None
    ) -> Accepted:
        """Store a message, and create a task or add the message to the continued task.

        A message to a waiting task is the answer of the client: the next run gets the answer before older unread
        messages.

        A message (owner, message id, digest) that was accepted before returns the first task again. Messages of an
        anonymous owner are recognised only with an id of 16 or more characters, and within `idempotency_window` (ms).
        With a window of 0, no message is recognised.

        With `slot`, the same transaction claims the queued task of the message for the slot. The task waits instead
        while an earlier task of the context is queued or running, or while a claim could take a task from the queue.
        `Accepted.header` and `Accepted.after` are the same as without a slot. A backend may ignore the slot.

        Raises:
            TaskNotFoundError: The owner has no such task to continue.
            UnsupportedOperationError: The task has ended; or the task does not wait, and `submission.only_waiting` is
                set; or the task has resumed since `submission.pause`.
            InvalidParamsError: The message names another context, or a known message id with another content.
            AnswerNeeded: The task waits with calls, and there is no `submission.answer`; or the answer is for another
                pause than the current one. Nothing is stored.
            OverloadedError: `queue_limit` tasks are queued already.
            QuotaExceededError: `submission.task_limit` tasks of the owner are queued or running already.
        """

    @abstractmethod
    async def cancel(self, task_id: str, owner: str | None, *, at: int, force: bool = False) -> TaskHeader:
        """Cancel a queued or waiting task at once; ask the holder of a running task to cancel.

        `force` cancels a running task at once; the holder loses the task.

        Raises:
            TaskNotFoundError: The owner has no such task.
            TaskNotCancelableError: The task has ended.
        """

    @abstractmethod
    async def claim(self, holder: str, *, at: int, lease: int, limit: int, task_id: str | None = None) -> list[Claim]:
        """Claim runnable tasks, at most one of each context, and set the tasks to `working`.

        Tasks with expired leases come first. Then owners with queued tasks take turns: a round has one task of each
        owner. A task gets a round once the task is the first of the context: the round after the owner's last queued
        task, or the current round. Tasks of one round are in the order of submission.

        With `task_id`, only that task is claimed. A task with the expired lease of another holder counts as one more
        attempt.

        The store measures leases with one clock for all processes; setting the wall clock does not change a lease. A
        lease of less than 0 has expired at once.

        Args:
            holder: Id of the claiming process.
            at: Time of the new status (ms since the epoch).
            lease: Milliseconds until other holders may claim the tasks, if no renewal comes.
            limit: The most tasks to claim.
            task_id: The only task to claim.
        """

    @abstractmethod
    async def renew(self, holder: str, tasks: Sequence[str], *, lease: int) -> Marks:
        """Renew the leases of the given tasks: `lease` milliseconds from now."""

    @abstractmethod
    async def emit(
        self,
        claim: Claim,
        events: Sequence[TaskEvent],
        status: Status | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        """Store events, and the status of the task if one is given.

        The message of the previous status moves into the history. A checkpoint is stored in the same transaction, and
        `claim` returns the checkpoint to the task's next holder. Only durable backends get checkpoints. After
        `StoreUnavailable` the caller repeats the call: the events are stored once.

        Raises:
            LeaseLost: The claim is no longer valid.
        """

    @abstractmethod
    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        """End a run in one transaction, and release the task.

        A task with unread messages does not end when the run completes, fails or rejects the task: the result is
        stored, the message of the status goes into the history, and the claim for the first run of the next turn is
        returned. With `finish.last`, as a dead letter, or canceled, the task ends despite unread messages. A waiting
        task keeps unread messages for later. The usage of the run is charged in the same transaction, without the usage
        charged before: a run can continue the checkpoint of a dead letter.

        The run's checkpoint is deleted, except for a dead letter (`failure` is one of `DEAD_LETTERS`). After
        `StoreUnavailable` the caller repeats the call: if the first call was stored, the second call returns the same
        result.

        Raises:
            LeaseLost: The claim is no longer valid.
        """

    @abstractmethod
    async def release(self, claim: Claim) -> None:
        """Release a running task, for any holder to claim. The state, context and checkpoint stay."""
