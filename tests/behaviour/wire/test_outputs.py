"""What an agent returns, as its client gets it."""

from __future__ import annotations

import json
import math
from base64 import b64decode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter
from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    BinaryContent,
    BinaryImage,
    DocumentUrl,
    FilePart,
    ImageUrl,
    ModelMessage,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.output import PromptedOutput, TextOutput

from pydantic_ai_a2a import Artifacts, Rejected

from ...agents import scripted_model
from ...app_client import message, state_of
from ...cases import each_case
from ...dialects import current_dialect
from ...serving import list_tasks, serving
from ..promised_behaviours import covers

PNG = b'\x89PNG\r\n\x1a\n' + bytes(8)


class Weather(BaseModel):
    place: Annotated[str, Field(serialization_alias='placeName')]
    celsius: float = 20.5


@dataclass
class Point:
    x: int
    y: int


async def completed_task(agent: Agent[Any, Any]) -> dict[str, Any]:
    """The finished task of one message, which must be the same for who streams it."""
    async with serving(agent) as client:
        task = await client.send()
        async with client.send_streaming() as stream:
            updates = [
                event.result['artifactUpdate'] for event in await stream.rest() if 'artifactUpdate' in event.result
            ]
    assert state_of(task) == 'COMPLETED'
    assert updates[-1]['lastChunk'] is True
    if 'text' not in task['artifacts'][0]['parts'][0]:
        streamed = [update['artifact']['parts'] for update in updates]
        assert streamed == [artifact['parts'] for artifact in task['artifacts']]
    return task


@covers('str')
async def test_text_output_is_artifact_and_agent_message() -> None:
    task = await completed_task(Agent(TestModel(custom_output_text='It is sunny.')))
    [artifact] = task['artifacts']
    assert artifact['parts'] == current_dialect().parts([{'text': 'It is sunny.', 'mediaType': 'text/plain'}])
    said = task['history'][-1]
    assert (said['role'], said['parts']) == ('ROLE_AGENT', artifact['parts'])
    assert (said['taskId'], said['contextId']) == (task['id'], task['contextId'])
    assert [each['role'] for each in task['history']] == ['ROLE_USER', 'ROLE_AGENT']


@covers('str')
@pytest.mark.parametrize('streamed', [False, True])
async def test_history_messages_carry_task_and_context_id(streamed: bool) -> None:
    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if len(messages) % 4 == 1:
            return ModelResponse(parts=[TextPart('Let me look.'), ToolCallPart('look')])
        chart = BinaryContent(b'a,b\n', media_type='text/csv', identifier='chart')
        return ModelResponse(parts=[TextPart('Here it is.'), FilePart(chart)])

    def look() -> None:
        """Look."""

    async with serving(Agent(FunctionModel(answer), tools=[look])) as client:
        sent = message(parts=[{'text': 'draw'}, {'raw': 'aGk=', 'mediaType': 'text/plain'}])
        if streamed:
            async with client.send_streaming(sent) as stream:
                [first, *_] = await stream.rest()
            task = await client.get_task(first.result['task']['id'])
        else:
            task = await client.send(sent)
    assert [(each['role'], next(iter(each['parts'][-1].values()))) for each in task['history']] == [
        ('ROLE_USER', 'aGk='),
        ('ROLE_AGENT', 'Let me look.'),
        ('ROLE_AGENT', 'Here it is.'),
    ]
    assert task['history'][0]['messageId'] == sent['messageId']
    assert len({each['messageId'] for each in task['history']}) == 3
    assert [(each['taskId'], each['contextId']) for each in task['history']] == [(task['id'], task['contextId'])] * 3


DATA = covers('model, dataclass, tuple, list, dict, int, None, union')


