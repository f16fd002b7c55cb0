"""`a2a(ctx)`: a tool shows a status, adds an artifact and learns the caller."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, BinaryContent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.run import AgentRunResult

from pydantic_ai_a2a import Caller, CurrentTask, Messages, a2a

from ...app_client import LIMIT, message, state_of, texts
from ...serving import serving, wait_until_ended
from ..durable_handover import serving_until_handover
from ..pending_calls import answer_message, approve


def names(task: dict[str, Any]) -> list[tuple[str, str]]:
    return [(artifact['name'], artifact['parts'][0].get('text', '')) for artifact in task['artifacts']]


class Shop:
    """An agent that calls its tools in order, each in a response of its own, and then answers."""

    def __init__(self, *tools: str, **options: Any) -> None:
        self.agent: Agent[object, Any] = Agent(FunctionModel(self._model), **options)
        self._tools = tools
        self.answering = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.agent.tool(self.price)
        self.agent.tool(self.chart)
        self.agent.tool(requires_approval=True)(self.pick)
        self.calls: list[str] = []

    async def _model(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        returned = [part for sent in messages for part in sent.parts if isinstance(part, ToolReturnPart)]
        if len(returned) < len(self._tools):
            name = self._tools[len(returned)]
            return ModelResponse(parts=[ToolCallPart(name, {}, f'{name}-{len(returned)}')])
        self.answering.set()
        await self.gate.wait()
        return ModelResponse(parts=[TextPart('done')])

    async def price(self, ctx: RunContext[object]) -> str:
        self.calls.append('price')
        await a2a(ctx).status('Looking up prices')
        return '7'

    async def chart(self, ctx: RunContext[object]) -> str:
        self.calls.append('chart')
        task = a2a(ctx)
        await task.artifact('a chart', name='chart')
        await task.artifact('the last', name='sum', key='sum')
        return f'{task.task_id} {task.context_id}'

    async def pick(self, ctx: RunContext[object]) -> str:
        return 'picked'


async def test_tool_status_and_artifacts_are_streamed_in_order() -> None:
    shop = Shop('price', 'chart')
    async with serving(shop.agent) as client:
        async with client.send_streaming('go') as stream:
            events = [event.result for event in await stream.rest()]
        task = await client.get_task(events[0]['task']['id'])
    order = [
        event['statusUpdate']['status'].get('message', {'parts': [{}]})['parts'][0].get('text', 'a state')
        if 'statusUpdate' in event
        else event['artifactUpdate']['artifact']['name']
        for event in events[1:]
    ]
    shown = [name for name in order if name != 'a state']
    assert shown[:3] == ['Looking up prices', 'chart', 'sum']
    assert set(shown[3:]) == {'result'}
    assert names(task) == [('chart', 'a chart'), ('sum', 'the last'), ('result', 'done')]
    assert state_of(task) == 'COMPLETED'


async def test_caller_of_anonymous_server_is_anonymous() -> None:
    callers: list[Caller] = []
    agent: Agent[object, str] = Agent(TestModel())

    @agent.tool
    def whoami(ctx: RunContext[object]) -> None:
        callers.append(a2a(ctx).caller)

    async with serving(agent) as client:
        await client.send('Who am I?')
    assert callers == [Caller()]


async def test_tool_status_is_status_message_of_working_task() -> None:
    shop = Shop('price')
    shop.gate.clear()
    async with serving(shop.agent) as client:
        task = await client.send('go', returnImmediately=True)
        await asyncio.wait_for(shop.answering.wait(), LIMIT)
        working = await client.get_task(task['id'])
        shop.gate.set()
        done = await wait_until_ended(client, task['id'])
    assert working['status']['message']['parts'][0]['text'] == 'Looking up prices'
    assert texts(done) == ['done']


async def test_parallel_tools_add_all_their_artifacts() -> None:
    agent: Agent[object, str] = Agent(TestModel())
    for n in range(20):

        async def tool(ctx: RunContext[object], n: int = n) -> int:
            await a2a(ctx).artifact({'n': n}, name=f'part {n}')
            await a2a(ctx).status(f'part {n} is done')
            return n

        agent.tool(name=f'tool_{n}')(tool)
    async with serving(agent) as client:
        task = await client.send('go')
    assert sorted(name for name, _ in names(task)) == sorted([*(f'part {n}' for n in range(20)), 'result'])


@pytest.mark.parametrize('value', [BinaryContent(b'GIF89a', media_type='image/gif'), {'a': 1}, ['x']])
async def test_tool_artifact_may_be_file_or_data(value: object) -> None:
    agent: Agent[object, str] = Agent(TestModel())

    @agent.tool
    async def make(ctx: RunContext[object]) -> None:
        await a2a(ctx).artifact(value, name='made')

    async with serving(agent) as client:
        [artifact, _] = (await client.send('go'))['artifacts']
    part = artifact['parts'][0]
    assert (
        part.get('mediaType') == 'image/gif' if isinstance(value, BinaryContent) else part['data'] == {'result': value}
    )


async def test_paused_task_keeps_tool_artifacts() -> None:
    shop = Shop('chart', 'pick', 'chart')
    async with serving(shop.agent) as client:
        task = await client.send('go')
        assert names(task) == [('chart', 'a chart'), ('sum', 'the last')]
        done = await client.send(answer_message(task, approve('pick-1')))
    assert names(done) == [('chart', 'a chart'), ('chart', 'a chart'), ('sum', 'the last'), ('result', 'done')]


async def test_failed_task_keeps_tool_artifacts() -> None:
    shop = Shop('chart', 'unknown', retries=0)
    async with serving(shop.agent) as client:
        task = await client.send('go')
    assert (state_of(task), names(task)) == ('FAILED', [('chart', 'a chart'), ('sum', 'the last')])


async def test_run_taken_over_by_another_process_keeps_tool_artifacts(tmp_path: Path) -> None:
    first, second = Shop('chart'), Shop('chart')
    first.gate.clear()
    backend = f'sqlite:///{tmp_path}/shop.db'
    async with serving_until_handover(first.agent, backend=backend) as client:
        task = await client.send('go', returnImmediately=True)
        await first.answering.wait()
    async with serving_until_handover(second.agent, backend=backend) as client:
        done = await wait_until_ended(client, task['id'])
    assert (first.calls, second.calls) == (['chart'], [])
    assert names(done) == [('chart', 'a chart'), ('sum', 'the last'), ('result', 'done')]


async def test_direct_reply_includes_tool_artifacts() -> None:
    async with serving(Shop('price', 'chart').agent, messages=Messages(reply='message')) as client:
        reply = await client.call('SendMessage', {'message': message('go')})
    assert [part['text'] for part in reply['message']['parts']] == ['a chart', 'the last', 'done']


async def test_tool_status_and_artifacts_are_ignored_outside_a2a() -> None:
    seen: list[CurrentTask] = []
    shop = Shop('price', 'chart')

    @shop.agent.output_validator
    def look(ctx: RunContext[object], output: str) -> str:
        seen.append(a2a(ctx))
        return output

    result = await shop.agent.run('go')
    assert (result.output, shop.calls) == ('done', ['price', 'chart'])
    assert [(task.task_id, task.context_id, task.caller) for task in seen] == [('', '', Caller())]


async def test_nested_agent_adds_no_artifacts_to_task() -> None:
    inner, outer = Shop('chart'), Agent[object, str](TestModel())

    @outer.tool
    async def delegate(ctx: RunContext[object]) -> str:
        return (await inner.agent.run('go')).output

    async with serving(outer) as client:
        task = await client.send('go')
    assert [name for name, _ in names(task)] == ['result']


async def test_on_complete_hook_knows_its_task() -> None:
    tasks: list[str] = []

    def completed(result: AgentRunResult[Any]) -> None:
        tasks.append(a2a(result).task_id)

    async with serving(Shop().agent, on_complete=completed) as client:
        task = await client.send(message('go'))
    assert tasks == [task['id']]
