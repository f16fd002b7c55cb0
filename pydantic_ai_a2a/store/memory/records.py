"""The records of the store in memory. Only this package changes a record, and no record leaves the package."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

from ...protocol import stored
from ...types import LIVE, TaskEvent, TaskHeader, TaskState
from ..ports import PushConfig, Status
from .splices import Body, SplicedEvent

Key: TypeAlias = tuple[int, str]
"""Place of a task in lists: time of the status, and id."""


class Message:
    """An accepted message of a client."""

    __slots__ = ('accepted_at', 'after', 'answer', 'body', 'digest', 'key', 'request', 'seq', 'task')

    def __init__(self, task: Task, body: bytes, digest: bytes, *, after: int, at: int) -> None:
        self.seq = 0
        """Number in the order of acceptance, over all tasks."""
        self.task = task
        self.body = body
        self.digest = digest
        self.after = after
        """Number of the task's newest event at the acceptance."""
        self.accepted_at = at
        self.key: bytes | None = None
        """Recognises a repeated message; None if repetitions are not recognised."""
        self.answer = 0
        """0: prompt of a run; 1: the message ended a pause; 2: the message answered calls of tools."""
        self.request: bytes | None = None
        """Like `Task.request`, for a later message. None stands for the request of the task, empty for no request."""


class Checkpointed:
    """The progress of a run: model messages as JSON."""

    __slots__ = ('messages', 'run', 'taken', 'usage')

    def __init__(self, run: str, messages: list[bytes], usage: bytes, taken: int) -> None:
        self.run = run
        self.messages = messages
        self.usage = usage
        self.taken = taken


class Progress:
    """The part of a task that the queue and the runs need until the task has ended."""

    __slots__ = (
        'answer',
        'artifacts',
        'attempt',
        'behind',
        'cancel_requested',
        'checkpoint',
        'context_head',
        'holder',
        'inbox_read',
        'lease_until',
        'own_messages',
        'own_usage',
        'pending',
        'queue_seq',
        'queued',
        'round',
        'shown',
        'turn',
    )

    def __init__(self) -> None:
        self.artifacts: dict[str, bytes] = {}
        """The artifacts of the task by id, which a later turn may replace."""
        self.queued = False
        """True while the task waits for a worker."""
        self.queue_seq = 0
        """Order in which the tasks of a context run."""
        self.behind = False
        """True while an earlier task of the context is queued or running."""
        self.round = 0
        """Round in which the task is claimed; counts once `behind` is False."""
        self.holder: str | None = None
        self.lease_until = 0
        self.cancel_requested = False
        self.attempt = 0
        """Number of lost holders, and the present holder."""
        self.turn = 1
        self.shown: TaskState | None = None
        """State of the newest status event."""
        self.inbox_read = 0
        """Number of the newest message that a run has read."""
        self.answer: int | None = None
        """Number of the message that ended a pause and begins the next run."""
        self.checkpoint: Checkpointed | None = None
        self.forget_turn()

    def forget_turn(self) -> None:
        """Forget the turn of a task that waited for its client."""
        self.context_head: str | None = None
        self.pending: bytes | None = None
        self.own_usage: bytes | None = None
        self.own_messages: bytes | None = None


OVER = Progress()
"""The progress of ended tasks; never changed."""
NO_EVENTS: list[TaskEvent | SplicedEvent] = []
"""The log of ended tasks without readers; never changed."""


class Webhook:
    """A push notification configuration of a task, with the deliveries in order."""

    __slots__ = ('config', 'dead', 'due_at', 'lease', 'pending', 'seq', 'task')

    def __init__(self, seq: int, task: Task, config: PushConfig) -> None:
        self.seq = seq
        self.task = task
        self.config = config
        self.due_at: int | None = None
        """Time of the next try by the clock of leases, 0 for at once; None without a delivery."""
        self.lease = 0
        """Number of leases. Writes of older leases change nothing."""
        self.pending: dict[int, PendingDelivery] = {}
        """The deliveries to send, in order."""
        self.dead: dict[int, PendingDelivery] = {}
        """The deliveries that were given up."""


class PendingDelivery:
    """An event that a webhook has not received."""

    __slots__ = ('died_at', 'error', 'event', 'failures', 'id', 'seq', 'webhook')

    def __init__(self, seq: int, id: str, webhook: Webhook, event: TaskEvent) -> None:
        self.seq = seq
        self.id = id
        self.webhook = webhook
        self.event = event
        self.failures = 0
        self.error = ''
        self.died_at: int | None = None


