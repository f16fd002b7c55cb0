"""The end of a server: what runs may finish, what cannot is told so, nothing new begins; and what comes after."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import pytest
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import Limits, Messages, RunFailure, Workers, to_a2a
from pydantic_ai_a2a.server.store.ports import Claim, Finish, TaskQueue
from pydantic_ai_a2a.store import MemoryBackend, WrappedQueue

from ...agents import GatedAgent, echo_prompts, scripted_model
from ...app_client import LIMIT, Client, Event, RpcError, lifespan, message, state_of, texts
from ...constants import with_constants
from ...dialects import in_no_version
from ...serving import list_tasks, wait_until_ended
from ..promised_behaviours import covers
from ..refusals import error_of_answer, send_body

ROW = 'SIGTERM'


@asynccontextmanager
async def stopping(app: Any) -> AsyncGenerator[tuple[Client, AsyncExitStack]]:
    """A client of an app, and the stack whose closing shuts the app down."""
    async with AsyncExitStack() as stack, asyncio.timeout(LIMIT):
        await stack.enter_async_context(lifespan(app))
        yield Client(app), stack


async def draining(client: Client) -> None:
    """Wait until a shutdown that has been asked for has begun."""
    while (await client.get('/health/ready')).status == 200:
        pass


def last_state(events: list[Event]) -> str:
    return events[-1].result['statusUpdate']['status']['state']


@covers(ROW)
async def test_drain_lets_running_task_finish_and_answers_its_clients() -> None:
    gates = GatedAgent()
    async with stopping(to_a2a(gates.agent)) as (client, stack):
        sending = asyncio.ensure_future(client.send('hi'))
        await gates.reached('hi')
        [task] = await list_tasks(client)
        async with client.subscribe(task['id']) as stream:
            await anext(stream)
            shutdown = asyncio.ensure_future(stack.aclose())
            await draining(client)
            assert (sending.done(), shutdown.done()) == (False, False)
            gates.open('hi')
            assert last_state(await stream.rest()) == 'TASK_STATE_COMPLETED'
        assert texts(await sending) == ['hi']
        await shutdown


class LateAnswers(WrappedQueue):
    """Stores the end of a run, and answers after the test allows it."""

    def __init__(self, inner: TaskQueue) -> None:
        super().__init__(inner)
        self.stored, self.answers = asyncio.Event(), asyncio.Event()

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        following = await super().finish(claim, finish)
        self.stored.set()
        await self.answers.wait()
        return following


async def test_drain_waits_for_hook_of_run_that_ends_meanwhile() -> None:
    failures: list[str] = []

    async def slow_hook(failure: RunFailure) -> None:
        for _ in range(100):
            await asyncio.sleep(0)
        failures.append(failure.kind)

    backend = MemoryBackend('agent', reader_lag=10**6)
    queue = backend.queue = LateAnswers(backend.queue)
    app = to_a2a(Agent(scripted_model(ValueError('secret'))), backend=backend, on_failure=slow_hook)
    async with stopping(app) as (client, stack):
        sending = asyncio.ensure_future(client.send('hi'))
        await queue.stored.wait()
        shutdown = asyncio.ensure_future(stack.aclose())
        await draining(client)
        queue.answers.set()
        await shutdown
        await sending
    assert failures == ['internal']


@covers(ROW)
async def test_drain_refuses_messages_with_503_but_allows_cancel() -> None:
    gates = GatedAgent()
    async with stopping(to_a2a(gates.agent)) as (client, stack):
        task = await client.send('hi', returnImmediately=True)
        await gates.reached('hi')
        shutdown = asyncio.ensure_future(stack.aclose())
        await draining(client)
        for refused in (send_body(), send_body(taskId=task['id'])):
            answer = await client.post(refused)
            error = error_of_answer(answer, status=503)
            assert (error.code, answer.headers['retry-after']) == (-32000, '1')
        with pytest.raises(RpcError) as refused_stream:
            async with client.send_streaming():
                raise AssertionError('a stream was opened')
        assert refused_stream.value.code == -32000
        assert len(await list_tasks(client)) == 1
        assert state_of(await client.call('CancelTask', {'id': task['id']})) == 'CANCELED'
        await shutdown
    assert gates.began == ['hi']


@covers(ROW)
async def test_task_running_past_drain_grace_fails_with_shutdown() -> None:
    gates = GatedAgent()
    async with stopping(to_a2a(gates.agent, workers=Workers(drain_grace=0.01))) as (client, stack):
        sending = asyncio.ensure_future(client.send('hi'))
        await gates.reached('hi')
        [task] = await list_tasks(client)
        async with client.subscribe(task['id']) as stream:
            await anext(stream)
            await stack.aclose()
            events = await stream.rest()
        failed = await sending
    assert last_state(events) == 'TASK_STATE_FAILED'
    assert state_of(failed) == 'FAILED'
    assert failed['status']['message']['metadata']['failure'] == 'shutdown'
    assert failed['status']['message']['parts'][0]['text'] == 'The server shut down before the task was done.'


@covers(ROW)
async def test_streams_of_handed_over_task_end_with_drain(tmp_path: Path) -> None:
    gates = GatedAgent()
    app = to_a2a(
        gates.agent,
        backend=f'sqlite:///{tmp_path}/agent.db?synchronous=normal',
        workers=Workers(drain_grace=0.01),
        limits=with_constants(Limits, keep_alive=3600),
    )
    async with stopping(app) as (client, stack):
        task = await client.send('hi', returnImmediately=True)
        await gates.reached('hi')
        async with client.subscribe(task['id']) as stream:
            await anext(stream)
            # As in a server, which ends the lifespan only after all connections have ended.
            app.hosting.drain(asyncio.get_running_loop())
            assert await stream.rest() == []
        await stack.aclose()
    async with stopping(app) as (client, stack):
        gates.open('hi')
        assert texts(await wait_until_ended(client, task['id'])) == ['hi']
        await stack.aclose()


@covers(ROW)
async def test_queued_tasks_fail_with_shutdown_without_starting() -> None:
    gates = GatedAgent()
    async with stopping(to_a2a(gates.agent, workers=Workers(running=1))) as (client, stack):
        running = asyncio.ensure_future(client.send(message('running', contextId='c')))
        await gates.reached('running')
        behind = asyncio.ensure_future(client.send(message('behind', contextId='c')))
        async with client.send_streaming('elsewhere') as stream:
            await anext(stream)
            shutdown = asyncio.ensure_future(stack.aclose())
            events = await stream.rest()
            assert not shutdown.done()
            gates.open('running', 'behind', 'elsewhere')
            await shutdown
        tasks = await asyncio.gather(running, behind)
    assert last_state(events) == 'TASK_STATE_FAILED'
    assert [state_of(task) for task in tasks] == ['COMPLETED', 'FAILED']
    assert tasks[1]['status']['message']['metadata']['failure'] == 'shutdown'
    assert gates.began == ['running']


@in_no_version('the run holds the server up for five seconds, in each version')
@covers(ROW)
async def test_run_ignoring_cancellation_delays_shutdown_for_bounded_time() -> None:
    running, release = asyncio.Event(), asyncio.Event()
    agent = Agent(TestModel(), name='agent')

    @agent.tool_plain
    async def stubborn() -> None:
        running.set()
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()

    async with stopping(to_a2a(agent, workers=Workers(drain_grace=0.01))) as (client, stack):
        sending = asyncio.ensure_future(client.send())
        await running.wait()
        await stack.aclose()
        task = await sending
        release.set()
    assert state_of(task) == 'FAILED'
    assert task['status']['message']['metadata']['failure'] == 'shutdown'


@covers(ROW)
async def test_app_serves_after_lifespan_restart() -> None:
    app = to_a2a(Agent(FunctionModel(echo_prompts)))
    for prompt in ('one', 'two'):
        async with lifespan(app):
            first = await Client(app).send(message(prompt, contextId='c'))
    assert texts(first) == ['one + two']
    assert texts(await Client(app).send(message('three', contextId='c'))) == ['one + two + three']


async def test_message_stored_after_shutdown_runs_at_next_start() -> None:
    asked, decide = asyncio.Event(), asyncio.Event()

    async def reply(_: Any) -> Literal['task']:
        asked.set()
        await decide.wait()
        return 'task'

    app = to_a2a(Agent(TestModel()), messages=Messages(reply=reply))
    async with stopping(app) as (client, stack):
        sending = asyncio.ensure_future(client.send(returnImmediately=True))
        await asked.wait()
        await stack.aclose()
        decide.set()
        task = await sending
        assert state_of(task) == 'SUBMITTED'
        async with lifespan(app):
            assert state_of(await wait_until_ended(client, task['id'])) == 'COMPLETED'


@covers(ROW)
async def test_sigterm_starts_drain_and_calls_previous_handler() -> None:
    gates = GatedAgent()
    got: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        got.append(number)

    before = signal.signal(signal.SIGTERM, handler)
    try:
        async with stopping(to_a2a(gates.agent)) as (client, stack):
            sending = asyncio.ensure_future(client.send('hi'))
            await gates.reached('hi')
            signal.raise_signal(signal.SIGTERM)
            await draining(client)
            assert (await client.post(send_body())).status == 503
            gates.open('hi')
            assert texts(await sending) == ['hi']
            await stack.aclose()
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)
    assert got == [signal.SIGTERM]


@covers(ROW)
async def test_default_sigterm_handler_stays_installed() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        async with lifespan(to_a2a(Agent(TestModel()))):
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


@covers(ROW)
def test_sigterm_handler_installed_after_start_is_kept() -> None:
    got: list[str] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: got.append('first'))

    async def live() -> None:
        async with lifespan(to_a2a(Agent(TestModel()))):
            chained = signal.getsignal(signal.SIGTERM)
            assert callable(chained)
            signal.signal(signal.SIGTERM, lambda number, frame: (got.append('last'), chained(number, frame)))

    try:
        asyncio.run(live())
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert got == ['last', 'first']


class Unreachable(FunctionToolset[object]):
    """Tools on a server that is down."""

    async def __aenter__(self) -> Unreachable:
        raise ConnectionError


@covers(ROW)
async def test_server_with_unreachable_toolset_still_stops(caplog: pytest.LogCaptureFixture) -> None:
    async with lifespan(to_a2a(Agent(TestModel(), toolsets=[Unreachable()]))):
        assert 'cannot be started' in caplog.text
