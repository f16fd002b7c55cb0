"""The port of the task queue: submit, claim, renew, emit, finish, release."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pydantic_ai.messages import ModelMessage
from pydantic_ai.usage import RunUsage

from ..types import TaskEvent, TaskHeader, TaskState
from .push import PushConfig
from .quotas import Charge

__all__ = (
    'Accepted',
    'Answer',
    'Checkpoint',
    'Claim',
    'Finish',
    'Marks',
    'Status',
    'Submission',
    'TaskQueue',
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A message as the checked answer to the pending calls of its task."""

    pause: int
    """`AnswerNeeded.pause` of what was answered: by now the task may wait with something else."""
    pending: bytes
    """The answer as it is stored, for the run that goes on."""
    rest: bytes | None = None
    """The status message that asks for the rest, or again, if the task does not go on yet."""
    again: bool = False
    """True if the message is no answer, so that its task waits as long as it would have without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A client's message that passed every check that needs no storage."""

    owner: str
    anonymous: bool
    message_id: str
    digest: bytes
    """Same id and digest: the same message, sent again."""
    body: bytes
    """The message as 1.0 JSON, without taskId and contextId."""
    task_id: str
    """Id of the task that the message continues or creates."""
    new: bool
    """True if the message creates a task."""
    context_id: str | None
    """The context of a new task; for another one what the client named, or None."""
    request: bytes | None = None
    """The request's fields that a run of the message needs, as a JSON object."""
    traceparent: str | None = None
    dialect: str = '1.0'
    """Name of the codec that read the message: a new task keeps it."""
    at: int
    """Now (ms)."""
    watched_until: int = 0
    """Until when the process that takes the message reads its task's events, on a clock of the store (ms).

    The store sets it, for other processes that may run the task.
    """
    answers_calls: bool = False
    """True if the message claims to answer calls: only a task with pending calls accepts such a message."""
    answer: Answer | None = None
    """The checked answer, if the task waits for one."""
    only_waiting: bool = False
    """True if a queued or running task must refuse the message."""
    pause: int | None = None
    """Number of the event that began the answered pause: a task that has gone on since refuses the message."""
    task_limit: int | None = None
    """Limit of the owner's queued and running tasks, including the message's task."""
    size: int = 0
    """Bytes of the stored parts."""
    unread_limit: int | None = None
    """Limit of unread messages in the task, without the message and the running one; None: `queue_limit`."""
    refusal: Exception | None = None
    """Error to raise, unless the message was accepted before."""
    push: PushConfig | None = None
    """To be told of the task, as by `PushConfigs.create`, from the first event that the message leads to."""
    push_limit: int = 0
    """Limit of the task's push configurations."""


class Accepted(NamedTuple):
    """The result of a submission."""

    header: TaskHeader
    after: int
    """Number of the newest event when the message was accepted first: a blocking send waits for what follows."""
    replayed: bool
    """True if the message was accepted before, so that this submission stored nothing."""


class Status(NamedTuple):
    """A status to store with an event."""

    state: TaskState
    at: int
    message: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The progress of a run, from which the next holder of the task continues."""

    run: str
    """Names the run, in all its attempts."""
    messages: Sequence[ModelMessage]
    """The run's own model messages, over all its attempts; those before them are the conversation's."""
    usage: RunUsage
    """The run's usage over all attempts."""
    first: int = 0
    """In a write: number of the first message that `messages` replace; stored messages before it stay. In a read: 0."""
    taken: int = 0
    """Row of the newest client message that entered the run on its way and is in `messages`; 0 if none did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A task that this holder runs, with the holder's right to write."""

    header: TaskHeader
    holder: str
    fence: int
    """Grows with every claim; a write with an older one is refused."""
    attempt: int
    """1, and one more for each holder that was lost."""
    run: int
    """Counts the agent runs of the task, from 1."""
    turn: int
    """Number of the turn that the run belongs to, from 1. A turn begins with a message that is a prompt. Attempts after
    a crash and runs that go on after a pause belong to the same turn."""
    inbox: int
    """Row of the newest client message that was run, this run's among them unless it is an answer."""
    message: bytes
    """The message to run now, as JSON."""
    head: str | None
    """Newest entry of the conversation that the run continues; None for a new one."""
    own_messages: Sequence[ModelMessage] | None
    """Model messages of the task that are not in its context yet, because it was interrupted."""
    request: bytes | None
    """The fields that the run needs of the request of `message`, as a JSON object."""
    traceparent: str | None
    checkpoint: Checkpoint | None = None
    """The stored progress of earlier attempts; None if there is none."""
    push: bool = False
    """True if the task has, or had, push notification configurations."""
    pending: bytes | None = None
    """The task's pending calls with their answers; None if the task waited only for a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The end of a run: everything that its last transaction writes."""

    status: Status
    events: Sequence[TaskEvent] = ()
    """Events before the status update, such as the closing artifact update."""
    final: TaskEvent
    """The status update; not stored if the run goes on with another message of the task."""
    history: Sequence[tuple[str, bytes]] = ()
    """Messages to add to the task's history: (messageId, JSON)."""
    artifacts: Sequence[tuple[str, bytes]] | None = None
    """Artifacts to add to the task: (artifactId, JSON). Each replaces the task's artifact with the same id. None keeps
    what the log has of a run that ends its task or its turn."""
    messages: Sequence[ModelMessage] = ()
    """The run's new model messages. Completed or canceled: appended to the context. Interrupted: kept with the task.
    Failed or rejected: dropped, so that the context is as it was before."""
    usage: RunUsage | None = None
    """The run's usage, added to the conversation's usage."""
    metadata: bytes | None = None
    failure: str | None = None
    """Class of the failure, for a failed task."""
    pending: bytes | None = None
    """The pending calls of an interrupted task, against which its answer is checked."""
    charges: Sequence[Charge] = ()
    """The run's usage over all attempts, as charges of the quotas."""
    taken: int = 0
    """Row of the newest client message that entered the run on its way, which is read with this; 0 if none did."""
    last: bool = False
    """True to end the task although it has unread messages."""


