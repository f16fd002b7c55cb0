"""Settings for workers and for the retention of stored tasks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from fasta2a.worker import Worker

from ..arguments import Span, checked
from .numbers import positive

__all__ = ('Retention', 'Workers')


@checked
@dataclass(frozen=True, kw_only=True)
class Retention:
    """Name and lifetime of stored data.

    Tasks that have not ended are never removed for age or number.
    """

    namespace: str | None = None
    """Stable name under which tasks and conversations are stored. Default None: the card's name, else the agent's name,
    else `agent`. Not for a `Backend` of your own, which already has a namespace."""
    tasks: Span[timedelta] = Span(timedelta(days=7))
    """Time until a finished task is removed. Default 7 days."""
    max_tasks: int = 10_000
    """Number of finished tasks in the store; the oldest are removed first. Default 10,000."""
    events: Span[timedelta] = Span(timedelta(minutes=1))
    """Time after the end of a task in which clients can resume its event log. After that, clients get the assembled
    task. Default 1 minute."""
    contexts: Span[timedelta] = Span(timedelta(days=30))
    """Time until an unused conversation is removed, unless one of its tasks has not ended. Default 30 days."""
    max_contexts: int = 10_000
    """Number of conversations in the store; the longest unused are removed first. Default 10,000."""
    waiting: Span[timedelta] = Span(timedelta(days=7))
    """Time until a task that waits for its client is `failed`. Also the longest time for which a finished task with
    pending webhook deliveries outlives `tasks` and `max_tasks`. Default 7 days."""
    idempotency_window: Span[timedelta] = Span(timedelta(minutes=10))
    """Time in which an anonymous client's repeated first message of a task is answered with the same task. Repeated
    messages of authenticated callers, and messages with a `taskId`, are recognised as long as the task is stored. 0
    turns recognition off for all callers. Default 10 minutes."""

    def __post_init__(self) -> None:
        positive(self, or_zero=('idempotency_window',))


@checked
@dataclass(frozen=True, kw_only=True)
class Workers:
    """Execution of tasks in this process."""

    running: int = 256
    """Tasks that run at once in this process. Synchronous tools share the 40 threads of anyio. Default 256."""
    drain_grace: Span[float] = Span(20.0)
    """Seconds that running tasks get to finish when the server shuts down. Default 20."""
    drain_delay: Span[float] = Span(0.0)
    """Seconds that a server continues to serve after SIGTERM, with HTTP 503 on `/health/ready`, before the shutdown:
    time for a load balancer to react. Default 0."""
    lease: Span[float] = Span(30.0)
    """Seconds until another process may take over a task whose worker has stopped renewing it. Default 30."""
    attempts: int = 3
    """Starts of a task, including the first. A task starts again after the loss of its process. After the last start
    the task is `failed` and becomes a dead letter. Default 3."""

    worker: Worker[Any] | None = None
    """A FastA2A worker of your own, with its own storage and broker. Default None. An `AgentWorker` is called by this
    package's worker, with its own `build_message_history` and `build_artifacts`. Any other worker runs tasks itself, as
    does an `AgentWorker` with its own `run_task` or `cancel_task`."""

    def __post_init__(self) -> None:
        positive(self)
