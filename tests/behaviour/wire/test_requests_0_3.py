"""A2A 0.3 as its clients send and read it: what the tests' client translates elsewhere is looked at here."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest
from a2a.compat.v0_3 import types
from inline_snapshot import snapshot
from pydantic_ai import Agent
from pydantic_ai.messages import BinaryContent, FilePart, ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from starlette.types import ASGIApp

from pydantic_ai_a2a import Results

from ...agents import GatedAgent, stream_three_words
from ...app_client import Answer, Client
from ...dialects import only_in, strictly
from ...serving import list_tasks, serving, wait_until_ended
from ..promised_behaviours import covers
from ..refusals import serving_without_runs

pytestmark = only_in('0.3', 'its own wire form')

VERSION_HEADERS = pytest.mark.parametrize('headers', [{'A2A-Version': '0.3'}, {}], ids=['named', 'unnamed'])
"""A client of 0.3 names no version."""


def message_0_3(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A message as 0.3 has it."""
    text = {'kind': 'text', 'text': 'hello'}
    return {'kind': 'message', 'messageId': 'message-of-0.3-00', 'role': 'user', 'parts': [*parts] or [text], **fields}


def request(method: str, **params: Any) -> bytes:
    return json.dumps({'jsonrpc': '2.0', 'id': 'r-1', 'method': method, 'params': params}).encode()


async def post_0_3(app: ASGIApp, body: bytes, **headers: str) -> Answer:
    client = Client(app)
    client.headers = {}
    return await client.post(body, {name.replace('_', '-'): value for name, value in headers.items()})


def events(answer: Answer) -> list[dict[str, Any]]:
    """The results of a whole stream."""
    assert answer.headers['content-type'] == 'text/event-stream'
    frames = [frame.split(b'\n') for frame in answer.body.split(b'\n\n')[:-1]]
    results = [json.loads(data.removeprefix(b'data: ')) for _, data in frames]
    assert {result['id'] for result in results} == {'r-1'}
    return [result['result'] for result in results]


def without_ids(value: Any) -> Any:
    """JSON without what differs from run to run."""
    if isinstance(value, list):
        return [without_ids(item) for item in cast('list[Any]', value)]
    if isinstance(value, dict):
        changing = ('id', 'taskId', 'contextId', 'messageId', 'artifactId', 'timestamp')
        members = cast('dict[str, Any]', value).items()
        return {key: '...' if key in changing else without_ids(item) for key, item in members}
    return value


@VERSION_HEADERS
async def test_message_send_returns_unwrapped_task(headers: dict[str, str]) -> None:
    async with serving(Agent(TestModel(custom_output_text='It is sunny.'))) as client:
        answer = await post_0_3(client.app, request('message/send', message=message_0_3()), **headers)
        task = strictly(types.SendMessageSuccessResponse, answer.json).result
        assert isinstance(task, types.Task)
        again = await post_0_3(client.app, request('tasks/get', id=task.id), **headers)
    assert without_ids(answer.json['result']) == snapshot(
        {
            'kind': 'task',
            'id': '...',
            'contextId': '...',
            'status': {'state': 'completed', 'timestamp': '...'},
            'artifacts': [{'artifactId': '...', 'name': 'result', 'parts': [{'kind': 'text', 'text': 'It is sunny.'}]}],
            'history': [
                {
                    'kind': 'message',
                    'messageId': '...',
                    'role': 'user',
                    'parts': [{'kind': 'text', 'text': 'hello'}],
                    'taskId': '...',
                    'contextId': '...',
                },
                {
                    'kind': 'message',
                    'messageId': '...',
                    'role': 'agent',
                    'parts': [{'kind': 'text', 'text': 'It is sunny.'}],
                    'taskId': '...',
                    'contextId': '...',
                },
            ],
        }
    )
    assert again.json['result'] == answer.json['result']


@VERSION_HEADERS
async def test_stream_has_unwrapped_events_and_final_flag(headers: dict[str, str]) -> None:
    async with serving(
        Agent(FunctionModel(stream_function=stream_three_words)), results=Results(stream='replace', interval=0)
    ) as client:
        answer = await post_0_3(client.app, request('message/stream', message=message_0_3()), **headers)
    got = events(answer)
    assert [(event['kind'], event.get('final'), event.get('append'), event.get('lastChunk')) for event in got] == [
        ('task', None, None, None),
        ('status-update', False, None, None),
        ('artifact-update', None, None, None),
        ('artifact-update', None, True, None),
        ('artifact-update', None, True, None),
        ('artifact-update', None, None, True),
        ('status-update', True, None, None),
    ]
    assert [event['status']['state'] for event in got if 'status' in event] == ['submitted', 'working', 'completed']
    assert [event['artifact']['parts'] for event in got if 'artifact' in event] == [
        [{'kind': 'text', 'text': text}] for text in ('one ', 'two ', 'three', 'one two three')
    ]


