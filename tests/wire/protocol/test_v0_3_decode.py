"""Reading A2A 0.3 requests."""

from __future__ import annotations

import json
from typing import Any

import pytest
from a2a.compat.v0_3 import conversions, types
from a2a.types import a2a_pb2
from google.protobuf.json_format import MessageToDict, Parse
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from pydantic_ai_a2a.types import (
    CardParams,
    CreatePushParams,
    GetParams,
    ListPushParams,
    PushParams,
    PushTarget,
    SendParams,
)
from pydantic_ai_a2a.wire.protocol.operations import OPERATIONS, Params
from pydantic_ai_a2a.wire.protocol.rpc_requests import RpcRequest
from pydantic_ai_a2a.wire.protocol.stored_values import dump_message
from pydantic_ai_a2a.wire.protocol.v0_3 import METHODS
from pydantic_ai_a2a.wire.protocol.v1_0 import V1_0

from .dialect_requests import REQUESTS_0_3, WAITING_STATES, rpc
from .fuzzing import NAMES, STRUCT, messages

CODEC = REQUESTS_0_3.codec
bad, decoded, message = REQUESTS_0_3.bad, REQUESTS_0_3.decoded, REQUESTS_0_3.message
minimal, sent = REQUESTS_0_3.minimal, REQUESTS_0_3.sent


def test_minimal_send_message_is_decoded() -> None:
    body = b"""{"jsonrpc": "2.0", "id": "x", "method": "message/send", "params": {"message": {
        "kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "Hi"}]}}}"""

    assert CODEC.decode(body) == RpcRequest(
        id=b'"x"',
        operation=OPERATIONS['SendMessage'],
        params=SendParams(
            message={'message_id': 'm', 'role': 'user', 'parts': [{'text': 'Hi'}]}, also_ends=WAITING_STATES
        ),
    )


EVERYTHING = {
    'message': {
        'kind': 'message',
        'messageId': 'm',
        'contextId': 'c',
        'taskId': 't',
        'role': 'user',
        'parts': [
            {'kind': 'text', 'text': 'Hi', 'metadata': {'k': [None, True, 0.5, 'v']}},
            {'kind': 'file', 'file': {'bytes': 'AAEC', 'name': 'a.bin', 'mimeType': 'application/octet-stream'}},
            {'kind': 'file', 'file': {'uri': 'https://example.com/a.png', 'mimeType': 'image/png'}, 'metadata': {}},
            {'kind': 'data', 'data': {'role': 'agent', 'messageId': 1.5}},
            {'kind': 'data', 'data': {'value': [1]}, 'metadata': {'data_part_compat': True, 'k': 'v'}},
        ],
        'metadata': {'message_id': 'mine'},
        'extensions': ['https://example.com/ext'],
        'referenceTaskIds': ['t0'],
    },
    'configuration': {
        'acceptedOutputModes': ['text/plain', 'application/json'],
        'pushNotificationConfig': {'url': 'https://example.com/hook', 'token': 'secret'},
        'historyLength': 3,
        'blocking': False,
    },
    'metadata': {'trace': 'x'},
}


def test_every_send_field_is_decoded() -> None:
    assert decoded('message/stream', EVERYTHING) == snapshot(
        SendParams(
            message={
                'message_id': 'm',
                'context_id': 'c',
                'task_id': 't',
                'role': 'user',
                'parts': [
                    {'text': 'Hi', 'metadata': {'k': [None, True, 0.5, 'v']}},
                    {'raw': 'AAEC', 'filename': 'a.bin', 'media_type': 'application/octet-stream'},
                    {'url': 'https://example.com/a.png', 'media_type': 'image/png', 'metadata': {}},
                    {'data': {'role': 'agent', 'messageId': 1.5}},
                    {'data': [1], 'metadata': {'k': 'v'}},
                ],
                'metadata': {'message_id': 'mine'},
                'extensions': ['https://example.com/ext'],
                'reference_task_ids': ['t0'],
            },
            return_immediately=True,
            history_length=3,
            accepted_output_modes=('text/plain', 'application/json'),
            push_config=PushTarget(id='', url='https://example.com/hook', token='secret'),
            push_field='configuration.pushNotificationConfig',
            metadata={'trace': 'x'},
            also_ends=WAITING_STATES,
        )
    )


@st.composite
def official_requests(draw: st.DrawFn) -> types.SendMessageRequest:
    """Requests as users of the official SDK build them."""
    core = Parse(dump_message(draw(messages('user'))).replace(b'\\u0000', b'\\u2400'), a2a_pb2.Message())
    config = st.builds(
        types.MessageSendConfiguration,
        blocking=st.none() | st.booleans(),
        history_length=st.none() | st.integers(min_value=0, max_value=3),
        accepted_output_modes=st.none() | NAMES,
        push_notification_config=st.none() | st.just(types.PushNotificationConfig(url='https://example.com')),
    )
    params = types.MessageSendParams(
        message=conversions.to_compat_message(core),
        configuration=draw(st.none() | config),
        metadata=draw(st.none() | STRUCT.filter(lambda metadata: '\\u0000' not in json.dumps(metadata))),
    )
    return types.SendMessageRequest(id=1, params=params)


def comparable_params(params: Params | None) -> Any:
    """What a request says, but for its dialect, and for empty metadata: the official SDK drops some of it.

    Push configurations have another shape in 1.0.
    """
    assert isinstance(params, SendParams)
    said: dict[str, Any] = {**params.message}
    said['parts'] = [
        {key: value for key, value in part.items() if (key, value) != ('metadata', {})} for part in said['parts']
    ]
    return (
        {key: value for key, value in said.items() if value != {}},
        params.return_immediately,
        params.history_length,
        params.accepted_output_modes,
        params.push_config is None,
        params.metadata or None,
    )


