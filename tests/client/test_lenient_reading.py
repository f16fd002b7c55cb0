"""Answers of other servers that are not quite A2A: what is needed is read, and the rest is left out with a warning."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from starlette.responses import Response

from pydantic_ai_a2a.client.answer_content import content_of
from pydantic_ai_a2a.errors import TaskNotFoundError
from pydantic_ai_a2a.wire.protocol import lenient_reading

from ..cases import each_case
from .canned_agent import (
    CARD,
    TASK,
    WORKING,
    CannedAgent,
    agent_message,
    artifact_update,
    canned_client,
    result_response,
    stream_response,
    task_in_state,
)

OLDER: dict[str, Any] = {
    'name': 'older',
    'protocolVersion': '0.3.0',
    'url': 'http://agent.example/rpc',
    'capabilities': {'streaming': True},
}
DONE: dict[str, Any] = {'id': 't', 'contextId': 'c', 'status': {'state': 'completed'}}


def artifact(*parts: Any, artifact_id: str = 'a') -> dict[str, Any]:
    return {'artifactId': artifact_id, 'parts': [*parts]}


async def send_to(*answers: Response, card: Any = CARD) -> Any:
    async with canned_client(CannedAgent(*answers, card=card)) as client:
        return (await client.send('hello')).outcome


@each_case(
    'raw',
    ['-_-_', '-_8', '+/8=', '+/8', 'AAEC\nAwQF\n'],
)
async def test_file_in_any_base64_variant_is_decoded(raw: str) -> None:
    file = {'kind': 'file', 'file': {'bytes': raw, 'mimeType': 'application/zip'}}
    task = await send_to(result_response({'kind': 'task', **DONE, 'artifacts': [artifact(file)]}), card=OLDER)
    expected = {'-_-_': b'\xfb\xff\xbf', 'AAEC\nAwQF\n': bytes(range(6))}.get(raw, b'\xfb\xff')
    assert content_of(task).data == expected


async def test_0_3_task_in_unknown_state_is_followed() -> None:
    unknown = {**DONE, 'status': {'state': 'unknown'}}
    task = await send_to(result_response(unknown), result_response({**DONE, 'kind': 'task'}), card=OLDER)
    assert task['status']['state'] == 'completed'


async def test_0_3_events_without_kind_are_recognized() -> None:
    ids = {'taskId': 't', 'contextId': 'c'}
    pieces = [
        {**DONE, 'status': {'state': 'submitted'}},
        {**ids, 'artifact': artifact({'text': 'Hello'})},
        {**ids, 'status': {'state': 'completed'}, 'final': True},
    ]
    task = await send_to(stream_response(*pieces), card=OLDER)
    assert task['artifacts'][0]['parts'] == [{'text': 'Hello'}]
    message = await send_to(result_response({'role': 'agent', 'parts': [{'text': 'Hi'}]}), card=OLDER)
    assert (message['message_id'], message['parts']) == ('', [{'text': 'Hi'}])


@each_case('state', ['cancelled', 'TASK_STATE_CANCELLED'])
async def test_state_spelled_cancelled_is_read_as_canceled(state: str) -> None:
    task = await send_to(result_response({'task': {**TASK, 'status': {'state': state}}}))
    assert task['status']['state'] == 'canceled'


async def test_message_without_role_is_of_agent() -> None:
    said = {'messageId': 'm', 'parts': [{'text': 'Hi'}]}
    message = await send_to(result_response({'message': {**said, 'role': None}}))
    assert (message['role'], message['parts']) == ('agent', [{'text': 'Hi'}])
    task = await send_to(stream_response({'task': {**TASK, 'history': [said]}}))
    assert task['history'][0]['role'] == 'agent'


@each_case(('binding', 'older'), [('jsonrpc', False), ('http+json', False), ('jsonrpc', True)])
async def test_binding_in_lower_case_is_accepted(binding: str, older: bool) -> None:
    url = 'http://agent.example/rpc'
    interface = {'protocolBinding': binding, 'url': url, 'protocolVersion': '1.0'}
    card = {**OLDER, 'preferredTransport': binding} if older else {**CARD, 'supportedInterfaces': [interface]}
    body = json.dumps(TASK) if binding == 'http+json' else json.dumps({'jsonrpc': '2.0', 'id': 1, 'result': TASK})
    async with canned_client(CannedAgent(Response(body, media_type='application/json'), card=card)) as client:
        assert (await client.get('t')).task_id == 't'


async def test_malformed_optional_values_are_dropped_with_warning(caplog: pytest.LogCaptureFixture) -> None:
    lenient_reading.warn_once.cache_clear()
    status: Any = {'state': 'TASK_STATE_COMPLETED', 'message': {'role': 'ROLE_AGENT', 'parts': [{'text': 'Half.'}, {}]}}
    history: list[Any] = [{'role': 'ROLE_AGENT', 'parts': []}, {}]
    faulty = {**TASK, 'status': status, 'history': history, 'metadata': 'x'}
    with caplog.at_level(logging.WARNING, 'pydantic_ai_a2a'):
        task = await send_to(result_response({'task': faulty}))
    assert content_of(task) == 'Half.'
    assert task['history'] == [{'role': 'agent', 'message_id': '', 'parts': []}]
    assert 'metadata' not in task
    [warning] = caplog.messages
    assert warning == (
        'http://agent.example/rpc has sent a value that cannot be read, and that is left out:'
        ' task.status.message.parts.1: must hold exactly one of text, raw, url and data'
    )


async def test_stream_ending_with_carriage_return_is_read() -> None:
    events = [{'task': WORKING}, {'task': TASK}]
    lines = [f'data: {json.dumps({"jsonrpc": "2.0", "id": 1, "result": event})}\r\r' for event in events]
    canned = CannedAgent(stream_response(*lines))
    async with canned_client(canned) as client:
        states = [update.state async for update in client.stream('hello')]
    assert states == ['working', 'completed']
    assert canned.methods == ['SendStreamingMessage']


async def test_stream_request_answered_with_json_is_followed() -> None:
    canned = CannedAgent(result_response({'task': WORKING}), result_response(TASK))
    async with canned_client(canned) as client:
        states = [update.state async for update in client.stream('hello')]
    assert states == ['working', 'completed']
    assert canned.methods == ['SendStreamingMessage', 'GetTask']


async def test_task_event_without_artifacts_keeps_streamed_artifacts() -> None:
    piece = artifact_update('Hello')
    task = await send_to(stream_response({'task': WORKING}, piece, {'task': TASK}))
    assert content_of(task) == 'Hello'
    emptied = await send_to(stream_response({'task': WORKING}, piece, {'task': {**TASK, 'artifacts': []}}))
    assert content_of(emptied) == ''


async def test_answers_of_conformance_specification_are_read() -> None:
    """Those of CLIENT-PARSE-001 to 006 of the A2A conformance test specification (ACTS)."""
    task = await send_to(result_response({'task': {**TASK, 'artifacts': [artifact({'text': 'hello world'})]}}))
    assert (task['id'], task['context_id'], task['status']['state']) == ('t', 'c', 'completed')
    assert len(task['artifacts']) == 1
    reply = agent_message('I can help with that', messageId='msg-001')
    message = await send_to(result_response({'message': reply}))
    assert (message['message_id'], message['role'], len(message['parts'])) == ('msg-001', 'agent', 1)
    task = await send_to(result_response({'task': task_in_state('INPUT_REQUIRED', reply)}))
    assert (task['status']['state'], task['status']['message']['role']) == ('input-required', 'agent')

    history = [{'role': role, 'parts': [{'text': 'a message without an id'}]} for role in ('ROLE_USER', 'ROLE_AGENT')]
    found = artifact({'text': 'result text'}), artifact({'data': {'key': 'value'}}, artifact_id='b')
    # Two of the parts are none of A2A: their artifacts stay.
    report = {'name': 'report.pdf', 'mediaType': 'application/pdf'}
    file = artifact({'file': {**report, 'bytes': 'JVBERi0xLjQ='}}, artifact_id='c')
    url = artifact({'fileUrl': {**report, 'url': 'https://example.com/report.pdf'}}, artifact_id='d')
    gone = {'code': -32001, 'message': 'Task not found', 'data': {'taskId': 'nonexistent-task-id'}}
    canned = CannedAgent(
        result_response({**TASK, 'artifacts': found, 'history': history}),
        result_response({**TASK, 'artifacts': [*found, file, url]}),
        Response(json.dumps({'jsonrpc': '2.0', 'id': 'req-004', 'error': gone}), media_type='application/json'),
    )
    async with canned_client(canned) as client:
        task = (await client.get('t')).outcome
        assert (len(task.get('artifacts', [])), len(task.get('history', []))) == (2, 2)
        assert len((await client.get('t')).outcome.get('artifacts', [])) == 4
        with pytest.raises(TaskNotFoundError, match='Task not found'):
            await client.get('t')
