"""Functions of the user's own that are told how runs end, once that is stored. Knows neither tasks' storage nor wire.

What goes wrong in them is logged: the task is over by then, and its client may have read so.
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
    """How a task failed: what `on_failure` is given."""

    task_id: str
    context_id: str
    caller: Caller
    """Whose task it is, without scopes."""
    kind: str
    """Of the failure, as its client reads it."""
    correlation_id: str
    """Names the failure in the log and in what its client reads."""
    error: BaseException | None
    """What was raised; None if nothing was, such as when the server shut down first."""


OnComplete: TypeAlias = Callable[[AgentRunResult[Any]], object]
"""Sync (and then called in a thread) or async."""
OnCancel: TypeAlias = Callable[[RunCancelled], object]
"""Sync (and then called in a thread) or async."""
OnFailure: TypeAlias = Callable[[RunFailure], object]
"""Sync (and then called in a thread) or async."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What is called when a run has ended.

    Raises:
        TypeError: A hook is an async generator function, whose events would have nowhere to go.
    """

    on_complete: OnComplete | None = None
    on_cancel: OnCancel | None = None
    on_failure: OnFailure | None = None

    def __post_init__(self) -> None:
        for name, hook in self.given.items():
            if isasyncgenfunction(hook):
                raise TypeError(f'{name}= is a function, sync or async, that yields nothing; not {hook!r}.')

    @property
    def given(self) -> dict[str, Any]:
        """Those that there are, by name."""
        every = {'on_complete': self.on_complete, 'on_cancel': self.on_cancel, 'on_failure': self.on_failure}
        return {name: hook for name, hook in every.items() if hook is not None}

    async def completed(self, task_id: str, result: AgentRunResult[Any]) -> None:
        """A run's answer has been stored."""
        await _call('on_complete', self.on_complete, result, task_id)

    async def canceled(self, task_id: str, canceled: RunCancelled) -> None:
        """A run was cancelled, and so was its task."""
        await _call('on_cancel', self.on_cancel, canceled, task_id)

    async def failed(self, failure: RunFailure) -> None:
        """A task has failed."""
        await _call('on_failure', self.on_failure, failure, failure.task_id)


async def _call(name: str, hook: Callable[[Any], object] | None, told: object, task_id: str) -> None:
    assert hook is not None, 'who has none does not tell it'
    try:
        if iscoroutinefunction(hook):
            await contained(hook(told))
        elif isawaitable(returned := await contained(to_thread.run_sync(hook, told))):
            await contained(returned)
    except asyncio.CancelledError as error:
        if is_cancelled(error, asyncio.current_task()):
            raise
        logger.exception('%s of task %s was cancelled by itself.', name, task_id)
    except Exception:
        logger.exception('%s of task %s failed.', name, task_id)