@DATA
@each_case(
    ('output_type', 'args', 'result', 'python_type'),
    [
        pytest.param(Weather, {'place': 'Rome'}, {'placeName': 'Rome', 'celsius': 20.5}, 'Weather', id='model'),
        pytest.param(Point, {'x': 1, 'y': 2}, {'x': 1, 'y': 2}, 'Point', id='dataclass'),
        pytest.param(tuple[int, str], [1, 'a'], [1, 'a'], 'tuple[int, str]', id='tuple'),
        pytest.param(list[Point], [{'x': 1, 'y': 2}], [{'x': 1, 'y': 2}], 'list[Point]', id='list'),
        pytest.param(dict[str, int], {'a': 1}, {'a': 1}, 'dict[str, int]', id='dict'),
        pytest.param(int, 42, 42, 'int', id='int'),
        pytest.param(bool, False, False, 'bool', id='bool'),
        pytest.param(Literal['a', 'b'], 'b', 'b', "Literal['a', 'b']", id='literal'),
    ],
)
async def test_typed_output_is_data_part_with_schema(
    output_type: Any, args: Any, result: object, python_type: str
) -> None:
    task = await completed_task(Agent(TestModel(custom_output_args=args), output_type=output_type))
    [artifact] = task['artifacts']
    schema = TypeAdapter[Any](output_type).json_schema(mode='serialization')
    metadata = {'json_schema': schema, 'python_type': python_type}
    part = {'data': {'result': result}, 'mediaType': 'application/json', 'metadata': metadata}
    assert artifact['parts'] == current_dialect().parts([part])
    assert [each['role'] for each in task['history']] == ['ROLE_USER']


@DATA
async def test_none_output_is_a_null_data_part() -> None:
    async def nothing() -> None:
        """Do nothing."""

    [artifact] = (await completed_task(Agent('test', output_type=nothing)))['artifacts']
    metadata = {'json_schema': {'type': 'null'}, 'python_type': 'None'}
    part = {'data': {'result': None}, 'mediaType': 'application/json', 'metadata': metadata}
    assert artifact['parts'] == current_dialect().parts([part])


@DATA
@pytest.mark.parametrize(
    ('said', 'part'),
    [
        (ToolCallPart('final_result_Weather', {'place': 'Rome'}), {'result': {'placeName': 'Rome', 'celsius': 20.5}}),
        (ToolCallPart('final_result_Point', {'x': 1, 'y': 2}), {'result': {'x': 1, 'y': 2}}),
        (TextPart('no idea'), None),
    ],
)
async def test_union_output_is_encoded_as_returned_member(said: ToolCallPart | TextPart, part: object) -> None:
    async with serving(Agent(scripted_model(said), output_type=[Weather, Point, str])) as client:
        task = await client.send()
    [[sent]] = [artifact['parts'] for artifact in task['artifacts']]
    if part is None:
        assert [sent] == current_dialect().parts([{'text': 'no idea', 'mediaType': 'text/plain'}])
    else:
        assert isinstance(said, ToolCallPart)
        assert sent['data'] == part
        assert sent['metadata']['python_type'] == said.tool_name.removeprefix('final_result_')


@DATA
async def test_subclass_output_is_sent_as_declared_type() -> None:
    class Secret(Weather):
        password: str = 'hunter2'

    def make(city: str) -> Weather:
        return Secret(place=city)

    [artifact] = (await completed_task(Agent('test', output_type=make)))['artifacts']
    assert artifact['parts'][0]['data'] == {'result': {'placeName': 'a', 'celsius': 20.5}}
    assert 'password' not in json.dumps(artifact)


@covers('BinaryImage, files in the response')
async def test_image_output_is_named_and_typed_file_part() -> None:
    async with serving(
        Agent(
            scripted_model(
                FilePart(BinaryImage(PNG, media_type='image/png', identifier='sun')),
                profile={'supports_image_output': True},
            ),
            output_type=BinaryImage,
        )
    ) as client:
        task = await client.send()
    [[part]] = [artifact['parts'] for artifact in task['artifacts']]
    assert b64decode(part['raw']) == PNG
    assert (part['mediaType'], part['filename']) == ('image/png', 'sun.png')


@covers('BinaryImage, files in the response')
async def test_response_files_follow_text_in_artifact() -> None:
    async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        chart = BinaryContent(b'a,b\n', media_type='text/csv', identifier='chart')
        return ModelResponse(parts=[TextPart('Here it is.'), FilePart(chart)])

    async with serving(Agent(FunctionModel(answer))) as client:
        task = await client.send()
        async with client.send_streaming() as stream:
            events = await stream.rest()
    assert task['artifacts'][0]['parts'] == current_dialect().parts(
        [
            {'text': 'Here it is.', 'mediaType': 'text/plain'},
            {'raw': 'YSxiCg==', 'mediaType': 'text/csv', 'filename': 'chart.csv'},
        ]
    )
    [update] = [event.result['artifactUpdate'] for event in events if 'artifactUpdate' in event.result]
    assert update['artifact']['parts'] == task['artifacts'][0]['parts']