class Task:
    """A task with its messages, artifacts and events."""

    __slots__ = (
        'context_id',
        'dialect',
        'events',
        'events_swept',
        'failure',
        'fence',
        'history',
        'id',
        'inbox',
        'last_event',
        'listed',
        'listed_at',
        'logged_after',
        'metadata',
        'owner',
        'paid',
        'progress',
        'push',
        'request',
        'results',
        'retried_as',
        'run',
        'size',
        'state',
        'status_at',
        'status_message',
        'traceparent',
        'webhooks',
    )

    def __init__(self, id: str, owner: str, context_id: str, dialect: str, at: int) -> None:
        self.id = id
        self.owner = owner
        self.context_id = context_id
        self.dialect = dialect
        self.traceparent: str | None = None
        self.request: bytes | None = None
        self.state: TaskState = 'submitted'
        self.status_at = at
        self.status_message: bytes | None = None
        self.metadata: bytes | None = None
        self.failure: str | None = None
        self.retried_as: str | None = None
        self.progress = Progress()
        self.fence = 0
        """Number of claims. Writes of older claims are refused."""
        self.run = 0
        """Number of agent runs."""
        self.paid: Sequence[int] | None = None
        """Amounts charged for a run: number of the run, requests, tokens, cost."""
        self.history: list[Body] | tuple[Body, ...] = []
        """The messages, oldest first. A tuple once the task has ended, like the inbox: a list has room for more."""
        self.results: tuple[bytes, ...] = ()
        """The artifacts of an ended task: without their ids, the task is smaller by a twentieth."""
        self.inbox: list[Message] | tuple[Message, ...] = []
        self.events: list[TaskEvent | SplicedEvent] = []
        """The newest events, without gaps; a sweep deletes the oldest."""
        self.last_event = 0
        self.logged_after: int | None = None
        """A reader can resume after this event or a later one; None: nobody has read the events so far."""
        self.events_swept = False
        """True once retention has deleted the events."""
        self.push = 0
        """0: no webhook so far; 1: a webhook; 2: a webhook for every chunk."""
        self.webhooks: dict[str, Webhook] | None = None
        self.listed: TaskState | None = None
        """State of the task in the lists; None before the first list."""
        self.listed_at = at
        """Time of this state."""
        self.size = 0
        """Bytes that the store counts for the task."""

    @property
    def live(self) -> bool:
        """True for a queued or running task."""
        return self.state in LIVE

    @property
    def artifacts(self) -> Collection[bytes]:
        """The artifacts, in the order of the last change."""
        return self.results or self.progress.artifacts.values()

    def header(self) -> TaskHeader:
        """Return the header."""
        return TaskHeader(
            id=self.id,
            context_id=self.context_id,
            owner=self.owner,
            state=self.state,
            status_at=self.status_at,
            status_message=self.status_message,
            metadata=self.metadata,
            last_event=self.last_event,
            dialect=self.dialect,
            queued=self.progress.queued,
        )

    def status_event(self, status: Status, n: int | None = None) -> TaskEvent:
        """Return the event of a status, by default with the next number."""
        body = stored.status(status.state, status.at, status.message)
        payload = stored.status_update(self.id, self.context_id, body)
        return TaskEvent(self.last_event + 1 if n is None else n, status.state, payload)

    def unread(self, after: int = 0) -> list[Message]:
        """Return the messages after a number that are to be prompts of runs, and were not yet, oldest first."""
        after = max(after, self.progress.inbox_read)
        messages: list[Message] = []
        for message in reversed(self.inbox):
            if message.seq <= after:
                break
            if not message.answer:
                messages.append(message)
        return messages[::-1]

    def paused_request(self) -> bytes | None:
        """Return the request of the newest message that a run has read or that is an answer. See `Pause.request`."""
        read = self.progress.inbox_read
        newest = next((message for message in reversed(self.inbox) if message.answer or message.seq <= read), None)
        return self.request_of(newest)

    def requests(self) -> list[bytes]:
        """See `ExportedTask.requests`."""
        every = (self.request, *(message.request for message in self.inbox))
        return [request for request in every if request]

    def request_of(self, message: Message | None) -> bytes | None:
        """Return the request of a message; None stands for the first message."""
        return (self.request if message is None or message.request is None else message.request) or None

    def prompts(self, after: int) -> list[tuple[int, bytes, bytes | None]]:
        """See `TaskReader.unread`."""
        messages = (message for message in self.inbox if message.seq > after and not message.answer)
        return [(message.seq, message.body, self.request_of(message)) for message in messages]

    def events_after(self, n: int) -> list[TaskEvent]:
        """Return the stored events after a number."""
        oldest = self.last_event - len(self.events)
        newer = self.events[max(0, n - oldest) :] if n < self.last_event else []
        return [event.whole() if isinstance(event, SplicedEvent) else event for event in newer]

    def log_from_now(self) -> None:
        """Let readers resume after the newest event."""
        if self.logged_after is None:
            self.logged_after = self.last_event

    def updates(self, last: int | None = None) -> list[bytes]:
        """Return the stored artifact updates, up to the event `last`."""
        last = self.last_event if last is None else last
        return [bytes(event.payload) for event in self.events if event.state is None and event.n <= last]
