"""The seams to storage, as abstract classes: the service and the worker are written against these and nothing else.

Plain values go in and out. For every method: reads see all writes that were answered before (read-your-writes), inputs
are never mutated, a write either happens whole or not at all, a terminal task is never moved again, and events reach
subscribers only once they are stored. `owner` is `Caller.owner`; a method that takes one treats another owner's task
exactly as one that does not exist. A store that cannot be reached for a while raises `StoreUnavailable`: a client is
told to try again, and a run is handed back and goes on later, where any other error fails its task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import astuple, dataclass
from typing import NamedTuple

from pydantic_ai.conversation_store import ConversationRecord, ConversationStore
from pydantic_ai.messages import ModelMessage
from pydantic_ai.usage import RunUsage

from .push_ports import Outbox, PushConfig, PushConfigs
from .quota_store import Charge, QuotaStore
from .settings import Retention
from .types import Page, StoredTask, TaskEvent, TaskHeader, TaskQuery, TaskState

__all__ = (
    'DEAD_LETTER',
    'Accepted',
    'Answer',
    'Backend',
    'Checkpoint',
    'Claim',
    'DeadLetter',
    'Erased',
    'EventLog',
    'ExportedConversation',
    'Finish',
    'Housekeeping',
    'Marks',
    'Status',
    'Submission',
    'Subscription',
    'TaskQueue',
    'TaskReader',
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a message comes to as an answer to what its task waits with."""

    pause: int
    """`AnswerNeeded.pause` of what was answered: by now the task may wait with something else."""
    pending: bytes
    """What is stored of it now: the run that goes on is given it."""
    rest: bytes | None = None
    """The status message that asks for the rest, if the task does not go on yet."""


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
    """What the run needs of the request, as a JSON object; replaces that of the task's messages before."""
    traceparent: str | None = None
    dialect: str = '1.0'
    """Name of the codec that read the message: a new task keeps it."""
    at: int
    """Now (ms)."""
    watched_until: int = 0
    """Until when its task's events are read in the process that takes it (ms), for others that may run it."""
    answers_calls: bool = False
    """Whether it says that it answers calls: only a task that waits with some takes it."""
    answer: Answer | None = None
    """What it comes to, once that was checked."""
    task_limit: int | None = None
    """How many tasks of its owner may be queued or running, the one that it puts into the queue among them."""
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
    inbox: int
    """Row of the newest client message that was run, this run's among them unless it is an answer."""
    message: bytes
    """The message to run now, as JSON."""
    head: str | None
    """Newest entry of the conversation that the run continues; None for a new one."""
    own_messages: Sequence[ModelMessage] | None
    """Model messages of the task that are not in its context yet, because it was interrupted."""
    request: bytes | None
    """What the run needs of the request that sent the task's newest message, as a JSON object."""
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
    """The task's artifacts from now on: (artifactId, JSON); None leaves them."""
    messages: Sequence[ModelMessage] = ()
    """The run's new model messages. Terminal: appended to the context. Interrupted: kept with the task."""
    usage: RunUsage | None = None
    """What the run used, added to the conversation's."""
    metadata: bytes | None = None
    failure: str | None = None
    """Class of the failure, for a failed task."""
    pending: bytes | None = None
    """What an interrupted task waits with, if its answer has to be checked against it."""
    charges: Sequence[Charge] = ()
    """What the run has used, as the quotas count it."""


class Marks(NamedTuple):
    """What others want of tasks that this holder runs, since it last renewed its leases."""

    lost: Sequence[str]
    """Tasks that it no longer holds: their runs stop and write nothing."""
    cancel: Sequence[str]
    """Tasks to cancel."""