@covers('BinaryImage, files in the response')
async def test_response_files_follow_data_in_artifact() -> None:
    image = FilePart(BinaryImage(PNG, media_type='image/png', identifier='map'))
    model = scripted_model(
        [image, ToolCallPart('final_result', {'place': 'Rome'})], profile={'supports_image_output': True}
    )
    async with serving(Agent(model, output_type=Weather)) as client:
        task = await client.send()
    [data, file] = task['artifacts'][0]['parts']
    assert data['data'] == {'result': {'placeName': 'Rome', 'celsius': 20.5}}
    assert (b64decode(file['raw']), file['mediaType'], file['filename']) == (PNG, 'image/png', 'map.png')


@pytest.mark.parametrize(
    ('output_type', 'made'),
    [
        (ImageUrl, ImageUrl('https://example.com/chart.png')),
        (list[DocumentUrl | BinaryContent], [DocumentUrl('https://example.com/chart', media_type='image/png')]),
        (Artifacts, Artifacts(result=ImageUrl('https://example.com/chart.png'))),
    ],
    ids=['one', 'list', 'artifacts'],
)
async def test_file_url_output_is_url_part(output_type: Any, made: Any) -> None:
    def draw(_: str) -> Any:
        return made

    draw.__annotations__['return'] = output_type
    task = await completed_task(Agent(TestModel(), output_type=TextOutput(draw)))
    [part] = task['artifacts'][0]['parts']
    assert (part['url'].partition('/chart')[0], part['mediaType']) == ('https://example.com', 'image/png')


@pytest.mark.parametrize('number', [math.nan, math.inf])
async def test_nan_or_infinite_output_fails_task(number: float, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(
        Agent(TestModel(custom_output_args={'place': 'Rome', 'celsius': number}), output_type=Weather)
    ) as client:
        task = await client.send()
    status = task['status']
    assert (state_of(task), status['message']['metadata']['failure']) == ('FAILED', 'bad-output')
    assert 'artifacts' not in task
    assert "result['celsius'] of the output is NaN or infinite" in caplog.text
    assert status['message']['metadata']['correlationId'] in caplog.text


class Reading(BaseModel):
    celsius: float


def measured(celsius: float) -> Reading:
    return Reading(celsius=celsius)


def reported(celsius: float) -> Artifacts:
    return Artifacts(celsius=celsius)


@pytest.mark.parametrize(
    ('output_type', 'result'),
    [
        (Reading, {'celsius': 21.5}),
        (PromptedOutput(Reading), {'celsius': 21.5}),
        (measured, {'celsius': 21.5}),
        (reported, 21.5),
    ],
    ids=['output tool', 'text', 'output function', 'artifacts'],
)
async def test_model_is_retried_after_nan_output(output_type: Any, result: Any) -> None:
    asked: list[str] = []

    async def measure(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(str(messages[-1]))
        output = f'{{"celsius": {"NaN" if len(asked) < 3 else 21.5}}}'
        if info.output_tools:
            return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, output)])
        return ModelResponse(parts=[TextPart(output)])

    async with serving(Agent(FunctionModel(measure), output_type=output_type, retries={'output': 2})) as client:
        task = await client.send()
    assert (state_of(task), task['artifacts'][0]['parts'][0]['data']) == ('COMPLETED', {'result': result})
    assert ['is NaN or infinite, which JSON cannot represent.' in text for text in asked] == [False, True, True]


class NanCapability(AbstractCapability[Any]):
    """Replaces the number of the first output by NaN."""

    def __init__(self) -> None:
        self.outputs = 0

    def spoiled(self, output: Reading) -> Reading:
        self.outputs += 1
        return Reading(celsius=math.nan) if self.outputs == 1 else output


