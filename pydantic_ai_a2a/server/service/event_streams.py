"""Event streams: the answer of a streaming operation, and all open streams of an app.

A stream is a snapshot of the task, then its events. The subscription is opened before the snapshot is read, and started
with the number of the snapshot's newest event: so no event is missing, and none comes twice. A client that comes back
with `Last-Event-ID` gets no snapshot if the log still has all later events, else a new one.

The log is the same for all readers. `LiveTextForm` says which of its events a reader gets, and how.

A stream ends with the state that ends its operation, with its client, or once its reader is dropped (too slow). At a
shutdown, it ends when no running task of this process can send it events: the client comes back to another process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opentelemetry.trace import Span

from ...telemetry.spans import name_task
from ...types.a2a_objects import TaskState
from ...types.stored_events import TaskEvent
from ...types.stored_tasks import StoredTask
from ..store.ports import Subscription
from .live_text_form import LiveTextForm


def parse_event_id(value: str | None) -> int | None:
    """Return the number in `Last-Event-ID`; None without the header, or if its value is not a number."""
    if value is None or not (value.isascii() and value.isdigit()):
        return None
    return int(value) if len(value) < 19 else 2**62  # larger than the number of any event


@dataclass(slots=True)
class EventStream:
    """The answer of a streaming operation."""

    task_id: str
    first: StoredTask | None
    """Snapshot at the start of the stream, until sent; None if the client resumes after an event."""
    subscription: Subscription | None
    """The following events; None if no event follows."""
    ends: frozenset[TaskState]
    """States at which the stream closes."""
    form: LiveTextForm = LiveTextForm.WHOLE
    """What the reader gets of live text."""
    seen: Callable[[TaskEvent], TaskEvent] | None = None
    """Returns an event as the caller sees it; None for all as they are."""
    span: Span | None = None
    """Names the state of the task; None without a span."""

    def up_to_end(self, events: Sequence[TaskEvent]) -> tuple[Sequence[TaskEvent], bool]:
        """Return the events up to the end of the stream, in the form of the reader; True if the end is among them."""
        shown: list[TaskEvent] = []
        for event in events:
            if (own := self.form.of(event)) is not None:
                shown.append(own if self.seen is None else self.seen(own))
            if self.span is not None:
                name_task(self.span, None, None, event.state)
            if event.state in self.ends:
                return shown, True
        return shown, False


class OpenStreams:
    """The open streams of an app: one keep-alive timer for all, and the end of all at a shutdown.

    Args:
        interval: Seconds between two keep-alive ticks.
        runs_here: Returns whether this process runs a task.
    """

    def __init__(self, interval: float, runs_here: Callable[[str], bool]) -> None:
        self.closing = False
        """True if streams end once no running task can send them events."""
        self._interval = interval
        self._runs_here = runs_here
        self._subscriptions: set[Subscription] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, subscription: Subscription) -> None:
        """Add a stream that was opened in the running loop."""
        self._subscriptions.add(subscription)
        loop = asyncio.get_running_loop()
        if self._timer is None or self._loop is None or self._loop.is_closed():
            self._loop = loop
            self._timer = loop.call_later(self._interval, self._tick)

    def remove(self, subscription: Subscription) -> None:
        """Remove a closed stream."""
        self._subscriptions.discard(subscription)

    def over(self, task_id: str) -> bool:
        """Return whether the stream of a task ends now, because the server shuts down and does not run the task."""
        return self.closing and not self._runs_here(task_id)

    def close(self) -> None:
        """End the streams without a running task in this process."""
        self.closing = True
        self._nudge()

    def _nudge(self) -> None:
        for subscription in list(self._subscriptions):
            subscription.nudge()

    def _tick(self) -> None:
        self._timer = None
        self._nudge()
        if self._subscriptions and self._loop is not None:
            self._timer = self._loop.call_later(self._interval, self._tick)
