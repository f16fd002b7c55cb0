"""The contract between the server and an engine that runs agents as workflows, and the server's side of a run."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext, suppress
from contextvars import Context, copy_context
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias, TypeVar, cast

from pydantic import TypeAdapter
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.exceptions import RunCancelled, RunTimedOut
from pydantic_ai.messages import AgentStreamEvent, ModelMessage, PartStartEvent
from pydantic_ai.run import AgentRun, AgentRunResult
from pydantic_ai.usage import RunUsage

from .. import chains
from ..agent.current_task import Running, running
from ..agent.run_options import RunOptions
from ..agent.run_output import Answer, RunOutput
from ..agent.run_token import RunToken
from ..agent.runner import Emit, RunArguments, Runner
from ..agent.turn_messages import Turn
from ..agent.workflow_checks import check_in_workflow
from ..conversion.answer_stream import AnswerStream
from ..conversion.failures import EngineFailure, classify
from ..errors import LeaseLost, ResultForgotten, StoreFailed, StoreUnavailable
from ..runs.agent_job import AgentJob
from ..store.ports import Backend
from ..store.run_usage import plain_usage
from ..types import Note, ToolArtifact

T = TypeVar('T')
EngineEvent: TypeAlias = AgentStreamEvent | Note | ToolArtifact
"""An event of a run, for the clients of its task: of the model's stream or of a tool; or a note or an artifact."""


@dataclass
class Canceled:
    """The output of a cancelled run, whose messages are those until the cancel."""

    text: str


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
    """The output of a run in this process, with objects that no engine stores."""
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

    def cancel(self) -> None:
        """Cancel the run in this process, in its event loop. Its messages are kept."""
        self.token.stop()


async def perform(
    runner: Runner,
    arguments: RunArguments,
    options: RunOptions | None,
    answer: Callable[[RunOutput], Answer] | None = None,
) -> RunOutput:
    """Run the agent in a workflow.

    Args:
        runner: Runs the agent.
        arguments: The arguments of the run, the same in each replay of the workflow.
        options: Options of this run only.
        answer: Makes the answer of the run here, for an engine that changes values on their way; None: the server does.

    Raises:
        EngineFailure: The run has failed.
        LeaseLost, StoreFailed, StoreUnavailable: A tool has written to the task in vain.
    """
    # Engines refuse tokens, which belong to one process. The workflow's token cancels the run itself.
    given: Any = dict(options or {}, cancellation_token=None)
    try:
        ended = await runner.run(arguments, given)
        ended = ended._replace(usage=plain_usage(ended.usage), whole=_whole(ended, arguments.history))
        return ended if answer is None or ended.waits else ended._replace(answer=answer(ended))
    except (LeaseLost, StoreFailed, StoreUnavailable):
        raise
    except Exception as error:
        if isinstance(error, RunCancelled) and not isinstance(error, RunTimedOut):
            return RunOutput(Canceled(error.message), (), None, error.new_messages(), plain_usage(error.usage))
        raise EngineFailure(*classify(error), _dumped(arguments.usage)) from error


def _whole(ended: RunOutput, history: Sequence[ModelMessage]) -> tuple[Sequence[ModelMessage], int] | None:
    """Return the messages of a result for the hooks, if the run has changed its history; see `RunOutput.whole`."""
    if (result := ended.result) is None or (messages := result.all_messages()) == [*history, *ended.messages]:
        return None
    return messages, len(messages) - len(result.new_messages())


def _dumped(usage: RunUsage | None) -> Any:
    return None if usage is None else _USAGE.dump_python(plain_usage(usage), mode='json')


# --- the server's side of a run ---------------------------------------------------------------------------------------
# Start or attach, relay the events, cancel, return the output.


_USAGE: TypeAdapter[RunUsage | None] = TypeAdapter(RunUsage | None)
_RESULT: TypeAdapter[AgentRunResult[Any]] = TypeAdapter(AgentRunResult[Any])


