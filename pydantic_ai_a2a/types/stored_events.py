"""One event in the log of a task."""

from __future__ import annotations

from typing import NamedTuple

from .a2a_objects import TaskState


class TaskEvent(NamedTuple):
    """One stored event of a task's log."""

    n: int
    """Number of the event in the task's log: from 1, without gaps, never reused. The SSE event id."""
    state: TaskState | None
    """The state of a status update; None for an artifact update."""
    payload: bytes
    """The A2A 1.0 `StreamResponse` as JSON: exactly one of `statusUpdate` and `artifactUpdate`."""
