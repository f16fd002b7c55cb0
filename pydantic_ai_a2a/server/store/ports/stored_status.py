"""A status to store with an event."""

from __future__ import annotations

from typing import NamedTuple

from ....types.a2a_objects import TaskState


class Status(NamedTuple):
    """A status to store with an event."""

    state: TaskState
    at: int
    message: bytes | None
