"""The outcome of a run that raised: the one ladder for the runs of a worker, of an `AgentWorker` and of direct replies.

`conversion.failure.classify` then says which failure a failed run is.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import Any

from pydantic_ai.exceptions import RunCancelled, RunTimedOut

from ..agent.exits import is_cancelled, is_for_the_process
from ..errors import LeaseLost, StoreUnavailable

__all__ = ('Outcome', 'outcome_of')


class Outcome(Enum):
    """The end of a run that raised an exception."""

    EXIT = auto()
    """The process or the event loop ends: nothing is awaited or written any more."""
    STOPPED = auto()
    """The asyncio task of the run is cancelled, because the worker or the request ends."""
    UNAVAILABLE = auto()
    """The store is unavailable, and the worker ends before the store is back."""
    LOST = auto()
    """Another worker has the task, or the task was ended: the result of the run is dropped."""
    CANCELED = auto()
    """The run was cancelled by its token: the task is canceled."""
    FAILED = auto()
    """The run failed, and so does its task: on any other exception, also on a `SystemExit` or a `CancelledError` that
    the user's code raised, and on a timeout."""


def outcome_of(error: BaseException, task: asyncio.Task[Any] | None) -> Outcome:
    """Return the outcome of a run that raised an exception in an asyncio task."""
    if is_for_the_process(error, task):
        return Outcome.EXIT
    if is_cancelled(error, task):
        return Outcome.STOPPED
    match error:
        case StoreUnavailable():
            return Outcome.UNAVAILABLE
        case LeaseLost():
            return Outcome.LOST
        case RunCancelled() if not isinstance(error, RunTimedOut):
            return Outcome.CANCELED
        case _:
            return Outcome.FAILED
