"""From an exception to the outcome of a run: one ladder for the worker, `AgentWorker` and direct replies.

`server.conversion.failures.classify` names the failure of a failed run.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import Any

from pydantic_ai.exceptions import RunCancelled, RunTimedOut

from ...base_exceptions import is_cancelled, is_for_the_process
from ...errors import LeaseLost, StoreUnavailable


class Outcome(Enum):
    """The end of a run by an exception."""

    EXIT = auto()
    """The process or the event loop ends: no write follows."""
    STOPPED = auto()
    """The asyncio task of the run is cancelled, because the worker or the request ends."""
    UNAVAILABLE = auto()
    """The store is unavailable, and the worker ends before the store is back."""
    LOST = auto()
    """Another worker has the task, or the task was ended: the result of the run is dropped."""
    CANCELED = auto()
    """The token cancelled the run: the task is canceled."""
    FAILED = auto()
    """The run failed, and the task fails: on a timeout and on all other exceptions, including a `SystemExit` or a
    `CancelledError` of the user's code."""


def outcome_of(error: BaseException, task: asyncio.Task[Any] | None) -> Outcome:
    """Return the outcome of a run after an exception in an asyncio task."""
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
