"""FastA2A's own client against a real server."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx
import pytest
from fasta2a.client import A2AClient
from fasta2a.schema import (
    A2ARequest,
    CancelTaskRequest,
    CancelTaskResponse,
    Message,
    MessageSendConfiguration,
    Part,
    ResubscribeTaskRequest,
    StreamMessageResponse,
    a2a_request_ta,
    stream_message_response_ta,
)
from inline_snapshot import snapshot
from pydantic import TypeAdapter

from ..behaviour.promised_behaviours import covers
from .server import LIMIT, Gates, Process, uvicorn
from .test_client import PNG

FASTA2A = "FastA2A's own `A2AClient` (old names, parts without `kind`)"
"""The behaviour that these tests show, by its name."""

DOT: Part = {'raw': b64encode(PNG).decode(), 'media_type': 'image/png', 'filename': 'dot.png'}
TABLE: Part = {'raw': b64encode(b'a,b\n').decode(), 'media_type': 'text/csv', 'filename': 'a.csv'}

cancel_task_response_ta: TypeAdapter[CancelTaskResponse] = TypeAdapter(CancelTaskResponse)


@pytest.fixture(scope='module')
def server() -> Generator[Process]:
    with uvicorn('tests.e2e.apps:app') as running:
        yield running
    assert running.complaints == []


@pytest.fixture(scope='module')
def mirror() -> Generator[Process]:
    with uvicorn('tests.e2e.apps:mirror') as running:
        yield running
    assert running.complaints == []


@asynccontextmanager
async def fasta2a_client(url: str) -> AsyncGenerator[A2AClient]:
    """FastA2A's client, with the card that is at the URL."""
    async with httpx.AsyncClient(timeout=LIMIT, verify=False) as http:
        yield A2AClient(url, http_client=http, fetch_card=True)


def text_message(text: str, **ids: Any) -> Message:
    return send(Part(text=text), **ids)


def send(*parts: Part, **ids: Any) -> Message:
    return Message(role='user', parts=list(parts), message_id=uuid4().hex, **ids)


async def post(client: A2AClient, request: A2ARequest) -> bytes:
    """Send a request that FastA2A has a type for and its client has no method."""
    content = a2a_request_ta.dump_json(request, by_alias=True)
    response = await client.http_client.post('/', content=content, headers={'Content-Type': 'application/json'})
    return response.raise_for_status().content


async def cancel(client: A2AClient, task_id: str) -> CancelTaskResponse:
    request = CancelTaskRequest(jsonrpc='2.0', id=None, method='tasks/cancel', params={'id': task_id})
    return cancel_task_response_ta.validate_json(await post(client, request))


async def resubscribe(client: A2AClient, task_id: str) -> AsyncIterator[StreamMessageResponse]:
    request = ResubscribeTaskRequest(jsonrpc='2.0', id=None, method='tasks/resubscribe', params={'id': task_id})
    content = a2a_request_ta.dump_json(request, by_alias=True)
    headers = {'Content-Type': 'application/json'}
    async with client.http_client.stream('POST', '/', content=content, headers=headers) as response:
        async for line in response.aiter_lines():
            if line.startswith('data: '):
                yield stream_message_response_ta.validate_json(line.removeprefix('data: '))


async def collect(answers: AsyncIterator[StreamMessageResponse]) -> list[Any]:
    async with asyncio.timeout(LIMIT):
        return [answer async for answer in answers]


async def sent(client: A2AClient, message: Message) -> Any:
    """The task of a message as it is at once."""
    response: Any = await client.send_message(message)
    return response['result']['task']


async def ended(client: A2AClient, task_id: str) -> Any:
    """The task once it is over."""
    await collect(resubscribe(client, task_id))
    response: Any = await client.get_task(task_id)
    return response['result']


def text_of(task: Any) -> str:
    (artifact,) = task['artifacts']
    (part,) = artifact['parts']
    return part['text']


def outline(events: Sequence[Any]) -> list[str]:
    """What each event says, in short."""
    return [_outline(event['result']) for event in events]


def _outline(event: Any) -> str:
    if 'task' in event:
        return f'task {event["task"]["status"]["state"]}'
    if 'status_update' in event:
        return event['status_update']['status']['state']
    update = event['artifact_update']
    marks = [name for name in ('append', 'last_chunk') if update[name]]
    return ' '.join([repr(''.join(part['text'] for part in update['artifact']['parts'])), *marks])


