"""Settings of what runs and stores tasks."""

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
    """Stored data: its name, and how long it is kept.

    Tasks that wait or run are never swept for age or count of finished ones.
    """

    namespace: str | None = None
    """Stable name under which tasks and conversations are stored; the card's name, else the agent's, else `agent`. Not
    for a `Backend` of your own, which has one already."""
    tasks: Span[timedelta] = Span(timedelta(days=7))
    """How long a finished task can be read."""
    max_tasks: int = 10_000
    """How many finished tasks are kept at most; the oldest go first."""
    events: Span[timedelta] = Span(timedelta(minutes=1))
    """How long after its end a task's event log can be resumed; then the assembled task serves."""
    contexts: Span[timedelta] = Span(timedelta(days=30))
    """How long a conversation is kept after its last use; never dropped while one of its tasks lives."""
    max_contexts: int = 10_000
    """How many conversations are kept at most; the longest unused go first."""
    waiting: Span[timedelta] = Span(timedelta(days=7))
    """How long a task may wait for its client before it is `failed`; and how long one that has ended is kept at most,
    whatever its age and their number, until its webhooks have been told so."""
    idempotency_window: Span[timedelta] = Span(timedelta(minutes=10))
    """Time in which a new task's message that an anonymous client sends again is answered with its first task. An
    authenticated caller's message, and one with a `taskId`, is recognised as long as the task is kept. Zero turns that
    off for all callers: each message that arrives is a new one."""

    def __post_init__(self) -> None:
        positive(self, or_zero=('idempotency_window',))


@checked
@dataclass(frozen=True, kw_only=True)
class Workers:
    """How tasks are run in this process."""

    running: int = 256
    """Tasks that run at once in this process. Synchronous tools share anyio's 40 threads all the same."""
    drain_grace: Span[float] = Span(20.0)
    """Seconds that running tasks get to finish when the server shuts down."""
    drain_delay: Span[float] = Span(0.0)
    """Seconds that a server goes on serving after SIGTERM, with `/health/ready` at HTTP 503, before it drains: time for
    a load balancer to notice."""
    lease: Span[float] = Span(30.0)
    """Seconds after which another process may take over a task whose holder has not renewed its lease."""
    attempts: int = 3
    """How often a task is started at most, the first time among them: once more after each process that was lost with
    it. Then it is `failed`, a dead letter."""

    worker: Worker[Any] | None = None
    """A FastA2A worker of your own, with its own storage and broker. An `AgentWorker` is run here: its
    `build_message_history` and `build_artifacts` take effect. Any other one runs tasks by itself, also an `AgentWorker`
    with a `run_task` or `cancel_task` of its own."""

    def __post_init__(self) -> None:
        positive(self)
