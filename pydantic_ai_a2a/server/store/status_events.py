"""The event of a status that a task gets."""

from __future__ import annotations

from ...types.stored_events import TaskEvent
from ...types.stored_tasks import TaskHeader
from ...wire.protocol import stored
from .ports import Status


def status_event(header: TaskHeader, status: Status, n: int) -> TaskEvent:
    """Return the event of a status."""
    body = stored.status(status.state, status.at, status.message)
    return TaskEvent(n, status.state, stored.status_update(header.id, header.context_id, body))
