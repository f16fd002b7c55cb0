"""Exceptions of the user's code that are no `Exception`: which of them end the task, and which the process."""

from __future__ import annotations

import asyncio
from typing import Any


def ends_task(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """True if an exception of the user's code has to end the task, or even the process: it is no error of the code.

    Args:
        error: The exception.
        task: The asyncio task that executed the code.
    """
    return is_for_the_process(error, task) or is_cancelled(error, task)


def is_for_the_process(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """True if an exception has to end the process or the event loop, instead of only its task.

    True for `KeyboardInterrupt`, as Ctrl-C raises the same exception, and for the `GeneratorExit` of a closed
    coroutine.
    """
    return isinstance(error, KeyboardInterrupt) or (isinstance(error, GeneratorExit) and not _is_running(task))


def is_cancelled(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """True if an exception is the cancellation of the given task. Code may also raise a `CancelledError` itself."""
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _is_running(task: asyncio.Task[Any] | None) -> bool:
    """True if `task` executes this call. A closed coroutine is executed by no task."""
    try:
        return asyncio.current_task() is task
    except RuntimeError:  # no event loop is running
        return False