DEAD_LETTER = 'attempts'
"""Class of the failure of a task that was started too often: the task is a dead letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A task that was started too often without coming to an end."""

    task_id: str
    context_id: str
    owner: str
    at: int
    """When it failed (ms)."""
    attempts: int
    """How often it was started."""
    failure: str
    """Class of the failure."""
    correlation_id: str | None
    """Names the failure in the log and to the client."""
    retried_as: str | None
    """The task that was made of it last; None if it was not retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """How much was erased; false if nothing was."""

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


class TaskQueue(ABC):
    """The state machine of tasks. Every method is one transaction."""

    @abstractmethod
    async def submit(self, submission: Submission, *, queue_limit: int, idempotency_window: int) -> Accepted:
        """Store a message and create its task, or hand it to the task it continues.

        A message to a task that waits is its answer: the next run is given it, before messages that came earlier and
        are unread still.

        A message (owner, message id, digest) that was accepted before gives the first task again. An anonymous owner
        gets that only for ids of 16 characters or more and within `idempotency_window` (ms).

        Raises:
            TaskNotFoundError: The task to continue is not there for this owner.
            UnsupportedOperationError: It has ended.
            InvalidParamsError: Another context, or a known message id with another content.
            AnswerNeeded: It waits with something that `submission.answer` does not answer. Nothing is stored.
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
    async def claim(self, holder: str, *, at: int, until: int, limit: int, task_id: str | None = None) -> list[Claim]:
        """Take tasks that may run, oldest first, at most one per context, and move them to `working`.

        Only `task_id` if it is given. A task of another holder whose lease ran out counts as one more attempt.
        """

    @abstractmethod
    async def renew(self, holder: str, tasks: Sequence[str], *, until: int) -> Marks:
        """Extend the leases of these tasks, all at once."""

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
        given one.

        Raises:
            LeaseLost: The claim is no longer valid.
        """

    @abstractmethod
    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        """End a run in one transaction, and release the task.

        A completed run whose task has another unread message does not end it: its turn is stored, and the claim for
        the next run is returned. What the run has used is charged in the same transaction.

        The run's checkpoint goes, unless the task becomes a dead letter (`failure` is `DEAD_LETTER`).

        Raises:
            LeaseLost: The claim is no longer valid.
        """

    @abstractmethod
    async def release(self, claim: Claim) -> None:
        """Hand a running task back: it stays `working`, keeps context and checkpoint, and may be claimed by anybody."""


class TaskReader(ABC):
    """Consistent reads of tasks."""

    @abstractmethod
    async def load(
        self, task_id: str, owner: str | None, *, history_length: int | None = None, artifacts: bool = True
    ) -> StoredTask | None:
        """The task, with its newest `history_length` messages (None: all); or None. `owner` None reads any owner's."""

    @abstractmethod
    async def list(self, query: TaskQuery) -> Page:
        """One page of tasks, newest status first."""


class Subscription(ABC):
    """A reader's place in one task's log; as long as it is open, somebody watches the task."""

    dropped: bool = False
    """Whether the reader fell too far behind and gets nothing more."""

    @abstractmethod
    def start(self, after: int) -> None:
        """Read strictly after this number: that of a snapshot read after subscribing, or one the client names."""

    @abstractmethod
    async def next(self) -> Sequence[TaskEvent]:
        """The next events, in order and without gaps; waits for one. Empty after `nudge`, or when dropped."""

    @abstractmethod
    def nudge(self) -> None:
        """Let a waiting `next` return with nothing."""

    @abstractmethod
    def close(self) -> None:
        """Stop. Idempotent; never blocks."""


class EventLog(ABC):
    """The numbered events of each task."""

    @abstractmethod
    def subscribe(self, task_id: str, on_drop: Callable[[], object]) -> Subscription:
        """A place in the log. `on_drop` is called when more than the lag limit piles up behind a batch in its hands."""

    @abstractmethod
    async def wait(self, task_id: str, after: int) -> None:
        """Return once an event after this number has moved the task to an interrupted or terminal state."""

    def release(self, held: Callable[[str], bool]) -> None:  # noqa: B027 - a store that ends with its process needs none
        """Let `wait` return in this event loop for tasks that are not held here: they go on in another process.

        Called only where tasks outlive the process.
        """

    @abstractmethod
    def watched(self, task_id: str) -> bool:
        """Whether anybody reads the task's events now. Cheap; may lag behind for readers in other processes."""

    @abstractmethod
    async def has(self, task_id: str, n: int) -> bool:
        """Whether all events after number `n` are still there, so that a reader can resume from it."""


