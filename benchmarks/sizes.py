"""Two forms of a measurement, and one for tests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rounds: int
    """Turns of each server."""
    seconds: float
    """Length of a turn."""
    connections: int
    """Connections that are kept busy."""
    tasks: int
    """Finished tasks for the memory of one."""
    stored: int
    """Stored tasks behind a page of ListTasks."""
    items: int
    """Messages, and artifacts, of the task of GetTask."""
    turns: int
    """Turns of a conversation."""
    recoveries: int
    """Processes to kill."""
    slow: int
    """Connections that send a byte now and then."""
    stalled: int
    """Streams of which nobody reads."""
    requests: int
    """Requests of each kind beside the slow clients, in each round."""


SIZES = {
    'long': Size(16, 0.7, 16, 10_000, 100_000, 1000, 500, 5, 1000, 200, 200),
    'quick': Size(6, 0.4, 16, 2000, 10_000, 1000, 100, 2, 300, 50, 50),
    'tiny': Size(1, 0.1, 2, 40, 60, 20, 20, 1, 20, 3, 5),
}
