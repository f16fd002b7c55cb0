"""The ports to storage, as abstract classes: the service and the worker use no other way to a store.

Plain values go in and out. Every method keeps these rules:

- Reads see all writes that were answered before (read-your-writes).
- Inputs are never mutated.
- A write happens whole or not at all.
- A terminal task never changes its state.
- Subscribers get events only after the store has committed the events.

`owner` is `Caller.owner`; a method with an `owner` treats the tasks of other owners as unknown tasks. A store that is
unavailable for a while raises `StoreUnavailable`: the server tells the client to try again, and a run repeats
the call until the call succeeds. Any other error fails the task of the run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import astuple, field
from functools import wraps
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, cast

from pydantic_ai.conversation_store import ConversationRecord, ConversationStore
from pydantic_ai.messages import ModelMessage
from pydantic_ai.usage import RunUsage
from pydantic_core import from_json, to_json

from ...clock import SYSTEM, Clock
from ...errors import UnsupportedOperationError
from ...settings import Retention
from ...types import Page, StoredTask, TaskEvent, TaskHeader, TaskQuery, TaskState, bounded, count_of, frozen

MethodT = TypeVar('MethodT', bound=Callable[..., Any])

# --- all ports over one store -----------------------------------------------------------------------------------------


class Backend(ABC):
    """All ports over one store, for one agent namespace."""

    queue: TaskQueue
    reader: TaskReader
    events: EventLog
    housekeeping: Housekeeping
    quotas: QuotaStore
    push_configs: PushConfigs | None = None
    """Push configurations; None, like `outbox`, for a backend without push notifications."""
    outbox: Outbox | None = None
    credentials: CredentialStore | None = None
    """Credentials of tasks; None for a backend that stores none."""
    payloads: PayloadStore
    """Data of runs at an engine, for durable backends."""
    clock: Clock = SYSTEM
    durable: bool
    """True if tasks outlive the process."""
    flush_delay: float = 0.0
    """Seconds for gathering streamed pieces of a run into one write; 0: each piece is stored at once."""

    def now(self) -> int:
        """Return milliseconds since the epoch for timestamps, retention and expiry, the same for all processes.

        The clock of a shared database is known after the first call to the database.
        """
        return self.clock.now()

    def take_room(self, size: int) -> None:  # noqa: B027 - only what is kept in memory has a limit
        """Take the room of a message of so many bytes that is not submitted to the queue.

        Raises:
            OverloadedError: The store has no room for the message.
        """

    @abstractmethod
    def conversations(self, owner: str) -> ConversationStore:
        """Return the conversations of one owner. The context id is the conversation id."""

    async def history(self, claim: Claim) -> Sequence[ModelMessage]:
        """Return the messages before a run: the context, then the task's own messages. Do not change the list."""
        history: Sequence[ModelMessage] = ()
        if claim.head is not None:
            history = await self.context(claim.header.owner, claim.header.context_id, claim.head)
        return history if claim.own_messages is None else [*history, *claim.own_messages]

    async def context(self, owner: str, context_id: str, head: str) -> Sequence[ModelMessage]:
        """Return the messages of an owner's conversation up to the entry `head`. Callers must not change them."""
        return [entry.message for entry in await self.conversations(owner).read_history(head)]

    async def announce(self, service: str, *, lease: int) -> None:  # noqa: B027 - only processes that share a store
        """Tell the other processes of this namespace for `lease` milliseconds what this one serves; 0 at its end.

        The first call of a process logs what is surprising: other processes that serve something else, or no data in a
        store with other namespaces.
        """

    @abstractmethod
    async def queued(self) -> bool:
        """Return True if any task is queued, also behind another task of the context."""

    async def paused(self) -> bool:
        """Return True if `Housekeeping.pause` keeps tasks from being claimed."""
        return False

    @abstractmethod
    def listen(self, on_ready: Callable[[str | None], None], on_cancel: Callable[[str], None]) -> Callable[[], None]:
        """Call back for claimable tasks and for tasks to cancel, in the thread and context of the writing caller.

        `on_ready` gets None for tasks of other processes, in the event loop of the listener. Callbacks are hints and
        may be missing. Return a function to stop.

        Raises:
            BackendUnusable: Another app of this process uses the same tasks.
        """

    def set_idle(self, holder: str, *, idle: bool) -> None:  # noqa: B027 - a hint
        """Note that a worker has a free slot and has found no further task, or that it will look without a hint."""

    async def erase(self, owner: str, context_id: str | None, *, grace: float = 0) -> Erased:
        """Erase a batch as `Housekeeping.erase`. Messages are refused for `grace` seconds and a minute from now on.

        After the last batch, `Housekeeping.set_erasing` accepts messages again.
        """
        until = self.now() + round(1000 * (60 + grace))
        await self.housekeeping.set_erasing(owner, context_id, until=until)
        return await self.housekeeping.erase(owner, context_id, at=self.now())

    async def compact(self) -> None:  # noqa: B027 - a store that overwrites what was deleted needs none
        """Remove deleted data from the storage. The removal may take long and block other writers."""

    async def check_writes(self) -> None:  # noqa: B027 - memory always takes writes
        """Probe the store with a small write, unless a recent write has succeeded, for `/health/ready`.

        Raises:
            StoreUnavailable: The store takes no writes now.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the backend's connections."""


