"""How many tasks run at once, whom a send waits for, and in whose name a run runs."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import Limits, Workers

from ...agents import GatedAgent, echo_prompts
from ...app_client import Client, message, state_of, texts
from ...serving import list_tasks, serving, wait_until_ended
from ..promised_behaviours import covers
from ..refusals import error_of_answer, send_body


@covers('five 1 s tasks at once')
async def test_quick_task_completes_while_slow_tasks_run() -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        running = [asyncio.ensure_future(client.send(f'slow {n}')) for n in range(5)]
        await gates.reached(*(f'slow {n}' for n in range(5)))
        gates.open('quick')
        quick = await client.send('quick')
        assert (state_of(quick), [each.done() for each in running]) == ('COMPLETED', [False] * 5)
        gates.open(*(f'slow {n}' for n in range(5)))
        await asyncio.gather(*running)


@covers('five 1 s tasks at once')
@pytest.mark.parametrize('limit', [1, 2, 5])
async def test_running_limit_bounds_concurrent_runs(limit: int) -> None:
    barrier = asyncio.Barrier(limit)
    running: set[int] = set()
    most = 0

    async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        nonlocal most
        running.add(id(messages))
        most = max(most, len(running))
        await barrier.wait()
        running.discard(id(messages))
        return ModelResponse(parts=[TextPart('done')])

    async with serving(Agent(FunctionModel(answer)), workers=Workers(running=limit)) as client:
        tasks = await asyncio.gather(*(client.send() for _ in range(10)))
    assert [state_of(task) for task in tasks] == ['COMPLETED'] * 10
    assert most == limit


async def test_queued_tasks_start_in_order_of_arrival() -> None:
    gates = GatedAgent()
    names = [f'task {n}' for n in range(20)]
    gates.open(*names[1:])
    async with serving(gates.agent, workers=Workers(running=1)) as client:
        tasks = [await client.send(name, returnImmediately=True) for name in names]
        gates.open(names[0])
        for task in tasks:
            await wait_until_ended(client, task['id'])
    assert gates.began == names


async def test_task_blocked_by_its_context_takes_no_worker_slot() -> None:
    gates = GatedAgent()
    async with serving(gates.agent, workers=Workers(running=2)) as client:
        first = asyncio.ensure_future(client.send(message('first', contextId='c')))
        await gates.reached('first')
        behind = asyncio.ensure_future(client.send(message('behind', contextId='c')))
        elsewhere = asyncio.ensure_future(client.send('elsewhere'))
        await gates.reached('elsewhere')
        gates.open('first', 'behind', 'elsewhere')
        await asyncio.gather(first, behind, elsewhere)


async def test_full_queue_refuses_message_without_storing_task() -> None:
    gates = GatedAgent()
    async with serving(gates.agent, limits=Limits(queue=2), workers=Workers(running=1)) as client:
        running = asyncio.ensure_future(client.send('running'))
        await gates.reached('running')
        for name in ('one', 'two'):
            await client.send(name, returnImmediately=True)
        body = send_body(messageId='refused-at-first-only')
        answer = await client.post(body)
        assert (answer.headers['retry-after'], error_of_answer(answer, status=503).code) == ('1', -32000)
        assert len(await list_tasks(client)) == 3
        gates.open('running', 'one', 'two', 'hello')
        await running
        await gates.reached('one')
        again = await client.post(body)
    assert state_of(client.dialect.result('SendMessage', again.json)['task']) == 'COMPLETED'


BLOCKING = 'blocking (1.0 default) / `returnImmediately` / 0.3 `blocking`'


@covers(BLOCKING)
@pytest.mark.parametrize('configuration', [{}, {'returnImmediately': False}])
async def test_send_blocks_until_task_ends(configuration: dict[str, Any]) -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        sending = asyncio.ensure_future(client.send('hi', **configuration))
        await gates.reached('hi')
        assert not sending.done()
        gates.open('hi')
        task = await sending
    assert (state_of(task), texts(task)) == ('COMPLETED', ['hi'])


@covers(BLOCKING)
async def test_return_immediately_answers_with_unfinished_task() -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        task = await client.send('hi', returnImmediately=True)
        assert state_of(task) in ('SUBMITTED', 'WORKING')
        assert [part['text'] for each in task['history'] for part in each['parts']] == ['hi']
        assert 'artifacts' not in task
        async with client.subscribe(task['id']) as stream:
            gates.open('hi')
            await stream.until('TASK_STATE_COMPLETED')
        assert texts(await client.get_task(task['id'])) == ['hi']


@covers(BLOCKING)
async def test_blocking_send_returns_after_max_wait_and_task_continues() -> None:
    gates = GatedAgent()
    async with serving(gates.agent, limits=Limits(max_wait=0.01)) as client:
        task = await client.send('hi')
        assert state_of(task) in ('SUBMITTED', 'WORKING')
        async with client.subscribe(task['id']) as stream:
            gates.open('hi')
            await stream.until('TASK_STATE_COMPLETED')
        assert texts(await client.get_task(task['id'])) == ['hi']


@covers('`historyLength` 1, 0')
async def test_history_length_limits_response_but_not_stored_history() -> None:
    def said(task: dict[str, Any]) -> list[str] | None:
        messages = task.get('history')
        return None if messages is None else [part['text'] for each in messages for part in each['parts']]

    lengths = (0, 1, 2, 50)
    async with serving(Agent(FunctionModel(echo_prompts))) as client:
        sent = [await client.send('hi', historyLength=length) for length in lengths]
        whole = await client.send('hi')
        none = None if client.dialect.zero_history_is_none else ['hi', 'hi']
        assert [said(task) for task in sent] == [none, ['hi'], ['hi', 'hi'], ['hi', 'hi']]
        assert said(whole) == ['hi', 'hi']
        got = [await client.get_task(whole['id'], historyLength=length) for length in lengths]
        assert [said(task) for task in got] == [said(task) for task in sent]
        assert [each['role'] for each in got[1]['history']] == ['ROLE_AGENT']
        assert [said(await client.get_task(task['id'])) for task in sent] == [['hi', 'hi']] * 4


@covers('`historyLength` 1, 0')
async def test_history_length_limits_first_stream_event() -> None:
    async with serving(Agent(FunctionModel(echo_prompts))) as client:
        for length, present in ((0, not client.dialect.zero_history_is_none), (1, True), (None, True)):
            configuration = {} if length is None else {'historyLength': length}
            async with client.send_streaming('hi', **configuration) as stream:
                first = await anext(stream)
                await stream.rest()
            assert ('history' in first.result['task']) is present


async def test_run_inherits_context_variables_of_its_sender() -> None:
    user: ContextVar[str] = ContextVar('user', default='nobody')
    barrier = asyncio.Barrier(2)
    agent = Agent(TestModel(call_tools=['who']))

    @agent.tool_plain
    async def who() -> str:
        await barrier.wait()
        return user.get()

    async def send_as(client: Client, name: str) -> dict[str, Any]:
        user.set(name)
        return await client.send()

    async with serving(agent, workers=Workers(running=2)) as client:
        names = [f'user {n}' for n in range(6)]  # more than can start at once
        tasks = await asyncio.gather(*(asyncio.create_task(send_as(client, name)) for name in names))
    assert [texts(task) for task in tasks] == [[f'{{"who":"{name}"}}'] for name in names]


async def test_agent_override_applies_to_tasks_sent_inside_override() -> None:
    agent = Agent(TestModel(custom_output_text='original'))
    async with serving(agent) as client:
        with agent.override(model=TestModel(custom_output_text='overridden')):
            task = await client.send()
    assert texts(task) == ['overridden']