class NanAfterRunCapability(NanCapability):
    async def after_output_process(self, ctx: Any, *, output_context: Any, output: Any) -> Any:
        return self.spoiled(output)


class NanAroundRunCapability(NanCapability):
    async def wrap_output_process(self, ctx: Any, *, output_context: Any, output: Any, handler: Any) -> Any:
        return self.spoiled(await handler(output))


@pytest.mark.parametrize('output_type', [Reading, PromptedOutput(Reading)], ids=['output tool', 'text'])
@pytest.mark.parametrize('spoiling', [NanAfterRunCapability, NanAroundRunCapability])
async def test_model_is_retried_after_capability_returns_nan(spoiling: type[NanCapability], output_type: Any) -> None:
    asked: list[str] = []

    async def measure(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(str(messages[-1]))
        if info.output_tools:
            return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {'celsius': 21.5})])
        return ModelResponse(parts=[TextPart('{"celsius": 21.5}')])

    async with serving(Agent(FunctionModel(measure), output_type=output_type, capabilities=[spoiling()])) as client:
        task = await client.send()
    assert (state_of(task), task['artifacts'][0]['parts'][0]['data']) == ('COMPLETED', {'result': {'celsius': 21.5}})
    assert ['is NaN or infinite, which JSON cannot represent.' in text for text in asked] == [False, True]


@pytest.mark.parametrize('output', [object(), Rejected('Not here.')], ids=['unserializable', 'rejected'])
async def test_unserializable_or_rejected_output_is_not_retried(output: Any) -> None:
    asked = 0

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        nonlocal asked
        asked += 1
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {})])

    def make() -> Any:
        return output

    async with serving(Agent(FunctionModel(answer), output_type=make)) as client:
        task = await client.send()
    assert (state_of(task), asked) == ('REJECTED' if isinstance(output, Rejected) else 'FAILED', 1)


async def test_each_named_result_is_an_artifact() -> None:
    def report(city: str) -> Artifacts:
        return Artifacts(
            summary=f'All is well in {city}.',
            figures={'inhabitants': 12},
            map=BinaryImage(PNG, media_type='image/png', identifier='map'),
        )

    task = await completed_task(Agent('test', output_type=report))
    assert [(artifact['name'], next(iter(artifact['parts'][0]))) for artifact in task['artifacts']] == [
        ('summary', 'text'),
        ('figures', 'data'),
        ('map', 'raw'),
    ]
    assert len({artifact['artifactId'] for artifact in task['artifacts']}) == 3


@covers('thinking, tool calls')
async def test_thinking_and_tool_calls_are_never_exposed() -> None:
    async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        thought = ThinkingPart('SECRET thought', signature='SECRET signature', provider_name='function')
        if len(messages) == 1:
            return ModelResponse(parts=[thought, ToolCallPart('look_up', {'query': 'SECRET query'})])
        return ModelResponse(parts=[thought, TextPart('Sunny.')])

    async def stream(
        messages: list[ModelMessage], _: AgentInfo
    ) -> AsyncIterator[str | dict[int, DeltaToolCall] | dict[int, DeltaThinkingPart]]:
        yield {0: DeltaThinkingPart(content='SECRET thought', signature='SECRET signature')}
        if len(messages) == 1:
            yield {1: DeltaToolCall(name='look_up', json_args='{"query": "SECRET query"}')}
        else:
            yield 'Sunny.'

    agent = Agent(FunctionModel(answer, stream_function=stream))

    @agent.tool_plain
    def look_up(query: str) -> str:
        return f'SECRET result of {query}'

    async with serving(agent) as client:
        task = await client.send()
        async with client.send_streaming(message(contextId=task['contextId'])) as events:
            streamed = await events.rest()
        listed = await client.call('ListTasks', {'includeArtifacts': True}) if current_dialect().has_lists else task
        python = await list_tasks(client)
    assert state_of(task) == 'COMPLETED'
    assert streamed[-1].result['statusUpdate']['status']['state'] == 'TASK_STATE_COMPLETED'
    for shown in (task, [event.data for event in streamed], listed, python):
        assert 'SECRET' not in json.dumps(shown)
        assert 'Sunny.' in json.dumps(shown)
