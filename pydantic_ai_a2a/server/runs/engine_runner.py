"""The server's side of a run at an engine: start or attach, relay the events, cancel, return the output."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter
from pydantic_ai.exceptions import RunCancelled
from pydantic_ai.messages import PartStartEvent
from pydantic_ai.run import AgentRunResult
from pydantic_ai.usage import RunUsage

from ... import chains
from ...errors import LeaseLost, ResultForgotten, StoreFailed
from ...types.run_events import Note, ToolArtifact
from ..agent.current_task import Running, running
from ..agent.run_arguments import RunArguments
from ..agent.run_options import RunOptions
from ..agent.run_output import RunOutput
from ..agent.turn_messages import Turn
from ..conversion.answer_stream import AnswerStream
from ..conversion.failures import EngineFailure
from .engine import AtEngine, EngineRun
from .workflow_run import USAGE, Canceled

T = TypeVar('T')
_RESULT: TypeAdapter[AgentRunResult[Any]] = TypeAdapter(AgentRunResult[Any])


@dataclass(frozen=True, eq=False)
class EngineRunner(AtEngine):
    """The runner of an app in servers: its runs are workflows."""

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
            _count(arguments.usage, USAGE.validate_python(used))
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
