"""Tasks that a message refers to: what of them reaches the model, and that nobody learns of those of others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, StructuredContent
from pydantic_ai.messages import (
    FilePart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.profiles import ModelProfile
from starlette.requests import Request

from pydantic_ai_a2a import Caller, Limits, Messages

from ...app_client import RpcError, message, state_of, texts
from ...constants import with_constants
from ...serving import serving, wait_until_ended

PNG = b'\x89PNG\r\n\x1a\n'


class Plan(BaseModel):
    days: int


def read(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """A model that answers with what the newest prompt holds; some prompts with something else."""
    request = messages[-1]
    assert isinstance(request, ModelRequest)
    [prompt] = [part.content for part in request.parts if isinstance(part, UserPromptPart)]
    if prompt == 'fail':
        raise ValueError
    if prompt == 'draw':
        return ModelResponse(parts=[TextPart('A line.'), FilePart(BinaryContent(PNG, media_type='image/png'))])
    if prompt == 'plan':
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {'days': 2})])
    content = [prompt] if isinstance(prompt, str) else map(shown, prompt)
    return ModelResponse(parts=[TextPart(json.dumps([*content]))])


def shown(item: Any) -> Any:
    if isinstance(item, StructuredContent):
        return item.value
    return item.media_type if isinstance(item, BinaryContent) else item


def frame(task_id: str, *content: Any) -> list[Any]:
    return [
        f'-----BEGIN ARTIFACTS task="{task_id}"-----',
        *content,
        f'-----END ARTIFACTS task="{task_id}"-----',
    ]


AGENT = Agent(FunctionModel(read))


def by_name(request: Request) -> Caller:
    return Caller(id=request.headers['x-caller'])


async def test_artifacts_of_referenced_tasks_reach_model() -> None:
    async with serving(AGENT) as client:
        one, two = await client.send('one'), await client.send('draw')
        refers = message('What is it?', referenceTaskIds=[one['id'], two['id'], one['id']])
        answer = json.loads(texts(await client.send(refers))[0])
    assert answer == [
        *frame(one['id'], '["one"]'),
        *frame(two['id'], 'A line.', 'image/png'),
        'What is it?',
    ]


async def test_referenced_data_reaches_model_before_message_parts() -> None:
    async with serving(Agent(FunctionModel(read), output_type=[str, Plan])) as client:
        task = await client.send('plan')
        parts = [{'text': 'Longer.'}, {'data': [1]}]
        answer = json.loads(texts(await client.send(message(parts=parts, referenceTaskIds=[task['id']])))[0])
    assert answer == [*frame(task['id'], {'result': {'days': 2}}), 'Longer.', [1]]


async def test_reference_to_foreign_task_is_ignored_like_unknown() -> None:
    async with serving(AGENT, auth=by_name) as client:
        client.headers['X-Caller'] = 'ann'
        secret = await client.send('secret')
        client.headers['X-Caller'] = 'bob'
        answers = [
            texts(await client.send(message('hi', referenceTaskIds=[task_id]))) for task_id in (secret['id'], '0' * 32)
        ]
    assert answers == [['["hi"]'], ['["hi"]']]


async def test_references_to_failed_or_erased_tasks_are_ignored() -> None:
    async with serving(AGENT) as client:
        failed, erased = await client.send('fail'), await client.send('erased')
        assert state_of(failed) == 'FAILED'
        assert await client.a2a_app.erase_task(erased['id'])
        task = await client.send(message('hi', referenceTaskIds=[failed['id'], erased['id']]))
    assert texts(task) == ['["hi"]']


async def test_artifacts_of_failed_task_are_left_out() -> None:
    async def half(messages: list[ModelMessage], info: AgentInfo) -> AsyncGenerator[str]:
        yield 'half'
        raise ValueError

    async with serving(Agent(FunctionModel(read, stream_function=half))) as client:
        async with client.live.send_streaming('fail') as stream:
            task_id = (await anext(stream)).result['task']['id']
            await stream.rest()
        failed = await client.get_task(task_id)
        assert (state_of(failed), texts(failed)) == ('FAILED', ['half'])
        task = await client.send(message('hi', referenceTaskIds=[task_id]))
    assert texts(task) == ['["hi"]']


async def test_message_with_too_many_references_is_refused() -> None:
    async with serving(AGENT, limits=with_constants(Limits, references=1)) as client:
        with pytest.raises(RpcError) as refused:
            await client.send(message('hi', referenceTaskIds=['a', 'b']))
    assert (refused.value.code, refused.value.fields) == (-32602, ['message.referenceTaskIds'])


async def test_referenced_artifacts_beyond_size_limit_are_left_out() -> None:
    async with serving(AGENT, limits=with_constants(Limits, referenced=200)) as client:
        small, large = await client.send('small'), await client.send('l' * 200)
        answer = await client.send(message('hi', referenceTaskIds=[small['id'], large['id']]))
    assert json.loads(texts(answer)[0]) == [
        *frame(small['id'], '["small"]'),
        *frame(large['id'], snapshot('(An artifact is left out: it is too large.)')),
        'hi',
    ]


async def test_referenced_file_unsupported_by_model_is_left_out() -> None:
    blind = Agent(FunctionModel(read, profile=ModelProfile(supports_image_input=False)))
    async with serving(blind) as client:
        task = await client.send('draw')
        answer = await client.send(message('hi', referenceTaskIds=[task['id']]))
    assert json.loads(texts(answer)[0]) == [
        *frame(task['id'], 'A line.', snapshot('(A part is left out: it is of a kind that cannot be read here.)')),
        'hi',
    ]


async def test_steering_message_brings_referenced_artifacts() -> None:
    looking, found = asyncio.Event(), asyncio.Event()

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        said = [part.content for each in messages for part in each.parts if isinstance(part, UserPromptPart)]
        if said == ['begin'] and len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart('look')])
        return ModelResponse(parts=[TextPart(json.dumps(said))])

    agent = Agent(FunctionModel(answer))

    @agent.tool_plain
    async def look() -> None:
        looking.set()
        await found.wait()

    async with serving(agent, messages=Messages(while_working='steer')) as client:
        earlier = await client.send('earlier')
        task = await client.send('begin', returnImmediately=True)
        await looking.wait()
        await client.send(message('more', taskId=task['id'], referenceTaskIds=[earlier['id']]), returnImmediately=True)
        found.set()
        answered = texts(await wait_until_ended(client, task['id']))
    assert json.loads(answered[0]) == ['begin', [*frame(earlier['id'], '["earlier"]'), 'more']]