# --- the port for encrypted credentials, which runs use on behalf of callers ------------------------------------------
# `TaskQueue.submit` stores a credential with its message. The end of the task deletes the credentials of the task, and
# sweeps delete expired credentials.

_NAME = 'credential'


@frozen
class SealedCredential:
    """An encrypted credential of the sender of a message."""

    id: str
    """Unique in the task."""
    until: int
    """Time when the credential expires (ms)."""
    body: bytes = field(repr=False)
    """The encrypted credential."""


class CredentialStore(ABC):
    """Reads the credentials of tasks."""

    @abstractmethod
    async def load(self, task_id: str, credential_id: str) -> SealedCredential | None:
        """Return a credential of a task; None if the credential was deleted."""


class PayloadStore(ABC):
    """Keeps data of the runs at an engine, such as of Temporal workflows, for some time after the end of the task."""

    @abstractmethod
    async def put(self, task_id: str, payloads: Mapping[str, bytes]) -> None:
        """Store data of a task by ids. An id that is stored already keeps its data. An erased task gets none."""

    @abstractmethod
    async def get(self, task_id: str, payload_id: str) -> bytes | None:
        """Return data of a task; None if the data was deleted."""


def with_credential(request: bytes | None, credential: SealedCredential | None) -> bytes:
    """Return the request of a message with the id of its credential. See `Submission.request`."""
    fields: dict[str, Any] = {} if request is None else from_json(request)
    return to_json({**fields, _NAME: None if credential is None else credential.id})


def credential_id(request: bytes | None) -> str | None:
    """Return the id of the credential in the request of a run; None without a credential."""
    return None if request is None else from_json(request).get(_NAME)


def may_have_credentials(request: bytes) -> bool:
    """Return False if no message of a task has a credential, by the request of any run of the task."""
    return b'"credential":' in request


# --- the port for retention, dead letters, erasing and exporting ------------------------------------------------------

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


# --- the ports for push notifications ---------------------------------------------------------------------------------
# The webhooks of tasks, and the deliveries not done yet.
#
# The rules above hold here too. Storage keeps the address of a webhook as opaque bytes, which may be encrypted.
# `TaskQueue` writes deliveries in the transactions of the events.

Takes = Literal['statuses', 'artifacts', 'chunks']
"""The delivered events: status updates; status updates and whole artifacts; or every stored event."""


