"""The cancellation of a run inside of a workflow."""

from __future__ import annotations

from typing import Any

from pydantic_ai.run import AgentRun

from ..agent.run_token import RunToken


class WorkflowToken(RunToken):
    """Cancels one run inside of a workflow."""

    run: AgentRun[Any, Any] | None = None
    """The run, once it is entered."""
    _stopped = False

    def __init__(self) -> None:
        super().__init__()
        self.on_entered = self._enter

    def _enter(self, run: AgentRun[Any, Any]) -> None:
        self.run = run
        if self._stopped:
            run.cancel()

    def stop(self) -> None:
        """Cancel the run now, or as soon as it is entered."""
        self._stopped = True
        if self.run is not None:
            self.run.cancel()
