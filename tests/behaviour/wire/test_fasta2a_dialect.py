"""FastA2A's own client, and requests as it sends them: what it gets is what FastA2A 2.1's own tests pin."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx
import pytest
from fasta2a import A2A_EXTENSIONS_HEADER, AgentExtension
from fasta2a.client import A2AClient
from fasta2a.schema import Message, Part, SendMessageResponse, StreamResponse, Task
from inline_snapshot import snapshot
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import BinaryImage, ModelMessage, TextPart, ThinkingPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import Results, to_a2a

from ...agents import GatedAgent, scripted_model
from ...app_client import Client
from ...app_client import message as message_of_1_0
from ...dialects import in_no_version
from ...serving import serving, wait_until_ended
from ..promised_behaviours import covers
from ..tasks.test_waiting_tasks import AGENT

pytestmark = in_no_version("it is FastA2A's dialect, whose client names no version")

FASTA2A_ROW = "FastA2A's own `A2AClient` (old names, parts without `kind`)"
PNG = b'\x89PNG\r\n\x1a\n' + bytes(8)


@asynccontextmanager
async def fasta2a_client(agent: AbstractAgent[Any, Any], **options: Any) -> AsyncGenerator[tuple[A2AClient, Client]]:
    """FastA2A's client of an app, and one of A2A 1.0 beside it."""
    async with serving(agent, **options) as client:
        transport = httpx.ASGITransport(client.app)
        async with httpx.AsyncClient(transport=transport) as http:
            yield A2AClient('http://testserver', http_client=http), client


def user_message(*parts: Part, **fields: Any) -> Message:
    sent = message_of_1_0()
    return Message(role='user', parts=[*parts] or [Part(text='hello')], message_id=sent['messageId'], **fields)


def task_of(response: SendMessageResponse) -> Task:
    assert 'result' in response
    assert 'task' in response['result']
    return response['result']['task']


async def finished_task(client: A2AClient, other: Client, message: Message) -> Task:
    """The task of a message, once it is over."""
    sent = task_of(await client.send_message(message))
    assert sent['status']['state'] == 'submitted'
    await wait_until_ended(other, sent['id'])
    got = await client.get_task(sent['id'])
    assert 'result' in got
    assert (got['jsonrpc'], got['id']) == ('2.0', None)
    return got['result']


def scrubbed(value: Any) -> Any:
    """A task without what differs from run to run."""
    if isinstance(value, list):
        return [scrubbed(item) for item in cast('list[Any]', value)]
    if isinstance(value, dict):
        changing = ('id', 'task_id', 'context_id', 'message_id', 'artifact_id', 'timestamp')
        members = cast('dict[str, Any]', value).items()
        return {key: '...' if key in changing else scrubbed(item) for key, item in members}
    return value


@covers(FASTA2A_ROW)
async def test_send_returns_submitted_task_at_once() -> None:
    gates = GatedAgent()
    async with fasta2a_client(gates.agent) as (client, other):
        task = task_of(await client.send_message(user_message()))
        assert scrubbed(task) == snapshot(
            {
                'id': '...',
                'context_id': '...',
                'status': {'state': 'submitted', 'timestamp': '...'},
                'history': [
                    {
                        'role': 'user',
                        'parts': [{'text': 'hello'}],
                        'message_id': '...',
                        'context_id': '...',
                        'task_id': '...',
                    }
                ],
            }
        )
        gates.open('hello')
        assert (await wait_until_ended(other, task['id']))['status']['state'] == 'TASK_STATE_COMPLETED'


class Profile(BaseModel):
    name: str
    age: int


@covers(FASTA2A_ROW)
async def test_data_part_has_only_schema_as_metadata() -> None:
    agent = Agent(TestModel(custom_output_args={'name': 'John', 'age': 30}), output_type=Profile)
    async with fasta2a_client(agent) as (client, other):
        task = await finished_task(client, other, user_message())
    assert scrubbed(task) == snapshot(
        {
            'id': '...',
            'context_id': '...',
            'status': {'state': 'completed', 'timestamp': '...'},
            'history': [
                {
                    'role': 'user',
                    'parts': [{'text': 'hello'}],
                    'message_id': '...',
                    'context_id': '...',
                    'task_id': '...',
                }
            ],
            'artifacts': [
                {
                    'artifact_id': '...',
                    'name': 'result',
                    'parts': [
                        {
                            'metadata': {
                                'json_schema': {
                                    'properties': {
                                        'name': {'title': 'Name', 'type': 'string'},
                                        'age': {'title': 'Age', 'type': 'integer'},
                                    },
                                    'required': ['name', 'age'],
                                    'title': 'Profile',
                                    'type': 'object',
                                }
                            },
                            'data': {'result': {'name': 'John', 'age': 30}},
                        }
                    ],
                }
            ],
        }
    )


