"""Texts that UTF-8 cannot express, such as half of an emoji, and objects that JSON cannot: the task still ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ToolReturn
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from pydantic_ai_a2a import A2AClient, Progress, RemoteAgent, Results, to_a2a

from ...agents import user_prompts
from ...app_client import Client, message, state_of, texts
from ...serving import each_backend, serving
from ..pending_calls import answer_message, approve

HALF = 'ab\ud83d'
MENDED = 'ab\ufffd'
PAIR = 'a\ud83d\ude00'
SHOWN = Progress(thinking=True, tools=True)


class Order(BaseModel):
    item: str


def _parts(messages: list[ModelMessage]) -> list[Any]:
    prompt, returned = user_prompts(messages)[-1], any(isinstance(part, ToolReturnPart) for part in messages[-1].parts)
    if prompt == 'think':
        return [ThinkingPart(HALF), TextPart('done')]
    if prompt == 'pair':
        return [TextPart(PAIR)]
    if returned:
        return [TextPart('done')]
    if prompt in ('find', 'tell', 'delete'):
        return [ToolCallPart(prompt, {}, 'c1')]
    if prompt == 'order':
        return [ToolCallPart('final_result', {}, 'c1')]
    return [TextPart(HALF)]


def _answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=_parts(messages))


async def _stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    for part in _parts(messages):
        if isinstance(part, TextPart):
            for character in part.content:
                yield character
        elif isinstance(part, ToolCallPart):
            yield {0: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}


def agent_of(*output: Any) -> Agent[Any, Any]:
    agent: Agent[Any, Any] = Agent(
        FunctionModel(_answer, stream_function=_stream), name='agent', output_type=[*output] or str
    )

    @agent.tool_plain
    def find() -> str:
        return HALF

    @agent.tool_plain
    def tell() -> ToolReturn:
        return ToolReturn('found', metadata={'source': object(), 'note': HALF})

    @agent.tool_plain(requires_approval=True)
    def delete() -> str:
        return 'deleted'

    return agent


EACH_STORE = each_backend('memory', 'sqlite', 'postgres')


async def _ended_task(client: Client, sent: Any, *, watched: bool) -> dict[str, Any]:
    if not watched:
        return await client.send(sent)
    async with client.send_streaming(sent) as stream:
        events = await stream.rest()
    return await client.get_task(events[0].result['task']['id'])


@EACH_STORE
@pytest.mark.parametrize('watched', [False, True], ids=['send', 'stream'])
async def test_lone_surrogates_are_replaced_and_task_completes(
    subtests: pytest.Subtests, watched: bool, backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    for prompt in ['text', 'pair', 'think', 'find', 'tell', 'delete']:
        with subtests.test(prompt):
            caplog.clear()
            async with serving(agent_of(), backend=backend, results=Results(progress=SHOWN)) as client:
                task = await _ended_task(client, prompt, watched=watched)
                if prompt == 'delete':
                    task = await _ended_task(client, answer_message(task, approve()), watched=watched)
                assert state_of(task) == 'COMPLETED'
                assert texts(task) == [{'text': MENDED, 'pair': 'a\U0001f600'}.get(prompt, 'done')]
                again = await _ended_task(client, message('find', contextId=task['contextId']), watched=watched)
                assert state_of(again) == 'COMPLETED'
            assert ('object of the type object' in caplog.text) is (prompt == 'tell')


@EACH_STORE
async def test_lone_surrogates_in_structured_output_are_replaced(backend: str) -> None:
    def order() -> Order:
        return Order(item=HALF)

    async with serving(agent_of(order), backend=backend) as client:
        task = await client.send('order')
        assert [part['data'] for part in task['artifacts'][0]['parts']] == [{'result': {'item': MENDED}}]


async def test_client_replaces_lone_surrogates_in_messages() -> None:
    heard: list[str] = []

    def echo(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        heard.append(user_prompts(messages)[-1])
        return ModelResponse(parts=[TextPart('heard')])

    app = to_a2a(Agent(FunctionModel(echo)))
    async with A2AClient(app) as client:
        await client.send(HALF)
        await RemoteAgent(app).run(HALF)
    assert heard == [MENDED] * 2
