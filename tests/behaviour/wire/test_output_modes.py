"""What a client says that it takes (`acceptedOutputModes`), and what it gets then."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from itertools import chain
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import BinaryContent, BinaryImage, FilePart, ModelMessage, TextPart
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import Results

from ...agents import GatedAgent, scripted_model
from ...app_client import RpcError, message, rpc, state_of, texts
from ...dialects import current_dialect, only_in
from ...serving import serving, wait_until_ended
from ..refusals import error_of_answer, serving_without_runs

PNG = BinaryImage(b'\x89PNG\r\n\x1a\n' + bytes(8), media_type='image/png', identifier='map.png')
CSV = BinaryContent(b'a,b\n', media_type='text/csv', identifier='table.csv')


class Weather(BaseModel):
    place: str = 'Rome'
    celsius: float = 20.5


FORECAST = Agent(TestModel(custom_output_args={'place': 'Rome'}), output_type=Weather)


def kinds(task: dict[str, Any]) -> list[str]:
    """What the parts of the task's only artifact are: text, data, or the type of a file."""
    [artifact] = task['artifacts']
    return [part['mediaType'] if 'raw' in part else next(iter(part)) for part in artifact['parts']]


async def test_data_becomes_json_text_for_text_only_client() -> None:
    async with serving(FORECAST) as client:
        task = await client.send(acceptedOutputModes=['text/plain'])
        as_data = await client.send()
    [[part]] = [artifact['parts'] for artifact in task['artifacts']]
    [[data]] = [artifact['parts'] for artifact in as_data['artifacts']]
    text, metadata = part['text'], data['metadata']
    assert json.loads(text) == data['data']['result'] == {'place': 'Rome', 'celsius': 20.5}
    assert [part] == current_dialect().parts([{'text': text, 'mediaType': 'text/plain', 'metadata': metadata}])
    assert [each['role'] for each in task['history']] == ['ROLE_USER']


async def test_text_becomes_unstreamed_data_for_json_only_client() -> None:
    async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
        yield 'It is '
        yield 'sunny.'

    async with serving(Agent(scripted_model('It is sunny.', stream_function=stream))) as client:
        async with client.live.send_streaming(acceptedOutputModes=['application/json']) as reader:
            events = [event.result for event in await reader.rest()]
        task = await client.get_task(events[0]['task']['id'])
    [update] = [event['artifactUpdate'] for event in events if 'artifactUpdate' in event]
    assert update.get('lastChunk') is True
    assert update['artifact'] == task['artifacts'][0]
    metadata = {'json_schema': {'type': 'string'}, 'python_type': 'str'}
    part = {'data': {'result': 'It is sunny.'}, 'mediaType': 'application/json', 'metadata': metadata}
    assert update['artifact']['parts'] == current_dialect().parts([part])
    assert [each['role'] for each in task['history']] == ['ROLE_USER']


@pytest.mark.parametrize(
    ('modes', 'parts'),
    [
        ([], ['text', 'image/png', 'text/csv']),
        (['*/*'], ['text', 'image/png', 'text/csv']),
        (['text/*'], ['text', 'text/csv']),
        (['Text/Plain; charset=UTF-8', 'IMAGE/*'], ['text', 'image/png']),
        (['text/plain'], ['text']),
        (['application/json', 'image/png'], ['data', 'image/png']),
    ],
)
async def test_files_outside_accepted_modes_are_omitted(modes: list[str], parts: list[str]) -> None:
    async with serving(Agent(scripted_model([TextPart('Here it is.'), FilePart(PNG), FilePart(CSV)]))) as client:
        assert kinds(await client.send(acceptedOutputModes=modes)) == parts


@pytest.mark.parametrize('method', ['SendMessage', 'SendStreamingMessage'])
async def test_send_without_servable_output_mode_is_refused(
    method: str,
) -> None:
    async with serving_without_runs() as client:
        configuration = {'acceptedOutputModes': ['image/png', 'video/*']}
        answer = await client.post(rpc(method, {'message': message(), 'configuration': configuration}))
        error = error_of_answer(answer)
    assert (error.code, error.reason) == (-32005, 'CONTENT_TYPE_NOT_SUPPORTED')
    assert error.message.startswith(
        'configuration.acceptedOutputModes: the agent returns none of these types. It returns text/plain'
    )
    if current_dialect().has_details:
        assert error.data[0]['metadata']['field'] == 'configuration.acceptedOutputModes'