@covers(FASTA2A_ROW)
async def test_text_parts_have_no_field_besides_text() -> None:
    async with fasta2a_client(Agent(scripted_model([ThinkingPart('SECRET'), TextPart("Here's my response")]))) as (
        client,
        other,
    ):
        task = await finished_task(client, other, user_message())
    assert [scrubbed(artifact) for artifact in task.get('artifacts', ())] == [
        {'artifact_id': '...', 'name': 'result', 'parts': [{'text': "Here's my response"}]}
    ]
    assert [(each['role'], each['parts']) for each in task.get('history', ())] == [
        ('user', [{'text': 'hello'}]),
        ('agent', [{'text': "Here's my response"}]),
    ]


@covers(FASTA2A_ROW)
@pytest.mark.parametrize(
    'part',
    [
        Part(url='https://example.com/file.txt', media_type='text/plain'),
        Part(raw=b64encode(PNG).decode(), media_type='image/png', filename='sun.png'),
        Part(data={'key': 'value'}),
        Part(data=[1, None]),
    ],
)
async def test_sent_files_and_data_are_unchanged_in_history(part: Part) -> None:
    async with fasta2a_client(Agent(TestModel())) as (client, other):
        task = await finished_task(client, other, user_message(part))
    assert task['status']['state'] == 'completed'
    assert next(iter(task.get('history', ())))['parts'] == [part]


@covers(FASTA2A_ROW)
async def test_client_reads_task_made_in_other_version() -> None:
    def draw() -> BinaryImage:
        return BinaryImage(PNG, media_type='image/png')

    async with fasta2a_client(Agent('test', output_type=draw)) as (client, other):
        made = await other.send('hello')
        got = await client.get_task(made['id'])
    assert 'result' in got
    [artifact] = got['result'].get('artifacts', [])
    assert artifact['parts'][0].get('raw') == b64encode(PNG).decode()


@covers(FASTA2A_ROW)
async def test_failed_run_is_a_failed_task() -> None:
    async with fasta2a_client(Agent(scripted_model(RuntimeError('SECRET')))) as (client, other):
        task = await finished_task(client, other, user_message())
    assert task['status']['state'] == 'failed'
    assert 'SECRET' not in str(task)


@covers(FASTA2A_ROW)
async def test_unknown_task_is_task_not_found_error() -> None:
    async with fasta2a_client(Agent('test')) as (client, _):
        got = await client.get_task('nope')
    # Nothing tells whose task it would have been, and 0.3's error is FastA2A's to the letter.
    assert got == {'jsonrpc': '2.0', 'id': None, 'error': {'code': -32001, 'message': 'Task not found'}}


# Streams.


async def streamed(client: A2AClient, message: Message) -> list[StreamResponse]:
    return [response['result'] async for response in client.stream_message(message) if 'result' in response]


