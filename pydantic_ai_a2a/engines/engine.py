"""The contract between the server and an engine that runs agents as workflows."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from contextvars import copy_context
from dataclasses import replace
from typing import Any, TypeAlias

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.exceptions import RunCancelled, RunTimedOut
from pydantic_ai.messages import AgentStreamEvent
from pydantic_ai.run import AgentRun

from ..agent.dependencies import RunToken
from ..agent.options import RunOptions
from ..agent.runner import Emit, RunArguments, Runner, RunOutput
from ..conversion.stream import EngineFailure, classify
from ..errors import LeaseLost, StoreFailed, StoreUnavailable
from ..types import Note

EngineEvent: TypeAlias = AgentStreamEvent | Note
"""An event of a run, for the clients of its task: of the model's stream or of a tool; or a note of the agent."""
Ended: TypeAlias = RunOutput | RunCancelled
"""The end of a run, as a workflow returns the end."""


class Engine(AbstractAsyncContextManager[None], ABC):
    """Runs each run of a task as a workflow.

    The id of the workflow is the key of the run: `{task id}.{run}`. A task that waits for its client has no workflow.
    The server holds the lease of the task while the workflow runs, and writes the end of the run into the store. A
    server that takes over the task calls `start` with the same key. Apps enter the engine while they serve, and several
    apps of a process may share one engine.
    """

    @abstractmethod
    def check(self, agent: AbstractAgent[Any, Any]) -> None:
        """Check an agent when its app is made.

        Raises:
            TypeError: The agent lacks the capability of this engine.
        """

    @abstractmethod
    async def start(self, run: EngineRun, *, known: bool) -> bool:
        """Start the workflow of a run, or attach to the workflow with the key of the run. Return True if attached.

        The workflow may run, may have ended, or may have lost its process: then it goes on after its last step.

        Args:
            run: The run.
            known: True if an earlier call has started the workflow.

        Raises:
            ResultForgotten: The workflow is known, and the engine has it no more.
        """

    @abstractmethod
    def events(self, run: EngineRun) -> AsyncIterator[EngineEvent]:
        """Yield the events of a run, and end with the workflow."""

    @abstractmethod
    async def cancel(self, run: EngineRun) -> None:
        """Cancel the workflow. Its result is then a `RunCancelled` with the messages until the cancel."""

    @abstractmethod
    async def result(self, run: EngineRun) -> Ended:
        """Wait for the end of the workflow, and return its result.

        Raises:
            Exception: The exception of the run, or the `EngineFailure` that the engine has stored.
        """

    @abstractmethod
    async def leave(self, run: EngineRun) -> None:
        """Leave a workflow that has not ended: another server attaches to the workflow.

        If the workflow runs in this process, it stops here, and goes on in the other process after its last step.
        """


class EngineRun:
    """One run of a task, as an engine sees it.

    Args:
        key: Id of the workflow.
        runner: Runs the agent in the workflow.
        arguments: The arguments of the run.
        options: Options of this run only, such as its `deps`.
    """

    def __init__(self, key: str, runner: Runner, arguments: RunArguments, options: RunOptions | None) -> None:
        self.key = key
        self.loop = asyncio.get_running_loop()
        """The event loop of the worker. A workflow that runs in this process runs there."""
        self.handle: Any = None
        """The engine's handle of the workflow."""
        self.events: asyncio.Queue[EngineEvent | Exception | None] = asyncio.Queue()
        """Events of a workflow in this process; None after the last. An exception ends the run, but no workflow."""
        self.error: Exception | None = None
        """The exception that has ended the run in this process."""
        self.output: RunOutput | None = None
        """The output of a run in this process, with objects that no engine stores."""
        self._runner = runner
        self._arguments = arguments
        self._options = options
        self._context = copy_context()
        self._token = WorkflowToken()

    async def perform(self, emit: Emit) -> Ended:
        """Run the agent in the current task, inside of the workflow.

        Args:
            emit: Takes the notes of the agent, once for each note although a workflow is replayed.

        Raises:
            EngineFailure: The run has failed.
            CancelledError: The task is cancelled, or has moved to another process. The workflow has not ended.
        """
        known = copy_context()
        for variable, value in self._context.items():
            if variable not in known:  # in a workflow that goes on after the loss of its process
                variable.set(value)
        arguments = in_workflow(self._arguments, self.key, self._token, emit)
        # Engines refuse tokens, which belong to one process. The workflow's token cancels the run itself.
        options: Any = {**(self._options or {}), 'cancellation_token': None}
        try:
            self.output = await self._runner.run(arguments, options)
        except (LeaseLost, StoreFailed, StoreUnavailable) as error:  # of a tool that writes to the task
            self.events.put_nowait(error)
            raise asyncio.CancelledError from error
        except Exception as error:
            if isinstance(error, RunCancelled) and not isinstance(error, RunTimedOut):
                return error
            self.error = error
            raise EngineFailure(*classify(error)) from error
        return self.output._replace(result=None)

    def cancel(self) -> None:
        """Cancel the run in this process, in its event loop. Its messages are kept."""
        self._token.stop()


class WorkflowToken(RunToken):
    """Cancels one run inside of a workflow."""

    def __init__(self) -> None:
        self._run: AgentRun[Any, Any] | None = None
        self._stopped = False
        super().__init__()

    @property
    def run(self) -> AgentRun[Any, Any] | None:
        """The run, once entered."""
        return self._run

    @run.setter
    def run(self, run: AgentRun[Any, Any] | None) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._run = run
        self._stop()

    def stop(self) -> None:
        """Cancel the run now, or as soon as it is entered."""
        self._stopped = True
        self._stop()

    def _stop(self) -> None:
        if self._stopped and self.run is not None:
            self.run.cancel()


def in_workflow(arguments: RunArguments, key: str, token: RunToken, emit: Emit) -> RunArguments:
    """Return the arguments of a run inside of its workflow, the same in each replay.

    The server sees who reads the task, and what the run does meanwhile. The engine keeps the steps.
    """
    return replace(
        arguments,
        run_id=key,
        token=token,
        watched=_never,
        watched_live=_never,
        emit=emit,
        turn=None,
        on_model_error=None,
    )


def _never() -> bool:
    return False
