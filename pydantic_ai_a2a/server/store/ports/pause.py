"""The wait of a task for its client, as it is stored."""

from __future__ import annotations

from typing import NamedTuple


class Pause(NamedTuple):
    """The wait of a task for its client."""

    number: int
    """Number of the newest event of the task."""
    context_id: str
    pending: bytes | None
    """The pending calls of the task, as stored; None if the task waits without calls."""
    request: bytes | None = None
    """The fields of the request of the waiting run, like `Claim.request`."""
    first: bool = False
    """True if the task has not waited before."""