@covers(FASTA2A, 'card')
async def test_client_finds_agent_by_its_card(server: Process) -> None:
    async with fasta2a_client(server.url) as client:
        card: Any = client.agent_card
        assert str(client.http_client.base_url) == server.url
    assert (card['name'], card['description']) == ('Puppet', 'Does what it is told.')
    assert card['capabilities']['streaming'] is True


@covers(FASTA2A)
async def test_send_returns_submitted_task_readable_when_done(server: Process) -> None:
    async with fasta2a_client(server.url) as client:
        task = await sent(client, text_message('say hello to everybody'))
        done = await ended(client, task['id'])
    assert (task['status']['state'], 'artifacts' in task) == ('submitted', False)
    assert (done['status']['state'], done['id'], text_of(done)) == ('completed', task['id'], 'hello to everybody ')
    assert [(message['role'], message['parts']) for message in done['history']] == [
        ('user', [{'text': 'say hello to everybody'}]),
        ('agent', [{'text': 'hello to everybody '}]),
    ]


@covers(FASTA2A)
async def test_blocking_send_returns_completed_task(server: Process) -> None:
    blocking = MessageSendConfiguration(accepted_output_modes=['text/plain'], blocking=True)
    async with fasta2a_client(server.url) as client:
        response: Any = await client.send_message(text_message('say one'), configuration=blocking)
        task = response['result']['task']
        same = await client.get_task(task['id'])
    assert (task['status']['state'], text_of(task)) == ('completed', 'one ')
    assert same == {'jsonrpc': '2.0', 'id': None, 'result': task}


@covers(FASTA2A)
async def test_answer_text_is_streamed_in_pieces(server: Process) -> None:
    async with fasta2a_client(server.url) as client:
        events = await collect(client.stream_message(text_message('say hello to everybody')))
    assert outline(events) == snapshot(
        [
            'task submitted',
            'working',
            "'hello ' append",
            "'to ' append",
            "'everybody ' append",
            "'' append last_chunk",
            'completed',
        ]
    )
    assert len({event['id'] for event in events}) == 1


@covers(FASTA2A)
async def test_conversation_continues_in_its_context(server: Process) -> None:
    async with fasta2a_client(server.url) as client:
        first = await sent(client, text_message('say one'))
        second = await sent(client, text_message('recall', context_id=first['context_id']))
        elsewhere = await sent(client, text_message('recall'))
        recalled = [await ended(client, task['id']) for task in (second, elsewhere)]
    assert (second['context_id'], second['id'] != first['id']) == (first['context_id'], True)
    assert [text_of(task) for task in recalled] == ['Before, you said: say one.', 'Before, you said: .']


@covers(FASTA2A, 'cancel a running task')
@pytest.mark.parametrize('command', ['use', 'wait'], ids=['in a tool', 'in the model'])
async def test_cancel_returns_after_run_has_stopped(server: Process, command: str) -> None:
    gates, gate = Gates(server.url), f'cancel-{command}-fasta2a'
    async with fasta2a_client(server.url) as client:
        stream = client.stream_message(text_message(f'{command} {gate}'))
        first: Any = await anext(stream)
        await gates.reached(gate)
        canceled: Any = await cancel(client, first['result']['task']['id'])
        assert await gates.stopped(gate)
        rest = await collect(stream)
    assert canceled['result']['status']['state'] == 'canceled'
    assert outline(rest)[-1] == 'canceled'


@covers(FASTA2A, 'resubscribe in mid-run')
async def test_resubscriber_gets_snapshot_then_remaining_events(server: Process) -> None:
    gates = Gates(server.url)
    async with fasta2a_client(server.url) as client, fasta2a_client(server.url) as late:
        stream = client.stream_message(text_message('wait subscribe-fasta2a'))
        seen: list[Any] = [await anext(stream) for _ in range(3)]
        subscription = resubscribe(late, seen[0]['result']['task']['id'])
        there: Any = await anext(subscription)
        await gates.open('subscribe-fasta2a')
        following, rest = await collect(subscription), await collect(stream)
    assert outline(seen) == ['task submitted', 'working', "'Before the gate, ' append"]
    assert (outline([there]), text_of(there['result']['task'])) == (['task working'], 'Before the gate, ')
    assert outline(rest) == snapshot(["'and after.' append", "'' append last_chunk", 'completed'])
    assert [event['result'] for event in following] == [event['result'] for event in rest]