@dataclass(frozen=True, eq=False)
class AtEngine:
    """An app at its engine. In servers, it is the runner of the app: its runs are workflows."""

    engine: Engine
    runner: Runner
    """Runs the agent in the workflows."""
    backend: Backend
    job: Callable[..., AgentJob]
    """Makes the job of the app, with `runner` or another one."""

    @property
    def timeout(self) -> float | None:
        """Seconds of a run; None for no limit."""
        return self.runner.timeout

    async def run(self, arguments: RunArguments, options: RunOptions | None = None) -> RunOutput:
        """Run the agent once as a workflow, or attach to the workflow of the run. See `Runner.run`."""
        current, turn = cast('Running', running.get()), arguments.turn
        assert turn is not None, 'the backend is durable'
        key = f'{current.claim.header.id}.{current.claim.run}'
        known = turn.marked == key
        notes, used = turn.marks - 1 if known else 0, deepcopy(arguments.usage or RunUsage())
        run = EngineRun(key, self, current, arguments, options, notes, used)
        answer = AnswerStream(arguments.text_output)
        try:
            async with nullcontext() if self.engine.in_server else chains.waiting.get():
                ended = await self._end(run, turn, answer, known=known)
        except EngineFailure as failure:
            used = failure.args[3] if len(failure.args) > 3 else None
            _count(arguments.usage, _USAGE.validate_python(used))
            raise
        except (LeaseLost, StoreFailed) as error:
            if isinstance(error, StoreFailed) or not await self._works(arguments.info['task_id']):
                await self.engine.give_up(run)
            raise
        finally:
            await self.engine.leave(run)
        messages, begin = ended.whole or ([*arguments.history, *ended.messages], len(arguments.history))
        of_run: dict[str, Any] = {
            'messages': messages,
            'new_message_index': begin,
            'usage': ended.usage,
            'run_id': arguments.run_id,
            'conversation_id': arguments.info['context_id'],
            'metadata': {'a2a': arguments.info},
        }
        _count(arguments.usage, ended.usage)
        if isinstance(ended.output, Canceled):
            raise RunCancelled(ended.output.text, **of_run)
        result = ended.result
        if result is None and not ended.waits:  # another process has performed the run
            result = _RESULT.validate_python({'output': ended.output, **of_run})
        return ended._replace(streamed=answer.streamed, result=result)

    async def _end(self, run: EngineRun, turn: Turn, answer: AnswerStream, *, known: bool) -> RunOutput:
        """Return the end of a run after its last event. Cancel the workflow with the token of the run.

        Raises:
            LeaseLost: Another server has the task, and attaches to its workflow.
        """
        arguments, canceling, header = run.arguments, asyncio.timeout(None), run.current.claim.header
        started = asyncio.Future[None]()
        async with AsyncExitStack() as stack:
            over = _task(stack, self._follow(stack, run, turn, answer, started, known=known))
            try:
                async with canceling:
                    with arguments.token.opening(canceling):
                        return await asyncio.shield(over)
            except TimeoutError:
                if not canceling.expired():
                    raise
            # The engine may start the workflow, and not have answered yet. A task that is over does not wait for that.
            ended = _task(stack, self.backend.events.wait(header.id, header.last_event))
            await asyncio.wait([started, over, ended], return_when=asyncio.FIRST_COMPLETED)
            if self.engine.in_server and not started.done():
                await self.engine.cancel(run)  # before the agent begins, in a workflow that always starts
                await asyncio.wait([started, over], return_when=asyncio.FIRST_COMPLETED)
            if not started.done():
                over.cancel()
                await asyncio.wait([over])
                if not over.cancelled() and not isinstance(over.exception(), ResultForgotten):
                    return over.result()
                await self.engine.give_up(run)
                return RunOutput(Canceled('The run has not begun.'), (), None, [], arguments.usage or RunUsage())
            try:
                await turn.mark(run.key)  # the token is cancelled for a lost lease, too
            except LeaseLost:
                if await self._works(header.id):
                    raise
            await self.engine.cancel(run)
            return await over

    async def _works(self, task_id: str) -> bool:
        """Return whether a task is neither cancelled nor erased: its workflow goes on."""
        task = await self.backend.reader.load(task_id, None, history_length=0, artifacts=False)
        return task is not None and task.header.state == 'working'

    async def _follow(
        self,
        stack: AsyncExitStack,
        run: EngineRun,
        turn: Turn,
        answer: AnswerStream,
        started: asyncio.Future[None],
        *,
        known: bool,
    ) -> RunOutput:
        """Start or attach. Write the events into the task, for the clients that watch the task. Return the result."""
        live, steps, arguments = False, self.runner.steps, run.arguments
        await self.engine.start(run, known=known)
        run.result = _task(stack, self.engine.result(run))
        run.result.add_done_callback(lambda _: run.events.put_nowait(None))
        started.set_result(None)
        if not known:
            await turn.mark(run.key)
        async for event in self.engine.events(run):
            if isinstance(event, Note):
                await turn.mark(run.key, event)
                continue
            if isinstance(event, ToolArtifact):
                await run.current.writer.write(event)
                continue
            if isinstance(event, PartStartEvent) and event.index == 0:
                answer.begin_response()
                live = arguments.text_output and arguments.watched_live()
            text = answer.feed(event) if live else None
            output = text or (steps.of_event(event) if steps.any and arguments.watched() else None)
            if output is not None:
                await arguments.emit(output)
        return await run.result


def _task(stack: AsyncExitStack, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task that ends with a stack."""
    task = asyncio.create_task(work)

    async def end() -> None:
        task.cancel()
        await asyncio.wait([task])

    stack.push_async_callback(end)
    return task


def _count(usage: RunUsage | None, used: RunUsage | None) -> None:
    """Set the usage of a run to the usage that its workflow has returned, if any."""
    if usage is not None and used is not None:
        vars(usage).update(vars(used))