@frozen
class PushConfig:
    """A webhook of a task."""

    id: str
    """Id of the webhook, unique in the task."""
    version: str
    """Name of the codec of the registration, which also writes the notifications."""
    takes: Takes
    body: bytes = field(repr=False)
    """Address and credentials of the webhook; a secret."""


class PushConfigs(ABC):
    """The push notification configurations of tasks (§3.1.7 to §3.1.10), deleted with the task.

    Every method raises TaskNotFoundError if the owner has no such task.
    """

    @abstractmethod
    async def create(self, task_id: str, owner: str, config: PushConfig, *, limit: int) -> None:
        """Add a configuration for later events, or replace the configuration with the same id.

        Raises:
            InvalidParamsError: The task has `limit` other configurations already.
        """

    @abstractmethod
    async def get(self, task_id: str, owner: str, config_id: str | None) -> PushConfig:
        """Return a configuration; the oldest for None.

        Raises:
            TaskNotFoundError: The owner has no such task, or the task no such configuration.
        """

    @abstractmethod
    async def list(self, task_id: str, owner: str) -> Sequence[PushConfig]:
        """Return all configurations of a task, the oldest first."""

    @abstractmethod
    async def delete(self, task_id: str, owner: str, config_id: str) -> None:
        """Delete a configuration with all pending deliveries; do nothing without such a configuration."""


@frozen
class Delivery:
    """The next event for a configuration, with the sender's right to try."""

    id: str
    """Id of the event for this configuration, the same in all tries; visible ASCII."""
    task_id: str
    owner: str
    config: PushConfig
    event: TaskEvent
    failures: int
    """Number of failed tries."""
    place: int
    """Row of the configuration in the store."""
    lease: int
    """Number that grows with every lease of the configuration; writes with an older number change nothing."""
    traceparent: str | None = None
    """Trace and baggage of the request that created the task, as JSON."""


class Leased(NamedTuple):
    """The leased deliveries of a sender."""

    deliveries: Sequence[Delivery]
    wait: int | None
    """Milliseconds until the sender can lease another delivery; 0: now; None: no delivery is pending."""


@frozen
class DeadDelivery:
    """An undeliverable event."""

    id: str
    task_id: str
    config_id: str
    owner: str
    n: int
    """Number of the event in the task's log."""
    state: str | None
    """State of a status update; None for an artifact."""
    at: int
    """Time when the sender gave up (ms)."""
    failures: int
    error: str
    """Reason of the last failure, without the payload and the address."""


class Outbox(ABC):
    """Events on their way to webhooks, in order for each configuration. Many processes may send at once.

    The store measures leases and pauses by the clock of task leases.
    """

    @abstractmethod
    async def lease(self, *, lease: int, limit: int, held: Mapping[str, int]) -> Leased:
        """Lease the oldest undelivered event of up to `limit` due configurations without a holder.

        A delivery with an expired lease goes to the next sender. A sender gets another delivery of an owner only while
        the sender has fewer deliveries of the owner than free places in `limit`: other owners always have a place.

        Args:
            lease: Length of the leases in milliseconds. A lease of less than 0 has expired at once.
            limit: The most deliveries to lease.
            held: Number of deliveries of each owner in the sender already.
        """

    @abstractmethod
    async def done(self, delivery: Delivery) -> None:
        """Delete a delivery after success; the next event of the configuration becomes due."""

    @abstractmethod
    async def failed(self, delivery: Delivery, *, at: int, pause: int | None, error: str) -> None:
        """Record a failed try.

        Args:
            delivery: The delivery. Later events of the configuration wait for the next try.
            at: Time of the failure (ms since the epoch), for `DeadDelivery.at`.
            pause: Milliseconds until the next try; None gives the delivery up.
            error: Reason of the failure.
        """

    @abstractmethod
    async def release(self, delivery: Delivery) -> None:
        """Release a delivery without a try: any sender may try at once."""

    @abstractmethod
    async def dead(
        self, owner: str | None = None, *, limit: int = 100, after: tuple[int, str] | None = None
    ) -> Sequence[DeadDelivery]:
        """Return a page of dead deliveries, the oldest first; of all owners, if `owner` is None.

        `after` is (at, id) of the last delivery of the previous page.
        """

    @abstractmethod
    async def retry(self, delivery_id: str) -> None:
        """Try a dead delivery again, with as many tries as a new delivery, before later events.

        Raises:
            UnsupportedOperationError: No dead delivery has this id.
        """

    @abstractmethod
    def listen(self, on_due: Callable[[], object]) -> Callable[[], None]:
        """Call `on_due`, in any thread, when a delivery may be due; return a function to stop. Hints may be missing."""