@covers(FASTA2A_ROW)
async def test_stream_appends_chunks_and_ends_with_whole_text() -> None:
    async def words(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
        for word in ('hello ', 'streaming ', 'world'):
            yield word

    agent = Agent(FunctionModel(stream_function=words))
    async with fasta2a_client(agent, results=Results(stream='replace', interval=0)) as (client, _):
        events = await streamed(client, user_message())
    chunks = [event['artifact_update'] for event in events if 'artifact_update' in event]
    assert [next(iter(event)) for event in events] == [
        'task',
        'status_update',
        *('artifact_update' for _ in chunks),
        'status_update',
    ]
    assert [event['status_update']['status']['state'] for event in events if 'status_update' in event] == [
        'working',
        'completed',
    ]
    assert [(chunk.get('append'), chunk.get('last_chunk'), chunk['artifact']['parts']) for chunk in chunks] == [
        (True, False, [{'text': 'hello '}]),
        (True, False, [{'text': 'streaming '}]),
        (True, False, [{'text': 'world'}]),
        (False, True, [{'text': 'hello streaming world'}]),
    ]
    assert {(chunk['artifact']['artifact_id'], chunk['artifact'].get('name')) for chunk in chunks} == {
        (chunks[0]['artifact']['artifact_id'], 'result')
    }
    assert 'task' in events[0]
    assert events[0]['task']['status']['state'] == 'submitted'


@covers(FASTA2A_ROW)
@pytest.mark.parametrize(('prompt', 'state'), [('book', 'input-required'), ('pay', 'auth-required')])
async def test_stream_and_resubscription_end_at_waiting_task(prompt: str, state: str) -> None:
    async with fasta2a_client(AGENT) as (client, other):
        events = await streamed(client, user_message(Part(text=prompt)))
        assert 'task' in events[0]
        assert 'status_update' in events[-1]
        assert events[-1]['status_update']['status']['state'] == state
        other.headers = {}
        shown = await frames(other, 'tasks/resubscribe', id=events[0]['task']['id'])
    assert [frame['result']['task']['status']['state'] for frame in shown] == [state]


# Requests that name no version and have no message: the task decides.


async def post(client: Client, method: str, *, headers: Any = None, **params: Any) -> Any:
    return (await client.post(body(method, **params), headers)).json


async def frames(client: Client, method: str, **params: Any) -> list[Any]:
    answer = await client.post(body(method, **params))
    assert answer.headers['content-type'] == 'text/event-stream'
    return [json.loads(frame.split(b'data: ')[1]) for frame in answer.body.split(b'\n\n')[:-1]]


def body(method: str, **params: Any) -> bytes:
    return json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': params}).encode()


def bare_message() -> dict[str, Any]:
    return {'role': 'user', 'parts': [{'text': 'hello'}], 'messageId': message_of_1_0()['messageId']}


@asynccontextmanager
async def client_without_version(agent: AbstractAgent[Any, Any], **options: Any) -> AsyncGenerator[Client]:
    async with serving(agent, **options) as client:
        client.headers = {}
        yield client


@pytest.mark.parametrize('kind', [{}, {'kind': 'text'}], ids=['fasta2a', '0.3'])
async def test_task_is_returned_in_dialect_of_its_message(kind: dict[str, str]) -> None:
    async with client_without_version(Agent(TestModel(custom_output_text='It is sunny.'))) as client:
        sent = bare_message()
        sent['parts'] = [kind | {'text': 'hello'}]
        made = (await post(client, 'message/send', message=sent, configuration={'blocking': True}))['result']
        task = made if kind else made['task']
        got = (await post(client, 'tasks/get', id=task['id']))['result']
        [followed] = await frames(client, 'tasks/resubscribe', id=task['id'])
        refused = (await post(client, 'tasks/cancel', id=task['id']))['error']
        named = (await post(client, 'tasks/get', id=task['id'], headers={'A2A-Version': '0.3'}))['result']
    assert got == task
    assert got['artifacts'][0]['parts'] == [kind | {'text': 'It is sunny.'}]
    assert followed['result'] == made
    assert refused['code'] == -32002
    assert (named['kind'], named['artifacts'][0]['parts']) == ('task', [{'kind': 'text', 'text': 'It is sunny.'}])


@pytest.mark.parametrize('kind', [{}, {'kind': 'text'}], ids=['fasta2a', '0.3'])
async def test_cancel_returns_task_in_dialect_of_its_message(kind: dict[str, str]) -> None:
    gates = GatedAgent()
    async with client_without_version(gates.agent) as client:
        sent = bare_message()
        sent['parts'] = [kind | {'text': 'hello'}]
        made = (await post(client, 'message/send', message=sent, configuration={'blocking': False}))['result']
        task = made if kind else made['task']
        await gates.reached('hello')
        canceled = (await post(client, 'tasks/cancel', id=task['id']))['result']
    assert canceled['status']['state'] == 'canceled'
    assert canceled.get('kind') == ('task' if kind else None)
    assert canceled['history'][0]['parts'] == sent['parts']


async def test_tasks_list_returns_tasks_by_status() -> None:
    async with client_without_version(Agent(TestModel(custom_output_text='It is sunny.'))) as client:
        await post(client, 'message/send', message=bare_message(), configuration={'blocking': True})
        page = (await post(client, 'tasks/list', includeArtifacts=True, status='completed'))['result']
        none = (await post(client, 'tasks/list', status='failed'))['result']
    assert [task['artifacts'][0]['parts'] for task in page['tasks']] == [[{'text': 'It is sunny.'}]]
    assert (page['totalSize'], none['tasks']) == (1, [])


# Extensions, by the header that FastA2A has for them.

TRACE, CITATIONS, UNKNOWN = 'urn:example:trace', 'urn:example:citations', 'urn:example:nobody-declared-this'


def extension_header(*extensions: str) -> dict[str, str]:
    return {A2A_EXTENSIONS_HEADER: ', '.join(extensions)}


@pytest.mark.parametrize('method', ['message/send', 'message/stream'])
async def test_fasta2a_response_header_names_active_extensions(method: str) -> None:
    extensions = [AgentExtension(uri=TRACE), AgentExtension(uri=CITATIONS)]
    async with client_without_version(Agent('test'), extensions=extensions) as client:
        active = await client.post(body(method, message=bare_message()), extension_header(UNKNOWN, CITATIONS))
        without = await client.post(body(method, message=bare_message()))
    assert active.headers[A2A_EXTENSIONS_HEADER.lower()] == CITATIONS
    assert A2A_EXTENSIONS_HEADER.lower() not in without.headers


async def test_required_extension_is_checked_for_messages_only() -> None:
    extensions = [AgentExtension(uri=CITATIONS, required=True), AgentExtension(uri=TRACE)]
    app = to_a2a(Agent('test'), extensions=extensions)
    client = Client(app)
    client.headers = {}
    refused = await post(client, 'message/send', message=bare_message(), headers=extension_header(TRACE))
    accepted = await post(client, 'message/send', message=bare_message(), headers=extension_header(CITATIONS))
    assert refused['error'] == {
        'code': -32600,
        'message': 'Request payload validation error',
        'data': {'missing_required_extensions': [CITATIONS]},
    }
    assert (await post(client, 'tasks/get', id='nope'))['error']['code'] == -32001
    assert [task['id'] for task in await app.list_tasks()] == [accepted['result']['task']['id']]
    await wait_until_ended(Client(app, headers={A2A_EXTENSIONS_HEADER: CITATIONS}), accepted['result']['task']['id'])
