"""Cancelling: the run and its async tools have stopped when the answer comes, and leave nothing in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import Hooks
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import Limits, Workers
from pydantic_ai_a2a.server.audit import LOGGER
from pydantic_ai_a2a.server.store.ports import Claim, Finish, TaskQueue
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend

from ...agents import GatedAgent, echo_prompts, user_prompts
from ...app_client import Client, RpcError, message, state_of, texts
from ...constants import with_constants
from ...logs import audit_records
from ...serving import list_tasks, serving, wait_until_ended
from ..faulty_queues import CancelCounter
from ..promised_behaviours import covers

ROW = 'cancel a running task'


async def cancel(client: Client, task_id: str) -> dict[str, Any]:
    return await client.call('CancelTask', {'id': task_id})


@covers(ROW)
async def test_running_tool_is_canceled_before_cancel_is_answered() -> None:
    running, order = asyncio.Event(), list[str]()
    agent = Agent(TestModel())

    @agent.tool_plain
    async def wait() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            order.append('tool')
            raise

    async with serving(agent) as client, client.send_streaming() as stream:
        task = (await anext(stream)).result['task']
        await running.wait()
        canceled = await cancel(client, task['id'])
        order.append('answer')
        events = await stream.rest()
        assert state_of(await client.get_task(task['id'])) == 'CANCELED'
    assert order == ['tool', 'answer']
    assert (canceled['id'], state_of(canceled)) == (task['id'], 'CANCELED')
    assert events[-1].result['statusUpdate']['status']['state'] == 'TASK_STATE_CANCELED'


@covers(ROW)
async def test_blocking_send_returns_when_task_is_canceled() -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        sending = asyncio.ensure_future(client.send('hi'))
        await gates.reached('hi')
        [task] = await list_tasks(client)
        await cancel(client, task['id'])
        assert state_of(await sending) == 'CANCELED'


@covers(ROW)
async def test_context_keeps_finished_tool_results_of_canceled_run() -> None:
    running = asyncio.Event()

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if user_prompts(messages)[-1] != 'work':
            return echo_prompts(messages, info)
        returned = [part.tool_name for each in messages for part in each.parts if isinstance(part, ToolReturnPart)]
        return ModelResponse(parts=[ToolCallPart('slow' if returned else 'quick', {})])

    agent = Agent(FunctionModel(answer))

    @agent.tool_plain
    async def quick() -> str:
        return 'quick is done'

    @agent.tool_plain
    async def slow() -> None:
        running.set()
        await asyncio.Event().wait()

    async with serving(agent) as client:
        task = await client.send('work', returnImmediately=True)
        await running.wait()
        await cancel(client, task['id'])
        following = await client.send(message('and then?', contextId=task['contextId']))
        kept = await client.messages_of(task['contextId'])
    assert texts(following) == ['work + and then?']
    returned = [part.content for each in kept for part in each.parts if isinstance(part, ToolReturnPart)]
    assert 'quick is done' in returned


@covers(ROW)
async def test_canceled_queued_task_never_starts() -> None:
    gates = GatedAgent()
    async with serving(gates.agent, workers=Workers(running=1)) as client:
        running = await client.send('running', returnImmediately=True)
        await gates.reached('running')
        queued = await client.send('queued', returnImmediately=True)
        assert state_of(await cancel(client, queued['id'])) == 'CANCELED'
        gates.open('running', 'queued', 'after')
        await wait_until_ended(client, running['id'])
        await client.send('after')
        assert state_of(await client.get_task(queued['id'])) == 'CANCELED'
    assert gates.began == ['running', 'after']


@covers(ROW)
async def test_canceled_task_waiting_for_its_context_never_starts() -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        first = await client.send('first', returnImmediately=True)
        await gates.reached('first')
        later = [
            await client.send(message(text, contextId=first['contextId']), returnImmediately=True)
            for text in ('second', 'third')
        ]
        await cancel(client, later[0]['id'])
        gates.open('first', 'third')
        assert texts(await wait_until_ended(client, later[1]['id'])) == ['first + third']
    assert gates.began == ['first', 'third']


@covers(ROW)
async def test_canceled_task_frees_its_context_and_worker_slot() -> None:
    gates = GatedAgent()
    gates.open('second', 'elsewhere')
    async with serving(gates.agent, workers=Workers(running=1)) as client:
        first = await client.send('first', returnImmediately=True)
        await gates.reached('first')
        second = await client.send(message('second', contextId=first['contextId']), returnImmediately=True)
        elsewhere = await client.send('elsewhere', returnImmediately=True)
        await cancel(client, first['id'])
        assert texts(await wait_until_ended(client, second['id'])) == ['first + second']
        assert texts(await wait_until_ended(client, elsewhere['id'])) == ['elsewhere']


@covers(ROW)
async def test_ended_or_unknown_task_cannot_be_canceled() -> None:
    gates = GatedAgent()
    gates.open('done')
    async with serving(gates.agent) as client:
        done = await client.send('done')
        canceled = await client.send('canceled', returnImmediately=True)
        await cancel(client, canceled['id'])
        for task in (done, canceled):
            with pytest.raises(RpcError) as refused:
                await cancel(client, task['id'])
            assert (refused.value.code, refused.value.reason) == (-32002, 'TASK_NOT_CANCELABLE')
        with pytest.raises(RpcError) as refused:
            await cancel(client, 'nowhere')
        assert refused.value.code == -32001
        assert state_of(await client.get_task(done['id'])) == 'COMPLETED'


@covers(ROW)
async def test_run_ignoring_cancel_is_abandoned_and_late_result_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    running, swallowed, release, stopped = (asyncio.Event() for _ in range(4))

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if user_prompts(messages)[-1] != 'stubborn':
            return echo_prompts(messages, info)
        return ModelResponse(parts=[ToolCallPart('wait', {})])

    agent = Agent(FunctionModel(answer))

    @agent.tool_plain
    async def wait() -> None:
        running.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        swallowed.set()
        await release.wait()
        stopped.set()

    async with serving(agent, limits=with_constants(Limits, cancel_grace=0.01)) as client:
        async with client.send_streaming('stubborn') as stream:
            task = (await anext(stream)).result['task']
            await running.wait()
            assert state_of(await cancel(client, task['id'])) == 'CANCELED'
            await swallowed.wait()  # beside a load, the grace is shorter than the way of the cancel
            assert not stopped.is_set()
            await stream.until('TASK_STATE_CANCELED')
        following = await client.send(message('next', contextId=task['contextId']))
        assert texts(following) == ['next']
        release.set()
        await stopped.wait()
        assert texts(await client.send(message('after', contextId=task['contextId']))) == ['next + after']
        late = await client.get_task(task['id'])
    assert (state_of(late), texts(late)) == ('CANCELED', [])
    assert f'Task {task["id"]} was taken over or has ended; its late result is dropped.' in caplog.messages


@covers(ROW)
@pytest.mark.parametrize('place', ['model', 'dependencies'])
async def test_concurrent_cancels_of_same_task_are_both_answered(backend: MemoryBackend, place: str) -> None:
    running, canceling, release = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hang(*_: object) -> ModelResponse:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            canceling.set()
            await release.wait()
        raise AssertionError('never')

    queue = backend.queue = CancelCounter(backend.queue)
    options: dict[str, Any] = {'deps_factory': hang} if place == 'dependencies' else {}
    async with serving(Agent(FunctionModel(hang)), backend=backend, **options) as client:
        task = await client.send(returnImmediately=True)
        await running.wait()
        first = asyncio.ensure_future(cancel(client, task['id']))
        await canceling.wait()
        second = asyncio.ensure_future(cancel(client, task['id']))
        await queue.taken(2)
        assert (first.done(), second.done()) == (False, False)
        release.set()
        assert [state_of(each) for each in await asyncio.gather(first, second)] == ['CANCELED'] * 2


class SlowToFinish(CancelCounter):
    """Takes its time to store the first end of a run."""

    def __init__(self, inner: TaskQueue) -> None:
        super().__init__(inner)
        self.finishing, self.go = asyncio.Event(), asyncio.Event()

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        self.finishing.set()
        await self.go.wait()
        return await super().finish(claim, finish)


@covers(ROW)
@pytest.mark.parametrize('more', [False, True])
async def test_cancel_after_completed_run_stops_only_next_run(
    backend: MemoryBackend, more: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level('INFO', LOGGER)
    gates = GatedAgent()
    gates.open('one', 'two')
    queue = backend.queue = SlowToFinish(backend.queue)
    async with serving(gates.agent, backend=backend) as client:
        task = await client.send('one', returnImmediately=True)
        await queue.finishing.wait()
        if more:
            await client.send(message('two', taskId=task['id']), returnImmediately=True)
        canceling = asyncio.ensure_future(cancel(client, task['id']))
        await queue.taken()
        queue.go.set()
        if more:
            assert state_of(await canceling) == 'CANCELED'
        else:
            with pytest.raises(RpcError) as refused:
                await canceling
            assert refused.value.code == -32002
        after = await client.get_task(task['id'])
    assert (state_of(after), texts(after)) == ('CANCELED' if more else 'COMPLETED', ['one'])
    assert gates.began == ['one']
    assert [record['event'] for record in audit_records(caplog)] == (['task-canceled'] if more else [])


@covers(ROW)
async def test_cancel_drops_queued_messages_and_ends_their_streams() -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        task = await client.send('one', returnImmediately=True)
        await gates.reached('one')
        async with client.send_streaming(message('two', taskId=task['id'])) as second:
            assert state_of((await anext(second)).result['task']) == 'WORKING'
            assert state_of(await cancel(client, task['id'])) == 'CANCELED'
            await second.until('TASK_STATE_CANCELED')
    assert gates.began == ['one']


# --- cancels in the first moments of a run ----------------------------------------------------------------------------


TURNS = 60
"""Turns of the event loop of a run, from its start to its end at least."""


async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart('hello')])


async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
    yield 'hel'
    yield 'lo'


async def cancel_after(client: Client, turns: int, *, watched: bool) -> None:
    async with client.send_streaming() as reader:
        task_id = (await anext(reader)).result['task']['id']
        if watched:
            for _ in range(turns):
                await asyncio.sleep(0)
            await cancel_or_miss(client, task_id)
            await reader.rest()
    if not watched:
        for _ in range(turns):
            await asyncio.sleep(0)
        await cancel_or_miss(client, task_id)
    assert state_of(await wait_until_ended(client, task_id)) in ('CANCELED', 'COMPLETED')


async def cancel_or_miss(client: Client, task_id: str) -> None:
    with suppress(RpcError):  # the task has ended
        await cancel(client, task_id)


async def wait_for_tasks_since(before: set[asyncio.Task[Any]]) -> None:
    """Wait for the ends of all asyncio tasks that have begun since. A task that is left behind never ends."""
    while left := asyncio.all_tasks() - before:
        await asyncio.wait(left)


@pytest.mark.parametrize('watched', [False, True])
async def test_early_cancel_leaks_no_asyncio_task(watched: bool) -> None:
    async with serving(Agent(FunctionModel(answer, stream_function=stream))) as client:
        await client.send()
        before = asyncio.all_tasks()
        for turns in range(TURNS):
            await cancel_after(client, turns, watched=watched)
        await wait_for_tasks_since(before)


def block_after(turns: int) -> None:
    """Hold up the event loop some turns later, as a busy machine does."""
    if turns:
        asyncio.get_running_loop().call_soon(block_after, turns - 1)
    else:
        time.sleep(0.15)


async def test_cancel_with_blocked_event_loop_leaks_no_asyncio_task() -> None:
    async def busy(ctx: RunContext[object]) -> None:
        entered.set()
        for _ in range(20):  # for the cancel
            await asyncio.sleep(0)
        block_after(next(turns))

    entered, turns = asyncio.Event(), count()
    agent = Agent(FunctionModel(answer), capabilities=[Hooks(before_run=busy)])
    async with serving(agent) as client:
        await client.send()
        before = asyncio.all_tasks()
        for _ in range(7):
            entered.clear()
            task = await client.send(returnImmediately=True)
            await entered.wait()
            await cancel_or_miss(client, task['id'])
        await wait_for_tasks_since(before)


async def test_concurrent_early_cancels_leak_no_asyncio_task() -> None:
    async with serving(Agent(FunctionModel(answer))) as client:
        await client.send()
        before = asyncio.all_tasks()
        for turns in range(TURNS):
            task = await client.send(returnImmediately=True)
            for _ in range(turns):
                await asyncio.sleep(0)
            await asyncio.gather(*(cancel_or_miss(client, task['id']) for _ in range(3)))
        await wait_for_tasks_since(before)