@VERSION_HEADERS
async def test_resubscribe_joins_running_task(headers: dict[str, str]) -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        task = await client.send('hi', returnImmediately=True)
        await gates.reached('hi')
        client.headers = headers
        async with client.subscribe(task['id']) as stream:
            first = await anext(stream)
            gates.open('hi')
            rest = await stream.rest()
    assert (first.result['task']['id'], first.result['task']['status']['state']) == (task['id'], 'TASK_STATE_WORKING')
    assert [next(iter(event.result)) for event in rest] == ['artifactUpdate', 'statusUpdate']


BLOCKING = 'blocking (1.0 default) / `returnImmediately` / 0.3 `blocking`'


@VERSION_HEADERS
@covers(BLOCKING)
async def test_message_send_blocks_by_default(headers: dict[str, str]) -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        sending = asyncio.ensure_future(post_0_3(client.app, request('message/send', message=message_0_3()), **headers))
        await gates.reached('hello')
        assert not sending.done()
        gates.open('hello')
        assert (await sending).json['result']['status']['state'] == 'completed'


@VERSION_HEADERS
@covers(BLOCKING)
async def test_nonblocking_message_send_returns_at_once(headers: dict[str, str]) -> None:
    gates = GatedAgent()
    async with serving(gates.agent) as client:
        body = request('message/send', message=message_0_3(), configuration={'blocking': False})
        task = (await post_0_3(client.app, body, **headers)).json['result']
        assert task['status']['state'] in ('submitted', 'working')
        gates.open('hello')
        await wait_until_ended(client, task['id'])


async def test_file_and_data_parts_round_trip() -> None:
    async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        chart = BinaryContent(b'a,b\n', media_type='text/csv', identifier='chart')
        return ModelResponse(parts=[TextPart('Here.'), FilePart(chart)])

    parts = [
        {'kind': 'file', 'file': {'bytes': 'iVBORw0KGgoAAAAAAAAAAA==', 'mimeType': 'image/png', 'name': 'sun.png'}},
        {'kind': 'file', 'file': {'uri': 'https://example.com/a.pdf'}, 'metadata': {'page': 3}},
        {'kind': 'data', 'data': {'city': 'Paris'}},
        {'kind': 'data', 'data': {'value': [1, 2]}, 'metadata': {'data_part_compat': True}},
    ]
    async with serving(Agent(FunctionModel(answer))) as client:
        task = (await post_0_3(client.app, request('message/send', message=message_0_3(*parts)))).json['result']
    assert task['history'][0]['parts'] == parts
    assert task['artifacts'][0]['parts'] == snapshot(
        [
            {'kind': 'text', 'text': 'Here.'},
            {'kind': 'file', 'file': {'bytes': 'YSxiCg==', 'mimeType': 'text/csv', 'name': 'chart.csv'}},
        ]
    )


@VERSION_HEADERS
@pytest.mark.parametrize('method', ['tasks/get', 'tasks/cancel', 'tasks/resubscribe'])
async def test_error_has_code_message_and_correlation_id_header(method: str, headers: dict[str, str]) -> None:
    async with serving_without_runs() as client:
        answer = await post_0_3(client.app, request(method, id='no-such-task'), **headers)
    assert answer.json == {'jsonrpc': '2.0', 'id': 'r-1', 'error': {'code': -32001, 'message': 'Task not found'}}
    assert len(answer.headers['x-correlation-id']) == 16
    stream = method == 'tasks/resubscribe'
    assert answer.headers['content-type'] == ('text/event-stream' if stream else 'application/json')


async def test_task_is_readable_in_both_versions() -> None:
    async with serving(Agent(TestModel(custom_output_text='It is sunny.'))) as client:
        task = await client.send('hello')
        assert [each['id'] for each in await list_tasks(client)] == [task['id']]
        body = json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': 'GetTask', 'params': {'id': task['id']}}).encode()
        newer = (await post_0_3(client.app, body)).json['result']
        older = (await post_0_3(client.app, request('tasks/get', id=task['id']))).json['result']
    assert newer['status']['state'] == 'TASK_STATE_COMPLETED'
    assert newer['artifacts'][0]['parts'] == [{'text': 'It is sunny.', 'mediaType': 'text/plain'}]
    assert older['artifacts'][0]['parts'] == [{'kind': 'text', 'text': 'It is sunny.'}]
