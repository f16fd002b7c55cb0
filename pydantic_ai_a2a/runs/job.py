"""What doing a task is, for the worker that has it done. Knows the ports and the recorder; no agent and no worker."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from ..agent.hooks import Hooks
from ..ports import Claim
from .recorder import Recorder

__all__ = ('Job', 'Token')


class Token(Protocol):
    """Cancels what one task does."""

    def cancel(self) -> None:
        """Cancel it, from any thread; again does nothing."""


class Job(Protocol):
    """What doing a task is."""

    @property
    def hooks(self) -> Hooks:
        """What the worker tells of a run that was cancelled or has failed; `record` tells of one that has completed."""
        ...

    def token(self) -> Any:
        """A `Token` for one task."""

    async def begin(self, claim: Claim, recorder: Recorder, token: Any, run_id: str) -> Coroutine[Any, Any, Any]:
        """What does a task, to be awaited at once: by the worker itself, since it is resumed for each delta.

        What either raises is how the task fails, but for the `RunCancelled` of a cancelled token.
        """
        ...

    async def record(self, claim: Claim, recorder: Recorder, result: Any) -> Claim | None:
        """Record what came of it. See `TaskQueue.finish`."""
