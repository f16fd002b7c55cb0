"""Reading A2A 1.0 requests."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from a2a.types import a2a_pb2
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from pydantic_ai_a2a.types import (
    CardParams,
    CreatePushParams,
    GetParams,
    ListParams,
    ListPushParams,
    PushParams,
    PushTarget,
    SendParams,
)
from pydantic_ai_a2a.wire.protocol import stored
from pydantic_ai_a2a.wire.protocol.operations import OPERATIONS
from pydantic_ai_a2a.wire.protocol.rpc_requests import RpcRequest
from pydantic_ai_a2a.wire.protocol.stored import STATES

from .dialect_requests import REQUESTS_1_0, rpc

CODEC = REQUESTS_1_0.codec
decoded, message, minimal = REQUESTS_1_0.decoded, REQUESTS_1_0.message, REQUESTS_1_0.minimal


def test_minimal_send_message_is_decoded() -> None:
    body = b"""{"jsonrpc": "2.0", "id": "x", "method": "SendMessage", "params": {
        "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}}}"""

    assert CODEC.decode(body) == RpcRequest(
        id=b'"x"',
        operation=OPERATIONS['SendMessage'],
        params=SendParams(message={'message_id': 'm', 'role': 'user', 'parts': [{'text': 'Hi'}]}),
    )


EVERYTHING = {
    'tenant': 'acme',
    'message': {
        'messageId': 'm',
        'contextId': 'c',
        'taskId': 't',
        'role': 'ROLE_USER',
        'parts': [
            {'text': 'Hi', 'metadata': {'k': [None, True, 0.5, 'v']}},
            {'raw': 'AAEC', 'filename': 'a.bin', 'mediaType': 'application/octet-stream'},
            {'url': 'https://example.com/a.png', 'mediaType': 'image/png'},
            {'data': {'role': 'ROLE_USER', 'messageId': 1.5}},
            {'data': None},
        ],
        'metadata': {'message_id': 'mine'},
        'extensions': ['https://example.com/ext'],
        'referenceTaskIds': ['t0'],
    },
    'configuration': {
        'acceptedOutputModes': ['text/plain', 'application/json'],
        'taskPushNotificationConfig': {'url': 'https://example.com/hook', 'token': 'secret'},
        'historyLength': 0,
        'returnImmediately': True,
    },
    'metadata': {'trace': 'x'},
}


def test_every_send_field_is_decoded() -> None:
    assert decoded('SendStreamingMessage', EVERYTHING) == snapshot(
        SendParams(
            message={
                'message_id': 'm',
                'context_id': 'c',
                'task_id': 't',
                'role': 'user',
                'parts': [
                    {'text': 'Hi', 'metadata': {'k': [None, True, 0.5, 'v']}},
                    {'raw': 'AAEC', 'filename': 'a.bin', 'media_type': 'application/octet-stream'},
                    {'url': 'https://example.com/a.png', 'media_type': 'image/png'},
                    {'data': {'role': 'ROLE_USER', 'messageId': 1.5}},
                    {'data': None},
                ],
                'metadata': {'message_id': 'mine'},
                'extensions': ['https://example.com/ext'],
                'reference_task_ids': ['t0'],
            },
            return_immediately=True,
            history_length=0,
            accepted_output_modes=('text/plain', 'application/json'),
            push_config=PushTarget(id='', url='https://example.com/hook', token='secret'),
            metadata={'trace': 'x'},
            tenant='acme',
        )
    )


@pytest.mark.parametrize('numbers', [True, False], ids=['numbers', 'names'])
@pytest.mark.parametrize('snake', [True, False], ids=['snake_case', 'camelCase'])
def test_official_sdk_request_is_decoded_in_any_json_style(snake: bool, numbers: bool) -> None:
    request = json_format.ParseDict(EVERYTHING, a2a_pb2.SendMessageRequest())
    params: dict[str, Any] = json_format.MessageToDict(
        request, preserving_proto_field_name=snake, use_integers_for_enums=numbers
    )
    sent = decoded('SendMessage', params)
    assert isinstance(sent, SendParams)
    config = PushTarget(id='', url='https://example.com/hook', token='secret')

    assert sent == decoded('SendMessage', EVERYTHING)
    assert sent.push_config == config


def test_unknown_fields_are_ignored() -> None:
    params = {
        'message': minimal(parts=[{'text': 'Hi', 'kind': 'text'}], kind='message'),
        'configuration': {'blocking': 5, 'pushNotificationConfig': 5},
        'x': 5,
    }
    body = json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': 'SendMessage', 'params': params, 'x': {}}).encode()

    assert CODEC.decode(body).params == SendParams(message=message())


@pytest.mark.parametrize('value', [None, '', 'x', 0, 1.5, True, [], [None], {}, {'a': None}])
def test_data_part_holds_any_json_value(value: Any) -> None:
    assert message(parts=[{'data': value}])['parts'] == [{'data': value}]


@pytest.mark.parametrize(
    ('sent', 'read'),
    [('', ''), ('AA', 'AA=='), ('AA==', 'AA=='), ('-_8', '+/8='), ('QUJD', 'QUJD')],
)
def test_raw_base64_is_normalized_to_padded_standard(sent: str, read: str) -> None:
    assert message(parts=[{'raw': sent}])['parts'] == [{'raw': read}]


def test_get_task_params_may_use_snake_case() -> None:
    assert decoded('GetTask', {'id': 't', 'history_length': 3, 'tenant': ''}) == GetParams(id='t', history_length=3)


@pytest.mark.parametrize('length', [5, 5.0, '5', '5.0'])
def test_history_length_may_be_string_or_float(length: object) -> None:
    assert decoded('GetTask', {'id': 't', 'historyLength': length}) == GetParams(id='t', history_length=5)


def test_every_list_tasks_field_is_decoded() -> None:
    params = {
        'tenant': 'acme',
        'contextId': 'c',
        'status': 'TASK_STATE_INPUT_REQUIRED',
        'pageSize': '100',
        'pageToken': 'p',
        'historyLength': 2,
        'statusTimestampAfter': '2026-01-01T00:00:00Z',
        'includeArtifacts': True,
    }

    assert decoded('ListTasks', params) == snapshot(
        ListParams(
            context_id='c',
            state='input-required',
            since=1767225600000,
            page_size=100,
            page_token='p',
            history_length=2,
            include_artifacts=True,
            tenant='acme',
        )
    )


def test_empty_list_tasks_filters_count_as_unset() -> None:
    params = {'contextId': '', 'status': 'TASK_STATE_UNSPECIFIED', 'pageToken': '', 'pageSize': None}

    assert decoded('ListTasks', params) == ListParams()


def test_task_states_are_decoded_by_name_and_number() -> None:
    assert [*STATES] == a2a_pb2.TaskState.keys()[1:]
    for name, state in STATES.items():
        assert decoded('ListTasks', {'status': name}) == ListParams(state=state)
        assert decoded('ListTasks', {'status': a2a_pb2.TaskState.Value(name)}) == ListParams(state=state)
    assert decoded('ListTasks', {'status': 0}) == ListParams()


@pytest.mark.parametrize(
    ('sent', 'since'),
    [
        ('1970-01-01T00:00:00Z', 0),
        ('1970-01-01T00:00:00.001Z', 1),
        ('1970-01-01T00:00:00.000001Z', 1),
        ('1970-01-01T00:00:00.123456789Z', 124),
        ('1970-01-01T01:00:00+01:00', 0),
        ('1969-12-31T23:59:59.9995Z', 0),
        ('0001-01-01T00:00:00+23:59', -62_135_683_140_000),
        ('9999-12-31T23:59:59-23:59', 253_402_387_139_000),
    ],
)
def test_timestamp_is_rounded_up_to_milliseconds(sent: str, since: int) -> None:
    assert decoded('ListTasks', {'statusTimestampAfter': sent}) == ListParams(since=since)


@given(
    st.datetimes(min_value=datetime(1, 1, 3), max_value=datetime(9999, 12, 29)),
    st.integers(min_value=-1439, max_value=1439),
)
def test_timestamp_with_any_utc_offset_is_decoded(local: datetime, offset: int) -> None:
    time = local.replace(tzinfo=timezone(timedelta(minutes=offset)))
    params = decoded('ListTasks', {'statusTimestampAfter': time.isoformat()})

    assert isinstance(params, ListParams)
    assert params.since is not None
    distance = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=params.since) - time
    assert timedelta(0) <= distance < timedelta(milliseconds=1)


@given(st.integers(min_value=0, max_value=253_402_300_799_999))
def test_encoded_timestamp_is_decoded_unchanged(ms: int) -> None:
    assert decoded('ListTasks', {'statusTimestampAfter': json.loads(stored.timestamp(ms))}) == ListParams(since=ms)


CREATE, TARGET = 'CreateTaskPushNotificationConfig', PushTarget(id='', url='x')


@pytest.mark.parametrize(
    ('method', 'params', 'expected'),
    [
        (CREATE, {'taskId': 't', 'url': 'x'}, CreatePushParams(task_id='t', target=TARGET)),
        (
            CREATE,
            {'task_id': 't', 'id': 'c', 'url': 'x', 'authentication': {'scheme': 'Basic'}, 'tenant': 'acme'},
            CreatePushParams(task_id='t', target=PushTarget(id='c', url='x', scheme='Basic'), tenant='acme'),
        ),
        ('GetTaskPushNotificationConfig', {'taskId': 't', 'id': 'c'}, PushParams(task_id='t', id='c')),
        ('DeleteTaskPushNotificationConfig', {'taskId': 't', 'id': 'c'}, PushParams(task_id='t', id='c')),
        ('ListTaskPushNotificationConfigs', {'taskId': 't'}, ListPushParams(task_id='t')),
        (
            'ListTaskPushNotificationConfigs',
            {'taskId': 't', 'pageSize': '2', 'pageToken': 'p', 'tenant': 'acme'},
            ListPushParams(task_id='t', page_size=2, page_token='p', tenant='acme'),
        ),
        ('GetExtendedAgentCard', None, CardParams()),
        ('GetExtendedAgentCard', {'tenant': 'acme'}, CardParams(tenant='acme')),
    ],
)
def test_push_config_and_card_params_are_decoded(method: str, params: object, expected: Any) -> None:
    assert CODEC.decode(rpc(method, params)) == RpcRequest(b'1', OPERATIONS[method], expected)


def test_missing_request_id_is_null() -> None:
    assert CODEC.decode(b'{"jsonrpc":"2.0","method":"ListTasks"}').id == b'null'