class Housekeeping(ABC):
    """What keeps the store small, and what operators do to it."""

    @abstractmethod
    async def sweep(self, retention: Retention, *, at: int) -> int:
        """Drop a bounded batch of what is past its time; how many rows went. Call again until it is 0."""

    @abstractmethod
    async def erase_task(self, task_id: str, owner: str | None, *, at: int) -> bool:
        """Delete a finished or waiting task, its messages, artifacts and events; whether it was there.

        Readers of a waiting one get a last event: it is canceled.

        Raises:
            UnsupportedOperationError: It is queued or running; cancel it first.
        """

    @abstractmethod
    async def erase(self, owner: str, context_id: str | None = None, *, at: int) -> Erased:
        """Delete a bounded batch of all that an owner has, or of one of its contexts; what went.

        Call again until nothing does. Readers of a waiting task get a last event, as with `erase_task`.

        Raises:
            UnsupportedOperationError: One of its tasks is queued or running; this call has deleted nothing.
        """

    async def erase_context(self, context_id: str, owner: str, *, at: int) -> bool:
        """Delete a conversation and all its tasks, batch by batch; whether there was anything.

        Raises:
            UnsupportedOperationError: One of its tasks is queued or running.
        """
        erased = False
        while await self.erase(owner, context_id, at=at):
            erased = True
        return erased

    @abstractmethod
    async def dead_letters(
        self, owner: str | None = None, *, limit: int = 100, after: tuple[int, str] | None = None
    ) -> Sequence[DeadLetter]:
        """The tasks that were started too often, those that failed first at the beginning; of any owner, if None.

        `after` is (at, task_id) of the last one of the page before.
        """

    @abstractmethod
    async def retry(self, task_id: str, *, new_id: str, at: int, again: bool = False) -> TaskHeader:
        """Make a new, queued task of a dead letter: with its message, for its owner and in its context.

        The message gets an id of its own and names the dead letter in `referenceTaskIds`. A dead letter is retried
        once, whoever asks at the same time, unless `again` says otherwise.

        Raises:
            TaskNotFoundError: There is no such task.
            UnsupportedOperationError: It is no dead letter, or was retried already.
        """

    @abstractmethod
    def export(self, owner: str, context_id: str | None = None) -> AsyncIterator[StoredTask | ExportedConversation]:
        """All tasks of an owner and then all its conversations, or those of one context; one at a time in memory.

        What is written meanwhile may or may not be among them.
        """


class Backend(ABC):
    """All ports over one store, for one agent namespace."""

    queue: TaskQueue
    reader: TaskReader
    events: EventLog
    housekeeping: Housekeeping
    quotas: QuotaStore
    push_configs: PushConfigs | None = None
    """None, and no outbox, for a backend that has no push notifications."""
    outbox: Outbox | None = None
    durable: bool
    """Whether tasks outlive the process."""
    flush_delay: float = 0.0
    """Seconds for which what a run streams is gathered, to be stored together; 0 stores each piece at once."""

    @abstractmethod
    def conversations(self, owner: str) -> ConversationStore:
        """The conversations of one owner; the context id is the conversation id."""

    async def history(self, claim: Claim) -> Sequence[ModelMessage]:
        """What a run continues: its context, and what its task said before it was interrupted."""
        history: Sequence[ModelMessage] = ()
        if claim.head is not None:
            history = await self.context(claim.header.owner, claim.header.context_id, claim.head)
        return history if claim.own_messages is None else [*history, *claim.own_messages]

    async def context(self, owner: str, context_id: str, head: str) -> Sequence[ModelMessage]:
        """The messages of an owner's conversation up to this entry, for a run, which may change them."""
        return [entry.message for entry in await self.conversations(owner).read_history(head)]

    async def queued(self) -> bool:
        """Whether any task waits to be run."""
        query = TaskQuery(owner=None, state='submitted', page_size=1, history_length=0)
        return (await self.reader.list(query)).total > 0

    @abstractmethod
    def listen(self, on_ready: Callable[[str | None], None], on_cancel: Callable[[str], None]) -> Callable[[], None]:
        """Be told, in the caller's thread and context, of tasks that may have become claimable or are to be canceled.

        `on_ready` gets None for tasks of other processes; of those, the listener is told in its own event loop. Hints:
        none is promised. Returns the function that stops it.

        Raises:
            BackendUnusable: Another app of this process has the same tasks.
        """

    async def compact(self) -> None:  # noqa: B027 - a store that overwrites what was deleted needs none
        """Leave nothing of what was deleted where the store is kept, however long that takes and holds up others."""

    @abstractmethod
    def close(self) -> None:
        """Give back what the backend holds."""
