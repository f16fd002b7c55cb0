"""The queue in numbers, as operators see it."""

from __future__ import annotations

from ....types.frozen_values import frozen


@frozen
class QueueCounts:
    """The tasks of a namespace in numbers."""

    namespace: str
    submitted: int
    """Queued tasks that have never run."""
    queued: int
    """Tasks that wait for a worker: submitted, or answered."""
    running: int
    """Tasks that were claimed, also those that wait for another try or holder."""
    leases: int
    """Running tasks with a holder whose lease has not expired."""
    waiting: int
    """Tasks that wait for their clients."""
    dead: int
    """Dead letters."""
    oldest: int | None
    """Since when the oldest queued task waits (ms); None without one."""
    accepted: int
    """Tasks accepted in the last five minutes."""
    ended: int
    """Tasks ended in the last five minutes."""
    paused_at: int | None
    """Since when no task is claimed (ms); None if tasks are claimed."""