@covers(FASTA2A, 'failed run')
async def test_failed_task_has_safe_reason_and_correlation_id() -> None:
    with uvicorn('tests.e2e.apps:app') as server:
        async with fasta2a_client(server.url) as client:
            task = await sent(client, text_message('explode'))
            failed = await ended(client, task['id'])
    message = failed['status']['message']
    assert failed['status']['state'] == 'failed'
    assert message['parts'] == [{'text': 'The agent failed with an internal error.'}]
    assert message['metadata']['correlationId'] in server.output


@covers(FASTA2A)
async def test_files_are_sent_and_received(mirror: Process) -> None:
    async with fasta2a_client(mirror.url) as client:
        task = await sent(client, send(Part(text='both'), DOT, TABLE))
        done = await ended(client, task['id'])
        events = await collect(client.stream_message(send(Part(text='both'), DOT, TABLE)))
    (artifact,) = done['artifacts']
    streamed = [event['result']['artifact_update'] for event in events if 'artifact_update' in event['result']]
    assert artifact['parts'] == streamed[-1]['artifact']['parts'] == [{'text': 'Here are 2 files.'}, DOT, TABLE]
    assert done['history'][0]['parts'] == [{'text': 'both'}, DOT, TABLE]


@covers(FASTA2A)
async def test_data_parts_are_sent_and_received(mirror: Process) -> None:
    data = {'name': 'Zoë', 'sizes': [1, 2.5, None], 'nested': {'yes': True}}
    parts: list[Part] = [{'data': data}, DOT, {'url': 'https://example.com/a.png', 'media_type': 'image/png'}]
    async with fasta2a_client(mirror.url) as client:
        task = await sent(client, send(*parts))
        done = await ended(client, task['id'])
    assert done['history'][0]['parts'] == parts
    (artifact,) = done['artifacts']
    assert artifact['parts'] == snapshot(
        [
            {
                'data': {
                    'result': {
                        'data': {'name': 'Zoë', 'sizes': [1, 2.5, None], 'nested': {'yes': True}},
                        'files': ['dot.png: image/png', 'https://example.com/a.png'],
                    }
                },
                'metadata': {
                    'json_schema': {
                        'description': 'What the mirror got.',
                        'properties': {
                            'data': {'additionalProperties': True, 'title': 'Data', 'type': 'object'},
                            'files': {'items': {'type': 'string'}, 'title': 'Files', 'type': 'array'},
                        },
                        'required': ['data', 'files'],
                        'title': 'Seen',
                        'type': 'object',
                    }
                },
            }
        ]
    )


@covers(FASTA2A)
async def test_each_error_has_its_json_rpc_code(server: Process) -> None:
    async with fasta2a_client(server.url) as client:
        done = await sent(client, text_message('say done'))
        await ended(client, done['id'])
        wrong = {
            'continue unknown': text_message('say it', task_id='unknown'),
            'continue done': text_message('say it', task_id=done['id']),
            'other context': text_message('say it', task_id=done['id'], context_id='other'),
            'bytes of no type': send({'raw': '/v8AAQ=='}),
        }
        refused: dict[str, Any] = {call: await client.send_message(message) for call, message in wrong.items()}
        streamed = {call: await collect(client.stream_message(message)) for call, message in wrong.items()}
        refused |= {'get unknown': await client.get_task('unknown'), 'cancel unknown': await cancel(client, 'unknown')}
        events = await collect(resubscribe(client, 'unknown'))
    assert {
        call: (answer['error']['code'], answer['error']['message']) for call, answer in refused.items()
    } == snapshot(
        {
            'continue unknown': (-32001, 'Task not found'),
            'continue done': (-32004, 'This operation is not supported'),
            'other context': (-32602, 'Invalid parameters'),
            'bytes of no type': (-32005, 'Incompatible content types'),
            'get unknown': (-32001, 'Task not found'),
            'cancel unknown': (-32001, 'Task not found'),
        }
    )
    assert {call: [event['error'] for event in there] for call, there in streamed.items()} == {
        call: [refused[call]['error']] for call in wrong
    }
    assert [event['error'] for event in events] == [refused['get unknown']['error']]