# --- the port of the counters for quotas ------------------------------------------------------------------------------


class Bucket(NamedTuple):
    """A token bucket of one caller: a burst of requests, then one request at a time."""

    subject: str
    """The caller's key."""
    name: str
    """The kind of counted requests."""
    interval: int
    """Microseconds until one more request is allowed."""
    burst: int
    """Requests in a full bucket. A new bucket is full."""


class Charge(NamedTuple):
    """The usage that a run adds to a sliding window. All charges of a run state the same usage."""

    subject: str
    window: int
    """Length of the window (ms)."""
    until: int
    """The time of deletion (ms)."""
    requests: int
    tokens: int
    cost: int
    """Billionths of a US dollar."""


def amounts_of(usage: RunUsage) -> tuple[int, int, int]:
    """Return the requests, tokens and cost of a run's usage, in the units of `Charge`, each at most 2**53."""
    tokens = count_of(usage.input_tokens) + count_of(usage.output_tokens)
    return count_of(usage.requests), count_of(tokens), count_of(bounded(usage.cost or 0) * 10**9)


class Spent(NamedTuple):
    """Usage with one expiry."""

    until: int
    """The time of deletion (ms)."""
    requests: int
    tokens: int
    cost: int
    """Billionths of a US dollar."""


class QuotaStore(ABC):
    """Counters of requests and usage, shared by all processes of the store. The caller of the port compares limits."""

    @abstractmethod
    async def take(self, bucket: Bucket, *, at: int) -> int:
        """Take a request out of a bucket; 0, or how long there is none yet (ms), and nothing is taken then.

        Whoever asks at the same time, no more is taken than there is. A bucket is filled up by what is set now.
        """

    @abstractmethod
    async def spent(self, subject: str, window: int, *, at: int) -> Sequence[Spent]:
        """Return the unexpired charges at the time `at`, in the order of expiry."""

    @abstractmethod
    async def charge(self, charges: Sequence[Charge]) -> None:
        """Add the usage of a run without a task, whole or not at all."""

    @abstractmethod
    async def settle(self, task_id: str, run: int, charges: Sequence[Charge]) -> None:
        """Charge a run after another process has ended the task, without the amounts charged before.

        The call can be repeated. A live task is not charged: the holder charges the whole run. An erased or swept task
        is not charged either, because the amounts charged before are unknown.
        """


# --- the ports for reading tasks and their events ---------------------------------------------------------------------


class Pause(NamedTuple):
    """The wait of a task for its client."""

    number: int
    """Number of the newest event of the task."""
    context_id: str
    pending: bytes | None
    """The pending calls of the task, as stored; None if the task waits without calls."""
    request: bytes | None = None
    """The fields of the request of the waiting run, like `Claim.request`."""
    first: bool = False
    """True if the task has not waited before."""


class TaskReader(ABC):
    """Consistent reads of tasks."""

    @abstractmethod
    async def load(
        self, task_id: str, owner: str | None, *, history_length: int | None = None, artifacts: bool = True
    ) -> StoredTask | None:
        """The task, with its newest `history_length` messages (None: all); or None. `owner` None reads any owner's."""

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


# --- the port of the task queue ---------------------------------------------------------------------------------------
# Submit, claim, renew, emit, finish, release.


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
