"""What moves tasks: messages that are stored, runs that are claimed and finished."""

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
    """What a message comes to as an answer to what its task waits with."""

    pause: int
    """`AnswerNeeded.pause` of what was answered: by now the task may wait with something else."""
    pending: bytes
    """What is stored of it now: the run that goes on is given it."""
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
    """The task it continues, or the id of the task it creates."""
    new: bool
    """Whether it creates a task."""
    context_id: str | None
    """The context of a new task; for another one what the client named, or None."""
    request: bytes | None = None
    """What a run that begins with the message needs of the request, as a JSON object."""
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
    """Whether it says that it answers calls: only a task that waits with some takes it."""
    answer: Answer | None = None
    """What it comes to, once that was checked."""
    only_waiting: bool = False
    """Whether a task that is queued or running does not take it."""
    pause: int | None = None
    """Number of the event with which the pause began that it ends: a task that has gone on since does not take it."""
    task_limit: int | None = None
    """How many tasks of its owner may be queued or running, the one that it puts into the queue among them."""
    size: int = 0
    """Bytes of its parts, as they are stored."""
    unread_limit: int | None = None
    """How many messages may wait in its task, besides it and the one that is run; None: `queue_limit`."""
    refusal: Exception | None = None
    """What is raised unless it was accepted before."""
    push: PushConfig | None = None
    """To be told of the task, as by `PushConfigs.create`, from the first event that the message leads to."""
    push_limit: int = 0
    """How many configurations a task may have."""


class Accepted(NamedTuple):
    """What became of a submission."""

    header: TaskHeader
    after: int
    """Number of the newest event when the message was accepted first: a blocking send waits for what follows."""
    replayed: bool
    """Whether the message had been accepted before, so that nothing was stored now."""


class Status(NamedTuple):
    """A status to store with an event."""

    state: TaskState
    at: int
    message: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """How far a run has come: what the next holder of its task goes on from."""

    run: str
    """Names the run, in all its attempts."""
    messages: Sequence[ModelMessage]
    """The run's own model messages, over all its attempts; those before them are the conversation's."""
    usage: RunUsage
    """What the run has used, over all its attempts."""
    first: int = 0
    """Where a checkpoint is written: `messages` replace what is stored of the run from its message of this number on,
    and what is stored before stays. 0 in one that is read."""
    taken: int = 0
    """Row of the newest client message that entered the run on its way and is in `messages`; 0 if none did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A task that this holder runs: what it knows of it, and its right to write."""

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
    """What the run needs of the request that sent `message`, as a JSON object."""
    traceparent: str | None
    checkpoint: Checkpoint | None = None
    """How far the run had come in the hands of others; None if it begins, or if nothing was stored of it."""
    push: bool = False
    """Whether the task has, or had, push notification configurations."""
    pending: bytes | None = None
    """What the task has waited with, and how that was answered; None if it was nothing but the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """How a run ends: everything that its last transaction writes."""

    status: Status
    events: Sequence[TaskEvent] = ()
    """What it still has to say before the status, such as the closing artifact update."""
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
    """What the run used, added to the conversation's."""
    metadata: bytes | None = None
    failure: str | None = None
    """Class of the failure, for a failed task."""
    pending: bytes | None = None
    """What an interrupted task waits with, if its answer has to be checked against it."""
    charges: Sequence[Charge] = ()
    """What the run has used over all its attempts, as the quotas count it."""
    taken: int = 0
    """Row of the newest client message that entered the run on its way, which is read with this; 0 if none did."""
    last: bool = False
    """Whether the task ends although messages of it are unread."""


class Marks(NamedTuple):
    """What others want of tasks that this holder runs, since it last renewed its leases."""

    lost: Sequence[str]
    """Tasks that it no longer holds: their runs stop and write nothing."""
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
