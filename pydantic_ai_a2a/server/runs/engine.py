"""The contract between the server and an engine that runs agents as workflows."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias, cast

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import AgentStreamEvent
from pydantic_ai.usage import RunUsage

from ...errors import LeaseLost, StoreFailed, StoreUnavailable
from ...types.run_events import Note, ToolArtifact
from ..agent.current_task import Running, Writes, running
from ..agent.run_arguments import Emit, RunArguments
from ..agent.run_options import RunOptions
from ..agent.run_output import RunOutput
from ..agent.runner import Runner
from ..agent.workflow_checks import check_in_workflow
from ..conversion.failures import EngineFailure
from ..store.ports import Backend
from .agent_job import AgentJob
from .workflow_run import perform
from .workflow_token import WorkflowToken

EngineEvent: TypeAlias = AgentStreamEvent | Note | ToolArtifact
"""An event of a run, for the clients of its task: of the model's stream or of a tool; or a note or an artifact."""


class Engine(ABC):
    """Runs each run of a task as a workflow.

    The id of the workflow is the key of the run: `{task id}.{run}`. A task that waits for its client has no workflow.
    The server holds the lease of the task while the workflow runs, and writes the end of the run into the store. A
    server that takes over the task calls `start` with the same key.
    """

    in_server: ClassVar[bool]
    """True if a workflow runs in the process with the lease of its task: the loss of the process is an attempt, and the
    run holds a slot of `Workers.running`."""

    capability: ClassVar[Any]
    """Class of the capability that agents need."""

    def check(self, agent: AbstractAgent[Any, Any], options: RunOptions) -> None:
        """Check an agent and the options of all runs when an app is made.

        Raises:
            TypeError: The agent lacks the capability of this engine, or the engine cannot run it with the options.
        """
        durability = None
        with suppress(NotImplementedError):  # an agent class of the user may have no capabilities
            durability = self.capability.from_agent(agent)
        if durability is None:
            engine, name = type(self).__name__, self.capability.__name__
            raise TypeError(f'engine={engine}() needs an agent with the capability {name}: Agent(…, capabilities=…).')
        check_in_workflow(durability, agent, options)

    @abstractmethod
    def serving(self, app: AtEngine) -> AbstractAsyncContextManager[Any]:
        """Return a context that is entered while an app serves and runs tasks."""

    async def worker(self, app: Any, **options: Any) -> Any:
        """Return a worker that runs the workflows of an app of `to_a2a` apart from the servers.

        Raises:
            TypeError: The workflows run in the servers.
        """
        raise TypeError(f'{type(self).__name__} has no workers of its own: the servers run the workflows.')

    @abstractmethod
    async def start(self, run: EngineRun, *, known: bool) -> None:
        """Start the workflow of a run, or attach to the workflow with the key of the run.

        The workflow may run, may have ended, or may have lost its process: then it goes on after its last step.

        Args:
            run: The run.
            known: True if an earlier call has started the workflow.

        Raises:
            ResultForgotten: The workflow is known, and the engine has it no more.
        """

    @abstractmethod
    def events(self, run: EngineRun) -> AsyncIterator[EngineEvent]:
        """Yield the events of a run, and end with the workflow. The first notes are left out: see `EngineRun.notes`."""

    @abstractmethod
    async def cancel(self, run: EngineRun) -> None:
        """Cancel the workflow. Its result then has the output `Canceled`, and the messages until the cancel."""

    async def give_up(self, run: EngineRun) -> None:
        """End a workflow whose result nobody stores. The default cancels the workflow."""
        await self.cancel(run)

    @abstractmethod
    async def result(self, run: EngineRun) -> RunOutput:
        """Wait for the end of the workflow, and return its result.

        Raises:
            Exception: The exception of the run, or the `EngineFailure` that the engine has stored.
        """

    async def leave(self, run: EngineRun) -> None:  # noqa: B027 - workflows of most engines run elsewhere
        """Leave a workflow, which may have not ended: another server attaches to the workflow.

        If the workflow runs in this process, it stops here, and goes on in the other process after its last step.
        """


@dataclass(frozen=True, eq=False)
class AtEngine:
    """An app at its engine."""

    engine: Engine
    runner: Runner
    """Runs the agent in the workflows."""
    backend: Backend
    job: Callable[..., AgentJob]
    """Makes the job of the app, with `runner` or another one."""


@dataclass(eq=False)
class EngineRun:
    """One run of a task, as a server sees it."""

    key: str
    """Id of the workflow."""
    app: AtEngine
    current: Running
    arguments: RunArguments
    options: RunOptions | None
    """Options of this run only, such as its `deps`."""
    notes: int
    """Number of the notes of the run that its clients have."""
    used: RunUsage
    """Usage of the task before the run."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    """The event loop of the worker. A workflow that runs in this process runs there."""
    task: asyncio.Task[Any] | None = None
    """Runs the agent in this process."""
    handle: Any = None
    """The engine's handle of the workflow."""
    result: asyncio.Future[RunOutput] = field(default_factory=asyncio.Future[RunOutput])
    """Done once the workflow has ended."""
    events: asyncio.Queue[EngineEvent | Exception | None] = field(default_factory=asyncio.Queue[Any])
    """Events of a workflow in this process; None after the last. An exception ends the run, but no workflow."""
    error: Exception | None = None
    """The exception that has ended the run in this process."""
    output: RunOutput | None = None
    """The output of a run in this process, with objects that no engine stores; or of a workflow that is terminated."""
    context: Context = field(default_factory=copy_context)
    token: WorkflowToken = field(default_factory=WorkflowToken)

    async def perform(self, emit: Emit) -> RunOutput:
        """Run the agent in the current task of this process, inside of the workflow.

        Raises:
            EngineFailure: The run has failed.
            CancelledError: The task is cancelled, or has moved to another process. The workflow has not ended.
        """
        known = copy_context()
        for variable, value in self.context.items():
            if variable not in known:  # in a workflow that goes on after the loss of its process
                variable.set(value)
        running.set(self.current._replace(writer=Writes(self._write)))
        # The same in each replay: the server sees who reads the task, and the engine keeps the steps.
        arguments = replace(
            self.arguments,
            run_id=self.key,
            token=self.token,
            watched=bool,
            watched_live=bool,
            emit=emit,
            turn=None,
            on_model_error=None,
        )
        try:
            self.output = await perform(self.app.runner, arguments, self.options)
        except EngineFailure as failure:
            self.error = cast('Exception', failure.__cause__)
            raise
        except (LeaseLost, StoreFailed, StoreUnavailable) as error:  # of a tool that writes to the task
            self.events.put_nowait(error)
            raise asyncio.CancelledError from error
        return self.output._replace(result=None)

    async def _write(self, event: Note | ToolArtifact) -> None:
        """Store what a tool writes, after the events before it: the server may not have stored its call yet."""
        await self.events.join()
        await self.current.writer.write(event)

    def cancel(self) -> None:
        """Cancel the run in this process, in its event loop. Its messages are kept."""
        self.token.stop()
