"""Hooks: what they are told of the ends of runs, and that nothing which they do changes a task."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fasta2a.broker import InMemoryBroker
from fasta2a.storage import InMemoryStorage
from pydantic_ai import Agent, AgentRunResult
from pydantic_ai.exceptions import RunCancelled
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import AgentWorker, CallContext, Caller, InputRequired, Limits, RunFailure, Workers, to_a2a
from pydantic_ai_a2a.store import WrappedQueue

from ...agents import GatedAgent, echo_prompts
from ...app_client import LIMIT, Client, lifespan, message, state_of, texts
from ...constants import with_constants
from ...logs import log_event
from ...serving import serving
from ..callers import authenticate_as

AGENT = Agent(FunctionModel(echo_prompts), name='agent')


class RecordingHook:
    """A hook that keeps what it is told, in the event loop or in a thread."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._told = asyncio.Event()

    async def hear(self, value: Any) -> None:
        self.values.append(value)
        self._told.set()

    async def one(self) -> Any:
        """The only thing, once it has been told."""
        async with asyncio.timeout(LIMIT):
            await self._told.wait()
        [value] = self.values
        return value


def fail(*_: Any) -> Any:
    raise ZeroDivisionError('secret')


async def test_on_complete_gets_result_after_task_is_stored() -> None:
    states: list[str] = []
    results = RecordingHook()

    async def on_complete(result: AgentRunResult[Any]) -> None:
        metadata: Any = result.metadata
        states.append((await client.a2a_app.get_task(metadata['a2a']['task_id']))['status']['state'])
        await results.hear(result)

    async with serving(AGENT, on_complete=on_complete) as client:
        task = await client.send(message('hi', contextId='c'))
        result = await results.one()
    assert (result.output, states, result.conversation_id) == ('hi', ['completed'], 'c')
    assert result.metadata['a2a']['task_id'] == task['id']


async def test_on_complete_is_called_for_each_run_in_order() -> None:
    gates, outputs = GatedAgent(), list[str]()

    async def on_complete(result: AgentRunResult[str]) -> None:
        outputs.append(result.output)

    async with serving(gates.agent, on_complete=on_complete) as client:
        await gates.run_twice(client)
    assert outputs == ['one', 'one + two']


async def test_on_complete_is_not_called_for_input_required() -> None:
    outputs: list[Any] = []
    agent = Agent(FunctionModel(echo_prompts))

    async def on_complete(result: AgentRunResult[str]) -> None:
        outputs.append(result.output)

    @agent.output_validator
    def ask(output: str) -> str:
        if '+' not in output:
            raise InputRequired('What else?')
        return output

    async with serving(agent, on_complete=on_complete) as client:
        task = await client.send('one')
        assert state_of(task) == 'INPUT_REQUIRED'
        await client.send(message('two', taskId=task['id']))
    assert outputs == ['one + two']


@pytest.mark.parametrize('name', ['on_complete', 'on_tool_call', 'on_tool_result'])
async def test_sync_hook_runs_in_thread(name: str) -> None:
    threads: list[int] = []

    async def look() -> str:
        return 'seen'

    def hook(_: object) -> None:
        threads.append(threading.get_ident())

    options: dict[str, Any] = {name: hook}
    async with serving(Agent(TestModel(), tools=[look]), **options) as client:
        await client.send('hi')
    assert len(threads) == 1
    assert threads != [threading.get_ident()]


async def test_awaitable_returned_by_sync_hook_is_awaited() -> None:
    results = RecordingHook()

    def on_complete(result: AgentRunResult[str]) -> Awaitable[None]:
        return results.hear(result)

    async with serving(AGENT, on_complete=on_complete) as client:
        await client.send('hi')
        assert (await results.one()).output == 'hi'


