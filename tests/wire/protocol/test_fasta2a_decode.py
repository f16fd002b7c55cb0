"""Reading the requests of FastA2A's client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fasta2a import schema
from hypothesis import given
from inline_snapshot import snapshot
from pydantic import TypeAdapter

from pydantic_ai_a2a.types import (
    CreatePushParams,
    GetParams,
    ListParams,
    ListPushParams,
    Message,
    PushParams,
    PushTarget,
    SendParams,
)
from pydantic_ai_a2a.wire.protocol.fasta2a_dialect import METHODS
from pydantic_ai_a2a.wire.protocol.operations import OPERATIONS
from pydantic_ai_a2a.wire.protocol.rpc_requests import RpcRequest

from .dialect_requests import REQUESTS_FASTA2A, WAITING_STATES, rpc
from .fuzzing import canonical_json, messages

CODEC = REQUESTS_FASTA2A.codec
bad, decoded, minimal = REQUESTS_FASTA2A.bad, REQUESTS_FASTA2A.decoded, REQUESTS_FASTA2A.minimal
refused, sent = REQUESTS_FASTA2A.refused, REQUESTS_FASTA2A.sent


def test_minimal_fasta2a_send_is_decoded() -> None:
    request = schema.SendMessageRequest(
        jsonrpc='2.0',
        id='x',
        method='message/send',
        params={'message': schema.Message(role='user', parts=[schema.Part(text='Hi')], message_id='m')},
    )

    assert CODEC.decode(schema.send_message_request_ta.dump_json(request, by_alias=True)) == RpcRequest(
        id=b'"x"',
        operation=OPERATIONS['SendMessage'],
        params=SendParams(
            message={'message_id': 'm', 'role': 'user', 'parts': [{'text': 'Hi'}]},
            return_immediately=True,
            also_ends=WAITING_STATES,
        ),
    )


def test_every_send_field_is_decoded() -> None:
    message: Message = {
        'message_id': 'm',
        'context_id': 'c',
        'task_id': 't',
        'role': 'user',
        'parts': [
            {'text': 'Hi', 'media_type': 'text/markdown', 'metadata': {'k': [None, True, 0.5, 'v']}},
            {'raw': 'AAEC', 'filename': 'a.bin', 'media_type': 'application/octet-stream'},
            {'url': 'https://example.com/a.png', 'media_type': 'image/png'},
            {'data': {'role': 'agent', 'messageId': 1.5}},
            {'data': None},
        ],
        'metadata': {'message_id': 'mine'},
        'extensions': ['https://example.com/ext'],
        'reference_task_ids': ['t0'],
    }
    params: schema.MessageSendParams = {
        'message': message,
        'configuration': {
            'accepted_output_modes': ['text/plain', 'application/json'],
            'blocking': True,
            'history_length': 3,
            'task_push_notification_config': {'url': 'https://example.com/hook', 'token': 'secret'},
        },
        'metadata': {'trace': 'x'},
        'tenant': 'acme',
    }
    request = schema.StreamMessageRequest(jsonrpc='2.0', id=1, method='message/stream', params=params)

    assert CODEC.decode(schema.stream_message_request_ta.dump_json(request, by_alias=True)) == RpcRequest(
        id=b'1',
        operation=OPERATIONS['SendStreamingMessage'],
        params=SendParams(
            message=message,
            return_immediately=False,
            history_length=3,
            accepted_output_modes=('text/plain', 'application/json'),
            push_config=PushTarget(id='', url='https://example.com/hook', token='secret'),
            metadata={'trace': 'x'},
            also_ends=WAITING_STATES,
        ),
    )


@given(messages('user'))
def test_any_fasta2a_message_is_decoded_unchanged(message: Message) -> None:
    """Except that NUL is refused."""
    message = json.loads(canonical_json(message).replace('\\u0000', '\\u2400'))
    request = schema.SendMessageRequest(jsonrpc='2.0', id=1, method='message/send', params={'message': message})
    params = CODEC.decode(schema.send_message_request_ta.dump_json(request, by_alias=True)).params

    assert isinstance(params, SendParams)
    assert canonical_json(params.message) == canonical_json(message)


def test_unknown_fields_are_ignored() -> None:
    params = {
        'message': minimal(parts=[{'text': 'Hi', 'kind': 5, 'x': 5}], kind=5, context_id=5),
        'configuration': {'returnImmediately': 5, 'history_length': 5},
        'tenant': 5,
    }
    body = json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': 'message/send', 'params': params, 'x': {}}).encode()

    assert CODEC.decode(body).params == sent()


@pytest.mark.parametrize('id', ['null', '"x"', '7'])
def test_null_request_id_is_accepted(id: str) -> None:
    body = f'{{"jsonrpc":"2.0","id":{id},"method":"tasks/get","params":{{"id":"t"}}}}'

    assert CODEC.decode(body.encode()) == RpcRequest(id.encode(), OPERATIONS['GetTask'], GetParams(id='t'))


def test_every_list_tasks_field_is_decoded() -> None:
    params: schema.ListTasksParams = {
        'context_id': 'c',
        'status': 'input-required',
        'status_timestamp_after': '2026-01-01T00:00:00Z',
        'history_length': 0,
        'include_artifacts': True,
        'page_size': 100,
        'page_token': 'p',
    }
    request = schema.ListTasksRequest(jsonrpc='2.0', id=1, method='tasks/list', params=params)

    assert CODEC.decode(schema.a2a_request_ta.dump_json(request, by_alias=True)).params == ListParams(
        context_id='c',
        state='input-required',
        since=1767225600000,
        page_size=100,
        page_token='p',
        history_length=0,
        include_artifacts=True,
    )


@pytest.mark.parametrize('value', ['TASK_STATE_WORKING', 'unknown', '', 1, True, [], {}])
def test_unknown_task_state_filter_is_refused(value: object) -> None:
    assert bad('tasks/list', {'status': value}) == snapshot(
        {
            'status': 'must be one of submitted, working, completed, failed, canceled, input-required, '
            'rejected, auth-required'
        }
    )


@pytest.mark.parametrize(
    ('method', 'params', 'expected'),
    [
        (
            'tasks/pushNotification/set',
            {'taskId': 't', 'url': 'x', 'tenant': 'acme'},
            CreatePushParams(task_id='t', target=PushTarget(id='', url='x')),
        ),
        ('tasks/pushNotification/get', {'taskId': 't', 'id': 'c'}, PushParams(task_id='t', id='c')),
        ('tasks/pushNotificationConfig/list', {'taskId': 't'}, ListPushParams(task_id='t')),
        ('tasks/pushNotificationConfig/delete', {'taskId': 't', 'id': 'c'}, PushParams(task_id='t', id='c')),
    ],
)
def test_push_config_params_are_decoded(method: str, params: object, expected: Any) -> None:
    assert CODEC.decode(rpc(method, params)) == RpcRequest(b'1', METHODS[method], expected)


def test_methods_match_fasta2a_schema() -> None:
    definitions: dict[str, Any] = TypeAdapter[Any](schema.A2ARequest).json_schema()['$defs']
    methods = {each['properties']['method']['const'] for each in definitions.values() if 'method' in each['properties']}

    assert methods == METHODS.keys()