@given(official_requests(), st.booleans())
def test_official_request_decodes_alike_in_both_versions(request: types.SendMessageRequest, nulls: bool) -> None:
    body = request.model_dump_json(by_alias=True, exclude_none=not nulls).encode()
    core: Any = MessageToDict(conversions.to_core_send_message_request(request))
    same = json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': 'SendMessage', 'params': core}).encode()

    assert comparable_params(CODEC.decode(body).params) == comparable_params(V1_0().decode(same).params)


def test_unknown_fields_are_ignored() -> None:
    part = {'kind': 'text', 'text': 'Hi', 'mediaType': 5, 'raw': 5, 'filename': 5}
    file = {'kind': 'file', 'file': {'uri': 'x', 'mime_type': 5, 'x': 5}}
    params = {
        'message': minimal(parts=[part, file], context_id=5, tenant=5),
        'configuration': {'returnImmediately': 5, 'history_length': 5, 'x': 5},
        'tenant': 5,
    }
    body = json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': 'message/send', 'params': params, 'x': {}}).encode()

    assert CODEC.decode(body).params == sent(message=minimal(parts=[part, {'kind': 'file', 'file': {'uri': 'x'}}]))
    assert message(parts=[part]) == message()


def test_snake_case_field_names_are_not_read() -> None:
    assert bad('message/send', {'message': {'message_id': 'm', 'role': 'user', 'parts': []}}) == snapshot(
        {
            'message.messageId': 'Field required',
            'message.parts': 'List should have at least 1 item after validation, not 0',
        }
    )
    assert decoded('tasks/get', {'id': 't', 'history_length': 1}) == GetParams(id='t')


@pytest.mark.parametrize('key', ['pushNotificationConfig', 'taskPushNotificationConfig'])
def test_push_config_is_read_by_both_field_names(key: str) -> None:
    assert sent(configuration={key: {'url': 'x'}}).push_config == PushTarget(id='', url='x')


@pytest.mark.parametrize('data', [{}, {'value': 1}, {'a': None}, {'kind': 'text'}])
def test_data_part_holds_an_object(data: Any) -> None:
    assert message(parts=[{'kind': 'data', 'data': data}])['parts'] == [{'data': data}]


@pytest.mark.parametrize('value', [None, '', 'x', 0, 1.5, True, [], [None], {}, {'value': 1}])
def test_data_wrapped_by_official_sdk_is_unwrapped(value: Any) -> None:
    part = {'kind': 'data', 'data': {'value': value}, 'metadata': {'data_part_compat': True}}

    assert message(parts=[part])['parts'] == [{'data': value}]


@pytest.mark.parametrize(
    ('data', 'metadata'),
    [
        pytest.param({'value': 1}, {'data_part_compat': False}, id='says no'),
        pytest.param({'value': 1}, {'data_part_compat': 'yes'}, id='says something else'),
        pytest.param({'other': 1}, {'data_part_compat': True}, id='nothing is wrapped'),
        pytest.param({'value': 1}, {}, id='says nothing'),
    ],
)
def test_data_without_wrapper_mark_is_kept(data: Any, metadata: Any) -> None:
    part = {'kind': 'data', 'data': data, 'metadata': metadata}

    assert message(parts=[part])['parts'] == [{'data': data, 'metadata': metadata}]


@pytest.mark.parametrize(
    ('file', 'part'),
    [
        ({'bytes': ''}, {'raw': ''}),
        ({'bytes': 'AA'}, {'raw': 'AA=='}),
        ({'bytes': '-_8', 'uri': ''}, {'raw': '+/8='}),
        ({'uri': 'file:///x', 'name': 'é'}, {'url': 'file:///x', 'filename': 'é'}),
        ({'uri': 'x', 'bytes': None, 'mimeType': 'a/b'}, {'url': 'x', 'media_type': 'a/b'}),
    ],
)
def test_file_part_becomes_raw_or_url(file: Any, part: Any) -> None:
    assert message(parts=[{'kind': 'file', 'file': file}])['parts'] == [part]


PUSH = 'tasks/pushNotificationConfig/'


@pytest.mark.parametrize(
    ('method', 'params', 'expected'),
    [
        (
            f'{PUSH}set',
            {'taskId': 't', 'pushNotificationConfig': {'url': 'x', 'authentication': {'schemes': ['Basic', 'Bearer']}}},
            CreatePushParams(
                task_id='t',
                target=PushTarget(id='', url='x', scheme='Basic'),
                field='pushNotificationConfig',
            ),
        ),
        (f'{PUSH}get', {'id': 't'}, PushParams(task_id='t')),
        (f'{PUSH}get', {'id': 't', 'pushNotificationConfigId': 'c'}, PushParams(task_id='t', id='c')),
        (f'{PUSH}delete', {'id': 't', 'pushNotificationConfigId': 'c'}, PushParams(task_id='t', id='c')),
        (f'{PUSH}list', {'id': 't'}, ListPushParams(task_id='t')),
        ('agent/getAuthenticatedExtendedCard', 5, CardParams()),
    ],
)
def test_push_config_and_card_params_are_decoded(method: str, params: object, expected: Any) -> None:
    assert CODEC.decode(rpc(method, params)) == RpcRequest(b'1', METHODS[method], expected)


def test_methods_match_official_sdk_requests() -> None:
    requests: list[Any] = list(types.A2ARequest.model_fields['root'].annotation.__args__)  # type: ignore[union-attr]

    assert {request.model_fields['method'].default for request in requests} == METHODS.keys()
