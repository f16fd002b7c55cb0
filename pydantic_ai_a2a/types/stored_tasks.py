"""Tasks, as a store has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .a2a_objects import TaskState
from .frozen_values import frozen


@frozen
class TaskHeader:
    """A task without its messages and artifacts: the values that the life cycle depends on."""

    id: str
    context_id: str
    owner: str
    state: TaskState
    status_at: int
    """Time of the last change of the state (ms)."""
    status_message: bytes | None
    """The status's message, as JSON."""
    metadata: bytes | None
    """The task's metadata, as a JSON object."""
    last_event: int
    """Number of the newest event in the log; 0 before the first."""
    dialect: str = '1.0'
    """Name of the codec of the request that created the task."""
    queued: bool = False
    """True while the task waits for a worker: `submitted`, or `working` after an answer to its question."""


class StoredTask(NamedTuple):
    """A task from one consistent read, up to the event `header.last_event`."""

    header: TaskHeader
    history: Sequence[bytes] | None
    """The newest messages, oldest first; None if not requested."""
    artifacts: Sequence[bytes] | None
    """The artifacts assembled so far; None if not requested."""
