"""The official client of A2A 0.3 against a real server."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Coroutine, Generator
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from pydantic_ai_a2a.wire.extensions import own_extensions, pending_calls_extension

from ..behaviour.promised_behaviours import covers
from .official_0_3 import OFFICIAL_0_3, ClientError, client_0_3, collect, outline, text_of
from .server import Gates, Process, uvicorn
from .test_client import PNG
from .venvs import python_with_a2a_sdk_0_3

DOT = {'kind': 'file', 'file': {'bytes': b64encode(PNG).decode(), 'mimeType': 'image/png', 'name': 'dot.png'}}
TABLE = {'kind': 'file', 'file': {'bytes': b64encode(b'a,b\n').decode(), 'mimeType': 'text/csv', 'name': 'a.csv'}}


@pytest.fixture(scope='session')
def python() -> Path:
    return python_with_a2a_sdk_0_3()


@pytest.fixture(scope='module')
def server(python: Path) -> Generator[Process]:
    with uvicorn('tests.e2e.apps:app') as running:
        yield running
    assert running.complaints == []


@pytest.fixture(scope='module')
def mirror(python: Path) -> Generator[Process]:
    with uvicorn('tests.e2e.apps:mirror') as running:
        yield running
    assert running.complaints == []


@covers(OFFICIAL_0_3, 'card')
async def test_client_reads_agent_card(python: Path, server: Process) -> None:
    async with client_0_3(python, server.url) as client:
        card = await client.card()
    assert card.pop('url') == server.url
    (skill,) = card.pop('skills')
    modes = card.pop('defaultInputModes')
    assert card == snapshot(
        {
            'capabilities': {
                'extensions': [
                    own_extensions.RUN_METADATA,
                    own_extensions.LIVE_TEXT,
                    pending_calls_extension.PENDING_CALLS,
                    own_extensions.REPLAY,
                ],
                'pushNotifications': False,
                'streaming': True,
            },
            'defaultOutputModes': ['text/plain'],
            'description': 'Does what it is told.',
            'name': 'Puppet',
            'preferredTransport': 'JSONRPC',
            'protocolVersion': '0.3.0',
            'supportsAuthenticatedExtendedCard': False,
            'version': '1.0.0',
        }
    )
    assert (skill['id'], skill['inputModes'], 'image/png' in modes) == ('puppet', modes, True)


@covers(OFFICIAL_0_3)
async def test_blocking_send_returns_completed_task(python: Path, server: Process) -> None:
    async with client_0_3(python, server.url, streaming=False) as client:
        task = await client.task_of('say hello to everybody')
        same = await client.get(task['id'])
        shortened = await client.get(task['id'], history_length=1)
    assert (task['status']['state'], text_of(task)) == ('completed', 'hello to everybody ')
    assert [(message['role'], message['parts'][0]['text']) for message in task['history']] == [
        ('user', 'say hello to everybody'),
        ('agent', 'hello to everybody '),
    ]
    assert same == task
    assert shortened == {**task, 'history': task['history'][-1:]}


@covers(OFFICIAL_0_3)
async def test_answer_text_is_streamed_in_pieces(python: Path, server: Process) -> None:
    async with client_0_3(python, server.url) as client:
        events = await collect(client.send('say hello to everybody'))
        task = await client.get(events[0]['task']['id'])
    assert outline(events) == snapshot(
        [
            'task submitted',
            'working',
            "'hello '",
            "'to ' append",
            "'everybody ' append",
            "'' append lastChunk",
            'completed final',
        ]
    )
    assembled = events[-1]['task']
    assert (text_of(assembled), assembled['status']) == (text_of(task), task['status'])


@covers(OFFICIAL_0_3, 'text between tool calls')
async def test_text_beside_tool_call_becomes_status_message(python: Path, server: Process) -> None:
    await Gates(server.url).open('open')
    async with client_0_3(python, server.url) as client:
        events = await collect(client.send('use open'))
    assert outline(events) == snapshot(
        [
            'task submitted',
            'working',
            "'I use a tool.'",
            "working 'I use a tool.'",
            "'The tool is done.'",
            "'' append lastChunk",
            'completed final',
        ]
    )
    assert text_of(events[-1]['task']) == 'The tool is done.'


@covers(OFFICIAL_0_3)
async def test_conversation_continues_in_its_context(python: Path, server: Process) -> None:
    async with client_0_3(python, server.url, streaming=False) as client:
        first = await client.task_of('say one')
        second = await client.task_of('recall', context_id=first['contextId'])
        elsewhere = await client.task_of('recall')
    assert (second['contextId'], second['id'] != first['id']) == (first['contextId'], True)
    assert text_of(second) == 'Before, you said: say one.'
    assert text_of(elsewhere) == 'Before, you said: .'


@covers(OFFICIAL_0_3, 'blocking (1.0 default) / `returnImmediately` / 0.3 `blocking`')
async def test_non_blocking_send_gives_submitted_task(python: Path, server: Process) -> None:
    gates = Gates(server.url)
    async with client_0_3(python, server.url, streaming=False, polling=True) as client:
        task = await client.task_of('wait poll-0.3')
        await gates.reached('poll-0.3')
        running = await client.get(task['id'])
    async with client_0_3(python, server.url) as streaming:
        subscription = streaming.resubscribe(task['id'])
        events = [await anext(subscription)]
        await gates.open('poll-0.3')
        events += await collect(subscription)
    assert (task['status']['state'], running['status']['state']) == ('submitted', 'working')
    assert outline(events)[-1] == 'completed final'


@covers(OFFICIAL_0_3, 'cancel a running task')
@pytest.mark.parametrize('command', ['use', 'wait'], ids=['in a tool', 'in the model'])
async def test_cancel_returns_after_run_has_stopped(python: Path, server: Process, command: str) -> None:
    gates, gate = Gates(server.url), f'cancel-{command}-0.3'
    async with client_0_3(python, server.url) as client:
        stream = client.send(f'{command} {gate}')
        task_id = (await anext(stream))['task']['id']
        await gates.reached(gate)
        canceled = await client.cancel(task_id)
        assert await gates.stopped(gate)
        rest = await collect(stream)
    assert canceled['status']['state'] == 'canceled'
    assert outline(rest)[-1] == 'canceled final'


@covers(OFFICIAL_0_3, 'resubscribe in mid-run')
async def test_resubscriber_gets_snapshot_then_remaining_events(python: Path, server: Process) -> None:
    gates = Gates(server.url)
    async with client_0_3(python, server.url) as client, client_0_3(python, server.url) as late:
        stream = client.send('wait subscribe-0.3')
        seen = [await anext(stream) for _ in range(3)]
        subscription = late.resubscribe(seen[0]['task']['id'])
        there = await anext(subscription)
        await gates.open('subscribe-0.3')
        following, rest = await collect(subscription), await collect(stream)
    assert outline(seen) == ['task submitted', 'working', "'Before the gate, '"]
    assert (outline([there]), text_of(there['task'])) == (['task working'], 'Before the gate, ')
    assert outline(rest) == snapshot(["'and after.' append", "'' append lastChunk", 'completed final'])
    assert [event['update'] for event in following] == [event['update'] for event in rest]
    assert text_of(following[-1]['task']) == text_of(rest[-1]['task']) == 'Before the gate, and after.'


@covers(OFFICIAL_0_3)
async def test_resubscribe_to_ended_task_returns_the_task(python: Path, server: Process) -> None:
    async with client_0_3(python, server.url) as client:
        sent = await collect(client.send('say done'))
        events = await collect(client.resubscribe(sent[0]['task']['id']))
    assert outline(events) == ['task completed']


@covers(OFFICIAL_0_3, 'failed run')
@pytest.mark.parametrize('streaming', [False, True])
async def test_failed_task_has_safe_reason_and_correlation_id(python: Path, streaming: bool) -> None:
    with uvicorn('tests.e2e.apps:app') as server:
        async with client_0_3(python, server.url, streaming=streaming) as client:
            task = (await collect(client.send('explode')))[-1]['task']
    message = task['status']['message']
    assert (task['status']['state'], [part['text'] for part in message['parts']]) == (
        'failed',
        ['The agent failed with an internal error.'],
    )
    assert message['metadata']['correlationId'] in server.output


@covers(OFFICIAL_0_3)
@pytest.mark.parametrize('streaming', [False, True])
async def test_files_are_sent_and_received(python: Path, mirror: Process, streaming: bool) -> None:
    async with client_0_3(python, mirror.url, streaming=streaming) as client:
        answers = await collect(client.send(parts=[{'kind': 'text', 'text': 'both'}, DOT, TABLE]))
        task = await client.get(answers[0]['task']['id'])
    for each in (answers[-1]['task'], task):
        (artifact,) = each['artifacts']
        assert artifact['parts'] == [{'kind': 'text', 'text': 'Here are 2 files.'}, DOT, TABLE]
    assert task['history'][0]['parts'][1:] == [DOT, TABLE]


@covers(OFFICIAL_0_3)
@pytest.mark.parametrize('streaming', [False, True])
async def test_data_parts_are_sent_and_received(python: Path, mirror: Process, streaming: bool) -> None:
    data = {'name': 'Zoë', 'sizes': [1, 2.5, None], 'nested': {'yes': True}}
    linked = {'kind': 'file', 'file': {'uri': 'https://example.com/a.png', 'mimeType': 'image/png'}}
    async with client_0_3(python, mirror.url, streaming=streaming) as client:
        parts = [{'kind': 'data', 'data': data}, DOT, linked]
        answers = await collect(client.send(parts=parts))
        task = await client.get(answers[0]['task']['id'])
    assert answers[-1]['task']['artifacts'] == task['artifacts']
    assert task['history'][0]['parts'] == parts
    ((part,),) = [artifact['parts'] for artifact in task['artifacts']]
    assert part == snapshot(
        {
            'data': {
                'result': {
                    'data': {'name': 'Zoë', 'sizes': [1, 2.5, None], 'nested': {'yes': True}},
                    'files': ['dot.png: image/png', 'https://example.com/a.png'],
                }
            },
            'kind': 'data',
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
                },
                'python_type': 'Seen',
            },
        }
    )


@covers(OFFICIAL_0_3)
@pytest.mark.parametrize('streaming', [False, True])
async def test_each_error_has_its_json_rpc_code(python: Path, server: Process, streaming: bool) -> None:
    async with client_0_3(python, server.url, streaming=streaming) as client:
        done = (await collect(client.send('say done')))[-1]['task']
        calls: dict[str, Coroutine[Any, Any, object]] = {
            'get unknown': client.get('unknown'),
            'cancel unknown': client.cancel('unknown'),
            'continue unknown': collect(client.send('say it', task_id='unknown')),
            'cancel done': client.cancel(done['id']),
            'continue done': collect(client.send('say it', task_id=done['id'])),
            'other context': collect(client.send('say it', task_id=done['id'], context_id='other')),
            'no parts': collect(client.send(parts=[])),
            'bytes of no type': collect(client.send(parts=[{'kind': 'file', 'file': {'bytes': '/v8AAQ=='}}])),
            'push': client.push(done['id']),
        }
        if streaming:
            calls['subscribe unknown'] = collect(client.resubscribe('unknown'))
        refused = dict(zip(calls, await asyncio.gather(*calls.values(), return_exceptions=True), strict=True))
    assert {call: error.code if isinstance(error, ClientError) else error for call, error in refused.items()} == {
        'get unknown': -32001,
        'cancel unknown': -32001,
        'continue unknown': -32001,
        'cancel done': -32002,
        'continue done': -32004,
        'other context': -32602,
        'no parts': -32602,
        'bytes of no type': -32005,
        'push': -32003,
        **({'subscribe unknown': -32001} if streaming else {}),
    }