class Marks(NamedTuple):
    """Changes to the holder's tasks since its last renewal."""

    lost: Sequence[str]
    """Tasks that the holder has lost: their runs stop and write nothing."""
    cancel: Sequence[str]
    """Tasks to cancel."""


class TaskQueue(ABC):
    """The state machine of tasks. Every method is one transaction."""

    @abstractmethod
    async def submit(self, submission: Submission, *, queue_limit: int, idempotency_window: int) -> Accepted:
        """Store a message and create its task, or hand it to the task it continues.

        A message to a task that waits is its answer: the next run is given it, before messages that came earlier and
        are unread still.

        A message (owner, message id, digest) that was accepted before gives the first task again. A message of an
        anonymous owner that creates a task does so only if its id has 16 characters or more, and within
        `idempotency_window` (ms). If the window is 0, no message is recognised, whoever sends it.

        Raises:
            TaskNotFoundError: The task to continue is not there for this owner.
            UnsupportedOperationError: It has ended; or it waits for nothing, and `submission.only_waiting` is set; or
                it has gone on since `submission.pause`.
            InvalidParamsError: Another context, or a known message id with another content.
            AnswerNeeded: It waits with something that `submission.answer` does not answer, or with nothing although
                there is one. Nothing is stored.
            OverloadedError: `queue_limit` tasks wait already.
            QuotaExceededError: `submission.task_limit` tasks of the owner are queued or running already.
        """

    @abstractmethod
    async def cancel(self, task_id: str, owner: str | None, *, at: int, force: bool = False) -> TaskHeader:
        """Cancel a queued or waiting task at once; ask the holder of a running one to. `force` takes it away from it.

        Raises:
            TaskNotFoundError: Not there for this owner.
            TaskNotCancelableError: It has ended.
        """

    @abstractmethod
    async def claim(self, holder: str, *, at: int, lease: int, limit: int, task_id: str | None = None) -> list[Claim]:
        """Take tasks that may run, at most one of each context, and move them to `working`.

        Tasks whose holder was lost come first. Then owners with queued tasks take turns: a round has one task of each
        owner. An owner's task gets its round once no task of its context is before it: the round after the owner's last
        queued task, or the one that is being claimed now. Tasks of one round are in the order of their submission.

        With `task_id`, only that task is taken. A task of another holder whose lease has expired counts as one more
        attempt.

        Leases are measured by the store, with a clock that is the same for all who share the store and that nobody
        sets. A lease of less than 0 has expired at once.

        Args:
            holder: Who takes the tasks.
            at: The time of their new status (ms since the epoch).
            lease: How long other holders leave the tasks alone, unless the lease is renewed (ms).
            limit: How many may be taken.
            task_id: The only task to take.
        """

    @abstractmethod
    async def renew(self, holder: str, tasks: Sequence[str], *, lease: int) -> Marks:
        """Let the leases of these tasks expire `lease` milliseconds from now."""

    @abstractmethod
    async def emit(
        self,
        claim: Claim,
        events: Sequence[TaskEvent],
        status: Status | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        """Store events, and with a status the task's; the message of the status before it moves into the history.

        A checkpoint is stored with them, and `claim` gives it to the task's next holder. Only durable backends are
        given one. The same call is repeated after `StoreUnavailable`: what the first call has stored is stored once.

        Raises:
            LeaseLost: The claim is no longer valid.
        """

    @abstractmethod
    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        """End a run in one transaction, and release the task.

        A run that completes, fails or rejects its task does not end it while another message of it is unread: what the
        run came to is stored, the message of its status goes into the history, and the claim for the first run of the
        next turn is returned. It ends all the same with `finish.last`, and if it becomes a dead letter or is canceled.
        A task that waits keeps what is unread for later. What the run has used is charged in the same transaction, but
        for what was charged of it before: it may go on from the checkpoint of a dead letter.

        The run's checkpoint goes, unless the task becomes a dead letter (`failure` is one of `DEAD_LETTERS`). The same
        call is repeated after `StoreUnavailable`: if the first call was stored, the second returns the same.

        Raises:
            LeaseLost: The claim is no longer valid.
        """

    @abstractmethod
    async def release(self, claim: Claim) -> None:
        """Hand a running task back: it stays `working`, keeps context and checkpoint, and may be claimed by anybody."""
