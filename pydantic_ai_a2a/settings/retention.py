"""Name and lifetime of stored data."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from ..arguments import checked
from ..time_spans import Span
from .positive_numbers import positive


@checked
@dataclass(frozen=True, kw_only=True)
class Retention:
    """Name and lifetime of stored data.

    Tasks that have not ended are never removed for age or number.
    """

    namespace: str | None = None
    """Stable name under which tasks and conversations are stored. Default None: the name of `to_a2a`, else the agent's.
    A file or a database needs one of the three. Not for a `Backend` of your own, which already has a namespace."""
    tasks: Span[timedelta] = Span(timedelta(days=7))
    """Time until a finished task is removed. Default 7 days."""
    max_tasks: int | None = None
    """Number of finished tasks, and of conversations, in the store; the oldest tasks and the longest unused
    conversations are removed first. Default None: 1,000,000 in PostgreSQL, 10,000 in a SQLite file or in memory."""
    events: Span[timedelta] = Span(timedelta(minutes=1))
    """Time after the end of a task in which clients can resume its event log. After that, clients get the assembled
    task. Default 1 minute."""
    contexts: Span[timedelta] = Span(timedelta(days=30))
    """Time until an unused conversation is removed, unless one of its tasks has not ended. Default 30 days."""
    waiting: Span[timedelta] = Span(timedelta(days=7))
    """Time until a task that waits for its client is `failed`. Also the longest time for which a finished task with
    pending webhook deliveries outlives `tasks` and `max_tasks`. Default 7 days."""
    idempotency_window: Span[timedelta] = Span(timedelta(minutes=10))
    """Time in which an anonymous client's repeated first message of a task is answered with the same task. Repeated
    messages of authenticated callers, and messages with a `taskId`, are recognised as long as the task is stored. 0
    turns recognition off for all callers. Default 10 minutes."""

    def __post_init__(self) -> None:
        positive(self, or_zero=('idempotency_window',))