@only_in('1.0', '0.3 has no media type of text')
@pytest.mark.parametrize(
    ('declared', 'accepted', 'media_type'),
    [
        (None, None, 'text/plain'),
        (None, ['text/markdown', 'text/plain'], 'text/plain'),
        (['text/markdown'], None, 'text/markdown'),
        (['text/markdown'], ['text/*'], 'text/markdown'),
        (['text/markdown'], ['*/*'], 'text/markdown'),
        (['text/markdown'], ['text/markdown;q=1', 'text/plain'], 'text/markdown'),
        (['text/markdown'], ['text/plain'], 'text/plain'),
        (['text/plain', 'text/markdown'], None, 'text/plain'),
        (['text/plain', 'text/markdown'], ['text/markdown'], 'text/markdown'),
        (['text/*'], None, 'text/plain'),
    ],
)
async def test_text_has_declared_media_type_accepted_by_client(
    declared: list[str] | None, accepted: list[str] | None, media_type: str
) -> None:
    configuration: dict[str, Any] = {} if accepted is None else {'acceptedOutputModes': accepted}
    agent = Agent(TestModel(custom_output_text='*Hello* world'))
    async with serving(agent, default_output_modes=declared, results=Results(stream='mark', interval=0)) as client:
        task = await client.send(**configuration)
        async with client.send_streaming(**configuration) as stream:
            events = [event.result for event in await stream.rest()]
    parts = [part for item in [*task['artifacts'], task['history'][-1]] for part in item['parts']]
    pieces = [event['artifactUpdate']['artifact']['parts'] for event in events if 'artifactUpdate' in event]
    assert len(pieces) > 2
    assert {part['mediaType'] for part in [*parts, *chain(*pieces)]} == {media_type}


@only_in('1.0', '0.3 has no media type of text')
async def test_data_as_text_has_accepted_media_type() -> None:
    agent = Agent(TestModel(), output_type=int)
    async with serving(agent, default_output_modes=['application/json', 'text/markdown']) as client:
        for accepted in ('text/markdown', 'text/plain'):
            [part] = (await client.send(acceptedOutputModes=[accepted]))['artifacts'][0]['parts']
            assert (part['text'], part['mediaType']) == ('0', accepted)


async def test_only_declared_output_modes_are_accepted() -> None:
    async with serving(Agent('test'), default_output_modes=['text/markdown']) as client:
        task = await client.send(acceptedOutputModes=['text/markdown'])
        with pytest.raises(RpcError) as refused:
            await client.send(acceptedOutputModes=['text/html'])
    assert texts(task) == ['success (no tool calls)']
    assert refused.value.message.removesuffix('.').endswith('It returns text/markdown')


async def test_task_fails_if_output_matches_no_accepted_mode() -> None:
    agent = Agent(
        scripted_model('I cannot draw.', profile={'supports_image_output': True}), output_type=[BinaryImage, str]
    )
    async with serving(agent) as client:
        task = await client.send(acceptedOutputModes=['image/*'])
        with_text = await client.send(acceptedOutputModes=['image/*', 'text/plain'])
    assert state_of(task) == 'FAILED'
    said = task['status']['message']
    assert (said['parts'][0]['text'], said['metadata']['failure']) == ('The model gave no usable answer.', 'bad-output')
    assert 'artifacts' not in task
    assert kinds(with_text) == ['text']


@pytest.mark.parametrize(
    ('first', 'newest', 'results'),
    [
        (['text/plain'], ['application/json'], ['one', {'result': 'one + two'}]),
        (['application/json'], [], [{'result': 'one'}, 'one + two']),
    ],
    ids=['data after text', 'all modes after data'],
)
async def test_newest_message_decides_accepted_output_modes(
    first: list[str], newest: list[str], results: list[Any]
) -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        task = await client.send('one', acceptedOutputModes=first, returnImmediately=True)
        await gates.reached('one')
        following = message('two', taskId=task['id'])
        await client.send(following, acceptedOutputModes=newest, returnImmediately=True)
        gates.open('one', 'two')
        done = await wait_until_ended(client, task['id'])
    parts = [part for artifact in done['artifacts'] for part in artifact['parts']]
    assert [part['data'] if 'data' in part else part['text'] for part in parts] == results
