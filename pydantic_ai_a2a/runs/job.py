"""The work of a task, as the worker sees it."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from ..agent.hooks import Hooks
from ..store.ports import Claim
from .recorder import Recorder


class CancelToken(Protocol):
    """Cancels the work of one task."""

    def cancel(self) -> None:
        """Cancel the work, from any thread. A second call does nothing."""


class Job(Protocol):
    """The work of tasks."""

    @property
    def hooks(self) -> Hooks:
        """Hooks for the worker to call for cancelled and failed runs; `record` calls the hook for completed runs."""
        ...

    def token(self) -> Any:
        """Return a new `CancelToken` for one task."""

    async def begin(self, claim: Claim, recorder: Recorder, token: Any, run_id: str) -> Coroutine[Any, Any, Any]:
        """Prepare a run, and return the coroutine of the run, to be awaited at once.

        The worker awaits the coroutine itself, because the coroutine is resumed for each delta. An exception fails the
        task, except for the `RunCancelled` of a cancelled token.
        """
        ...

    async def record(self, claim: Claim, recorder: Recorder, result: Any) -> Claim | None:
        """Record the result of a run. See `TaskQueue.finish`."""
