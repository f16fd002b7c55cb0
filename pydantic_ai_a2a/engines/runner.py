"""The server's side of a run at an engine: start or attach, relay the events, cancel, return the output."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.exceptions import RunCancelled
from pydantic_ai.messages import PartStartEvent
from pydantic_ai.run import AgentRunResult

from ..agent.options import RunOptions
from ..agent.runner import RunArguments, Runner, RunOutput
from ..conversion.stream import AnswerStream
from ..errors import LeaseLost
from ..store.ports import TaskReader
from ..types import Note
from .engine import Ended, Engine, EngineRun


class EngineRunner:
    """Runs one agent at an engine.

    Args:
        engine: The engine.
        runner: Runs the agent in the workflows.
        reader: Reads the task of a cancelled run.
    """

    def __init__(self, engine: Engine, runner: Runner, reader: TaskReader) -> None:
        self._engine = engine
        self._runner = runner
        self._reader = reader
        self.timeout = runner.timeout

    def run(self, arguments: RunArguments, options: RunOptions | None = None) -> Coroutine[Any, Any, RunOutput]:
        """Run the agent once as a workflow, or attach to the workflow of the run. See `Runner.run`."""
        return self._run(arguments, options)

    async def _run(self, arguments: RunArguments, options: RunOptions | None) -> RunOutput:
        task_id, turn = arguments.info['task_id'], arguments.turn
        assert turn is not None, 'the backend is durable'
        key = f'{task_id}.{arguments.run_id.removeprefix(f"{task_id}.").split(".")[0]}'
        run = EngineRun(key, self._runner, arguments, options)
        if not await self._engine.start(run, known=turn.is_marked(key)):
            await turn.mark(key)
        answer = AnswerStream(arguments.text_output)
        relaying = asyncio.create_task(self._relay(run, arguments, answer))
        ending = asyncio.create_task(self._engine.result(run))
        try:
            ended = await self._end(run, arguments, relaying, ending)
        finally:
            await _cancel(relaying, ending)
            await self._engine.leave(run)
        if isinstance(ended, RunCancelled):
            raise ended
        if arguments.usage is not None and ended.usage is not arguments.usage:
            vars(arguments.usage).update(vars(ended.usage))
        result = ended.result or (None if ended.waits else _result(ended, arguments))
        return ended._replace(streamed=answer.streamed, result=result)

    async def _end(
        self,
        run: EngineRun,
        arguments: RunArguments,
        relaying: asyncio.Task[None],
        ending: asyncio.Task[Ended],
    ) -> Ended:
        """Return the end of a run after its last event. Cancel the workflow with the token of the run."""
        canceling = asyncio.timeout(None)
        try:
            async with canceling:
                with arguments.token.opening(canceling):
                    return await self._wait(relaying, ending)
        except TimeoutError:
            if not canceling.expired():
                raise
        await self._check_canceled(run.key, arguments)
        await self._engine.cancel(run)
        return await self._wait(relaying, ending)

    async def _wait(self, relaying: asyncio.Task[None], ending: asyncio.Task[Ended]) -> Ended:
        await asyncio.wait([relaying, ending], return_when=asyncio.FIRST_EXCEPTION)
        if relaying.done():
            relaying.result()
        return ending.result()

    async def _check_canceled(self, key: str, arguments: RunArguments) -> None:
        """Check that a cancelled token means a cancelled or erased task, and no lost lease.

        Raises:
            LeaseLost: Another server has the task, and attaches to its workflow.
        """
        assert arguments.turn is not None, 'the backend is durable'
        try:
            await arguments.turn.mark(key)
        except LeaseLost:
            task = await self._reader.load(arguments.info['task_id'], None, history_length=0, artifacts=False)
            if task is not None and task.header.state == 'working':
                raise

    async def _relay(self, run: EngineRun, arguments: RunArguments, answer: AnswerStream) -> None:
        """Write the events of a run into its task, for the clients that watch the task."""
        live, steps = False, self._runner.steps
        async for event in self._engine.events(run):
            if isinstance(event, Note):
                await arguments.emit(event)
                continue
            if isinstance(event, PartStartEvent) and event.index == 0:
                answer.begin_response()
                live = arguments.text_output and arguments.watched_live()
            text = answer.feed(event) if live else None
            output = text or (steps.of_event(event) if steps.any and arguments.watched() else None)
            if output is not None:
                await arguments.emit(output)


_RESULT: TypeAdapter[AgentRunResult[Any]] = TypeAdapter(AgentRunResult[Any])


def _result(output: RunOutput, arguments: RunArguments) -> AgentRunResult[Any]:
    """Return the agent's result of a run whose process has ended."""
    return _RESULT.validate_python(
        {
            'output': output.output,
            'messages': [*arguments.history, *output.messages],
            'new_message_index': len(arguments.history),
            'usage': output.usage,
            'run_id': arguments.run_id,
            'conversation_id': arguments.info['context_id'],
            'metadata': {'a2a': arguments.info},
        }
    )


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # the first exception is raised, and asyncio would log another
