"""The queue of a worker, as metrics observe it."""

from __future__ import annotations

from typing import Protocol


class WatchedQueue(Protocol):
    """The tasks of a worker before the start."""

    queue_paused: bool
    """True if an operator has paused the queue."""

    @property
    def waiting(self) -> int:
        """Number of tasks in wait for a free slot, from any thread."""
        ...
