"""The user's hooks: functions to call after the end of a run is stored.

Errors of a hook are logged: the task has ended before, and the client may have read its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from inspect import isasyncgenfunction, isawaitable, iscoroutinefunction
from typing import Any, TypeAlias

from anyio import to_thread
from pydantic_ai.exceptions import RunCancelled
from pydantic_ai.run import AgentRunResult

from ..types import Caller
from .exits import contained, is_cancelled

__all__ = ('Hooks', 'OnCancel', 'OnComplete', 'OnFailure', 'RunFailure')

logger = logging.getLogger('pydantic_ai_a2a')


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailure:
    """The failure of a task: the argument of `on_failure`."""

    task_id: str
    context_id: str
    caller: Caller
    """Owner of the task, without scopes."""
    kind: str
    """Name of the failure, also sent to the client."""
    correlation_id: str
    """Names the failure in the log and in the client's message."""
    error: BaseException | None
    """The raised exception; None if no code raised, such as at a shutdown."""


OnComplete: TypeAlias = Callable[[AgentRunResult[Any]], object]
"""Sync (and then called in a thread) or async."""
OnCancel: TypeAlias = Callable[[RunCancelled], object]
"""Sync (and then called in a thread) or async."""
OnFailure: TypeAlias = Callable[[RunFailure], object]
"""Sync (and then called in a thread) or async."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """The hooks for the ends of runs.

    Raises:
        TypeError: A hook is an async generator function, whose items would be lost.
    """

    on_complete: OnComplete | None = None
    on_cancel: OnCancel | None = None
    on_failure: OnFailure | None = None

    def __post_init__(self) -> None:
        for name, hook in self.given.items():
            if isasyncgenfunction(hook):
                raise TypeError(f'{name}= must be a function or an async function without yield, not {hook!r}.')

    @property
    def given(self) -> dict[str, Any]:
        """The hooks by name, without absent hooks."""
        every = {'on_complete': self.on_complete, 'on_cancel': self.on_cancel, 'on_failure': self.on_failure}
        return {name: hook for name, hook in every.items() if hook is not None}

    async def completed(self, task_id: str, result: AgentRunResult[Any]) -> None:
        """Call `on_complete` after a run's answer is stored."""
        await _call('on_complete', self.on_complete, result, task_id)

    async def canceled(self, task_id: str, canceled: RunCancelled) -> None:
        """Call `on_cancel` after a run and its task were cancelled."""
        await _call('on_cancel', self.on_cancel, canceled, task_id)

    async def failed(self, failure: RunFailure) -> None:
        """Call `on_failure` after a task has failed."""
        await _call('on_failure', self.on_failure, failure, failure.task_id)


async def _call(name: str, hook: Callable[[Any], object] | None, argument: object, task_id: str) -> None:
    assert hook is not None, 'only a hook that is set is called'
    try:
        if iscoroutinefunction(hook):
            await contained(hook(argument))
        elif isawaitable(returned := await contained(to_thread.run_sync(hook, argument))):
            await contained(returned)
    except asyncio.CancelledError as error:
        if is_cancelled(error, asyncio.current_task()):
            raise
        logger.exception('The hook %s of task %s cancelled itself; the task stays as it is.', name, task_id)
    except Exception:
        logger.exception('The hook %s of task %s failed; the task stays as it is.', name, task_id)