@pytest.mark.parametrize('error', [ZeroDivisionError, asyncio.CancelledError, SystemExit, GeneratorExit])
async def test_failing_hook_is_logged_and_task_unchanged(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    gates = GatedAgent()

    async def on_complete(result: AgentRunResult[Any]) -> None:
        raise error

    async with serving(gates.agent, on_complete=on_complete) as client:
        task = await gates.run_twice(client)
        assert texts(task) == ['one', 'one + two']
    assert [said for said in caplog.messages if 'on_complete' in said] == [
        f'The hook on_complete of task {task["id"]} failed; the task stays as it is.'
    ] * 2


async def test_on_cancel_gets_messages_of_canceled_run() -> None:
    gates, canceled = GatedAgent(), RecordingHook()
    async with serving(gates.agent, on_cancel=canceled.hear) as client:
        task = await client.send(message('hi', contextId='c'), returnImmediately=True)
        await gates.reached('hi')
        await client.call('CancelTask', {'id': task['id']})
        error = await canceled.one()
    assert isinstance(error, RunCancelled)
    assert (error.metadata or {})['a2a']['task_id'] == task['id']
    assert (error.conversation_id, len(error.new_messages())) == ('c', 1)


async def test_on_cancel_is_called_for_run_outlasting_cancel_grace() -> None:
    gates, end, canceled = GatedAgent(), asyncio.Event(), RecordingHook()

    @asynccontextmanager
    async def slow(call: CallContext) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await end.wait()

    options: dict[str, Any] = {
        'limits': with_constants(Limits, cancel_grace=0.01),
        'on_cancel': canceled.hear,
        'deps_factory': slow,
    }
    async with serving(gates.agent, **options) as client:
        task = await client.send('hi', returnImmediately=True)
        await gates.reached('hi')
        assert state_of(await client.call('CancelTask', {'id': task['id']})) == 'CANCELED'
        assert canceled.values == []
        end.set()
        assert (await canceled.one()).metadata['a2a']['task_id'] == task['id']


async def test_on_failure_gets_error_and_correlation_id() -> None:
    failures = RecordingHook()
    agent = Agent(FunctionModel(fail))
    async with serving(agent, on_failure=failures.hear, auth=authenticate_as(Caller(id='ann'))) as client:
        task = await client.send('hi')
        failure = await failures.one()
    metadata = task['status']['message']['metadata']
    assert failure == RunFailure(
        task_id=task['id'],
        context_id=task['contextId'],
        caller=Caller(id='ann'),
        kind='internal',
        correlation_id=metadata['correlationId'],
        error=failure.error,
    )
    assert isinstance(failure.error, ZeroDivisionError)


async def test_on_failure_is_called_for_tasks_ended_by_shutdown() -> None:
    gates, failures = GatedAgent(), list[RunFailure]()
    app = to_a2a(gates.agent, workers=Workers(drain_grace=0.01), on_failure=failures.append)
    async with asyncio.timeout(LIMIT), lifespan(app):
        await Client(app).send('hi', returnImmediately=True)
        await gates.reached('hi')
    assert [(failure.kind, failure.error) for failure in failures] == [('shutdown', None)]


async def test_on_failure_is_called_for_failure_stored_late() -> None:
    failures = RecordingHook()

    class Down(WrappedQueue):
        tries = 0

        async def finish(self, claim: Any, finish: Any) -> Any:
            self.tries += 1
            if self.tries == 1:
                raise OSError
            return await super().finish(claim, finish)

    async with serving(Agent(FunctionModel(fail)), on_failure=failures.hear, workers=Workers(lease=0.3)) as client:
        app = client.a2a_app
        app.backend.queue = Down(app.backend.queue)
        with log_event('could not be stored'):
            await client.send('hi')
            failure = await failures.one()
    assert isinstance(failure.error, ZeroDivisionError)


async def test_shutdown_does_not_wait_for_hanging_hook(tmp_path: Path) -> None:
    began = asyncio.Event()

    async def on_complete(result: AgentRunResult[Any]) -> None:
        began.set()
        await asyncio.Event().wait()

    url = f'sqlite:///{tmp_path}/agent.db?synchronous=normal'
    async with serving(AGENT, backend=url, on_complete=on_complete, drain_grace=0.01) as client:
        task = await client.send('hi')
        await began.wait()
    async with serving(AGENT, backend=url) as client:
        assert await client.get_task(task['id']) == task


async def yields(result: object) -> AsyncGenerator[None]:
    yield


HOOKS = ('on_complete', 'on_cancel', 'on_failure', 'on_tool_call', 'on_tool_result')


@pytest.mark.parametrize('name', HOOKS)
async def test_invalid_hook_is_refused_at_start(name: str) -> None:
    generator: dict[str, Any] = {name: yields}
    number: dict[str, Any] = {name: 1}
    with pytest.raises(TypeError, match=rf'{name}= must be a function or an async function without yield, not .+'):
        to_a2a(AGENT, **generator)
    with pytest.raises(TypeError, match=rf'to_a2a\(\): {name} takes a function or None, not an int\.'):
        to_a2a(AGENT, **number)


@pytest.mark.parametrize('name', [*HOOKS, 'deps_factory'])
async def test_hooks_and_deps_factory_are_refused_with_custom_worker(name: str) -> None:
    worker = AgentWorker(agent=AGENT, broker=InMemoryBroker(), storage=InMemoryStorage())
    options: dict[str, Any] = {name: print}
    with pytest.raises(TypeError, match=rf'to_a2a\(\) takes no {name}'):
        to_a2a(AGENT, workers=Workers(worker=worker), **options)
