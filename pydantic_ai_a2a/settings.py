"""What a user may set beyond an agent and a card: frozen, keyword-only, documented where it is defined."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

__all__ = ('Limits', 'Progress', 'Retention', 'Workers')


def _positive(owner: object, **values: float | None) -> None:
    for name, value in values.items():
        if value is not None and value <= 0:
            raise ValueError(f'{type(owner).__name__}.{name} must be positive, not {value!r}.')


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one request, stream or queue may take."""

    body: int = 10_000_000
    """Largest request body, in bytes; a larger one is answered with HTTP 413 before it is parsed."""
    queue: int = 10_000
    """Tasks that may wait to be run, and messages that may wait in one task; over it a new one is refused with HTTP 503
    before anything is stored."""
    reader_lag: int = 1_000_000
    """Bytes that a reader of an event stream may be behind; then its stream is closed. It can resume from its last
    event id."""
    keep_alive: float = 3.0
    """Seconds between comments on an idle event stream; the official client gives up after 5 seconds of silence."""
    max_wait: float | None = None
    """Seconds that a blocking send waits before it answers with the task as it is; None: until it ends or asks."""
    cancel_grace: float = 5.0
    """Seconds that CancelTask waits for the run to stop; then the task is `canceled` and a late result dropped."""

    def __post_init__(self) -> None:
        _positive(
            self,
            body=self.body,
            queue=self.queue,
            reader_lag=self.reader_lag,
            keep_alive=self.keep_alive,
            max_wait=self.max_wait,
            cancel_grace=self.cancel_grace,
        )


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How long what is stored is kept. Tasks that wait or run are never swept for age or count of finished ones."""

    tasks: timedelta = timedelta(days=7)
    """How long a finished task can be read."""
    max_tasks: int = 10_000
    """How many finished tasks are kept at most; the oldest go first."""
    events: timedelta = timedelta(minutes=1)
    """How long after its end a task's event log can be resumed; then the assembled task serves."""
    contexts: timedelta = timedelta(days=30)
    """How long a conversation is kept after its last use; never dropped while one of its tasks lives."""
    max_contexts: int = 10_000
    """How many conversations are kept at most; the longest unused go first."""
    waiting: timedelta = timedelta(days=7)
    """How long a task may wait for its client before it is `failed`."""
    idempotency_window: timedelta = timedelta(minutes=10)
    """How long an anonymous client's resent message is answered with its first task."""

    def __post_init__(self) -> None:
        _positive(
            self,
            tasks=self.tasks.total_seconds(),
            max_tasks=self.max_tasks,
            events=self.events.total_seconds(),
            contexts=self.contexts.total_seconds(),
            max_contexts=self.max_contexts,
            waiting=self.waiting.total_seconds(),
            idempotency_window=self.idempotency_window.total_seconds(),
        )


@dataclass(frozen=True, kw_only=True)
class Workers:
    """How tasks are run in this process."""

    running: int = 256
    """Tasks that run at once in this process. Synchronous tools share anyio's 40 threads all the same."""
    drain_grace: float = 20.0
    """Seconds that running tasks get to finish when the server shuts down."""
    drain_delay: float = 0.0
    """Seconds that a server goes on serving after SIGTERM, with `/health/ready` at HTTP 503, before it drains: time for
    a load balancer to notice."""
    lease: float = 30.0
    """Seconds after which another process may take over a task whose holder has not renewed its lease."""
    attempts: int = 3
    """How often a task is started again after its holder was lost; then it is `failed`."""

    def __post_init__(self) -> None:
        _positive(self, running=self.running, drain_grace=self.drain_grace, lease=self.lease, attempts=self.attempts)
        if self.drain_delay < 0:
            raise ValueError(f'Workers.drain_delay must not be negative, but is {self.drain_delay!r}.')


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What clients that watch a task see of its run, beside the answer: status updates, which are not kept."""

    thinking: bool = False
    """The model's thoughts, each as a whole, without signatures."""
    tools: bool = False
    """Calls of tools with their arguments, and that they returned, without what."""
