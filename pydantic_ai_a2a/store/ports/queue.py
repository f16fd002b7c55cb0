"""The port of the task queue: submit, claim, renew, emit, finish, release."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

from pydantic_ai.messages import ModelMessage
from pydantic_ai.usage import RunUsage

from ...types import TaskEvent, TaskHeader, TaskState, frozen
from .credentials import SealedCredential
from .push_configs import PushConfig
from .quotas import Charge
from .reader import Pause

MethodT = TypeVar('MethodT', bound=Callable[..., Any])


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
    reader: tuple[str, int] | None = None
    """The accepting process, if its clients read the task or wait for it, and what they want. The store sets the value,
    for another process that runs the task."""
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
    """The worker that offers a free slot for the task of a new message, or free slots for claims."""

    holder: str
    """Id of the worker."""
    lease: int
    """Milliseconds until other holders may claim the tasks, if no renewal comes."""
    owner_limit: int | None = None
    """The most running tasks of an owner. Further tasks of the owner are passed over. Default: no limit."""


class Accepted(NamedTuple):
    """The result of a submission."""

    header: TaskHeader
    after: int
    """Number of the newest event at the first acceptance of the message: a blocking send waits for later events."""
    replayed: bool
    """True if the message was accepted before: this submission stored nothing."""
    claim: Claim | None = None
    """The claim of the task for the offered slot; None if the task waits, or if the message queued no task."""

    @property
    def waits(self) -> bool:
        """True if the message has left its task to the workers."""
        return self.claim is None and self.header.queued and not self.replayed


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
class Tried:
    """The tries of a run that an error of the model has ended."""

    number: int
    """Number of the tries since the last stored step of the run."""
    spent: float
    """Seconds of all tries of the run, with the pauses between them."""
    usage: RunUsage
    """The run's usage over all attempts and tries."""


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
    tried: Tried | None = None
    """The failed tries of the run; None without a failed try."""
    wanted: int | None = None
    """What the readers in other processes want, if the store knows them."""

    @property
    def used(self) -> RunUsage | None:
        """Usage of the run in earlier attempts and tries; None without any."""
        tried, checkpoint = self.tried, self.checkpoint
        if tried is None or (checkpoint is not None and checkpoint.usage.requests > tried.usage.requests):
            return None if checkpoint is None else checkpoint.usage
        return tried.usage


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
    rewritten: Sequence[ModelMessage] | None = None
    """The whole context with `messages`, if a completed run has summarised earlier messages.

    Replaces the context, and the newest entry before becomes a branch of the `ConversationRecord`. If the newest entry
    is not `Claim.head` any more, `messages` are appended instead."""
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


class Sink(ABC):
    """The writes of a running task."""

    @abstractmethod
    async def emit(
        self,
        claim: Claim,
        events: Sequence[TaskEvent],
        status: Status | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        """Store events, and the status of the task if one is given.

        The message of the previous status moves into the history. If the last event is a `note` for readers of live
        text, the status stays, and the message of the note goes into the history. A checkpoint is stored in the same
        transaction, and `claim` returns the checkpoint to the task's next holder. Only durable backends get
        checkpoints. After `StoreUnavailable` the caller repeats the call: the events are stored once.

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


class TaskQueue(Sink):
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
            OverloadedError: `queue_limit` tasks are queued already. A backend of several processes may count the tasks
                of the others now and then.
            BeingErased: `Housekeeping.set_erasing` refuses the message.
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
    async def claim(
        self,
        slot: Slot,
        *,
        at: int,
        limit: int,
        task_id: str | None = None,
        skip: Collection[str] = (),
        lost: bool = True,
    ) -> list[Claim]:
        """Claim runnable tasks, at most one of each context, and set the tasks to `working`.

        Tasks with expired leases come first. Then owners with queued tasks take turns: a round has one task of each
        owner. A task gets a round once the task is the first of the context: the round after the owner's last queued
        task, or the current round. Tasks of one round are in the order of submission.

        With `task_id`, only that task is claimed, also before the end of its pause (see `release`). A task with the
        expired lease of another holder counts as one more attempt.

        The store measures leases with one clock for all processes; setting the wall clock does not change a lease. A
        lease of less than 0 has expired at once.

        Args:
            slot: The slots of the claiming worker.
            at: Time of the new status (ms since the epoch).
            limit: The most tasks to claim.
            task_id: The only task to claim.
            skip: Tasks not to claim.
            lost: False to leave tasks with expired leases to a later claim. Released tasks are claimed all the same.
        """

    @abstractmethod
    async def renew(self, holder: str, tasks: Sequence[str], *, lease: int) -> Marks:
        """Renew the leases of the given tasks: `lease` milliseconds from now."""

    @abstractmethod
    async def release(
        self, claim: Claim, tried: Tried | None = None, *, pause: int | None = None, charges: Sequence[Charge] = ()
    ) -> None:
        """Release a running task, for any holder to claim. The state, context and checkpoint stay.

        Args:
            claim: The claim. A claim that is no longer valid changes nothing.
            tried: The failed tries of the run, for the next claim of the run.
            pause: Milliseconds until `claim` finds the task, by the clock of leases; None for none.
            charges: The run's usage over all attempts and tries, as `Finish.charges`.
        """

    @abstractmethod
    def rehearsal(self) -> TaskQueue:
        """Return a queue that tries each write and undoes it.

        A call returns the result, or raises the error, that the same call of this queue would have now. Nothing is
        stored, no event is published, and no callback is called.
        """


def inner_method(method: MethodT) -> MethodT:
    """Make a method that calls the same method of the attribute `inner`. The port declares the signature."""

    @wraps(method, updated=())  # without the mark of an abstract method
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.inner, method.__name__)(*args, **kwargs)

    return cast('MethodT', call)


class WrappedQueue(TaskQueue):
    """A queue around another one, which does all that a subclass does not override."""

    def __init__(self, inner: TaskQueue) -> None:
        self.inner = inner

    submit = inner_method(TaskQueue.submit)
    cancel = inner_method(TaskQueue.cancel)
    claim = inner_method(TaskQueue.claim)
    renew = inner_method(TaskQueue.renew)
    emit = inner_method(TaskQueue.emit)
    finish = inner_method(TaskQueue.finish)
    release = inner_method(TaskQueue.release)
    rehearsal = inner_method(TaskQueue.rehearsal)
