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

    @property
    def timeout(self) -> float | None:
        """Seconds of a run over all its tries; None for no limit."""
        ...

    def token(self) -> Any:
        """Return a new `CancelToken` for one task."""

    async def prepare(self, claim: Claim, recorder: Recorder, token: Any, run_id: str) -> Coroutine[Any, Any, Any]:
        """Read what the run needs, and return the run: a coroutine, to be awaited at once.

        The caller awaits the run itself, because each frame between costs time for each piece of live text. An
        exception fails the task, except for the `RunCancelled` of a cancelled token.
        """
        ...

    async def record(self, claim: Claim, recorder: Recorder, result: Any) -> Claim | None:
        """Record the result of a run. See `TaskQueue.finish`."""
