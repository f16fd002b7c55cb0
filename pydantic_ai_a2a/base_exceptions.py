"""Exceptions of the user's code: their causes, and which that are no `Exception` end the task or the process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any


def ends_task(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """True if an exception of the user's code has to end the task, or even the process: it is no error of the code.

    Args:
        error: The exception.
        task: The asyncio task that executed the code. Read it before: a coroutine may be closed where no task is.
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


def causes(error: BaseException | None, *, contexts: bool = False) -> Iterator[BaseException]:
    """Yield an error and its causes, each once: an error may be raised from itself.

    Args:
        error: The error.
        contexts: True to go on with the error that was handled, where an error has no cause.
    """
    seen = set[int]()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or (error.__context__ if contexts else None)


def _is_running(task: asyncio.Task[Any] | None) -> bool:
    """True if `task` executes this call. A closed coroutine is executed by no task."""
    try:
        return asyncio.current_task() is task
    except RuntimeError:  # no event loop is running
        return False
