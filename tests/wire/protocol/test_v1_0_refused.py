"""What the codec of A2A 1.0 refuses, and how it says so."""

from __future__ import annotations

from typing import Any

import pytest
from inline_snapshot import snapshot

from pydantic_ai_a2a.wire.protocol.refused_requests import RpcRefused
from pydantic_ai_a2a.wire.protocol.stored import STATES

from .dialect_requests import REQUESTS_1_0, rpc

CODEC = REQUESTS_1_0.codec
bad, message, minimal, refused = REQUESTS_1_0.bad, REQUESTS_1_0.message, REQUESTS_1_0.minimal, REQUESTS_1_0.refused

DEEP = b'[' * 300 + b']' * 300


@pytest.mark.parametrize(
    'body',
    [
        pytest.param(b'', id='empty'),
        pytest.param(b' ', id='blank'),
        pytest.param(b'{"jsonrpc":"2.0","id":1,', id='cut off'),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"pageToken":"\xff"}}', id='not UTF-8'),
        pytest.param(b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ListTasks"}', id='byte order mark'),
        pytest.param(b'[' * 100_000, id='deep and cut off'),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":%s}' % DEEP, id='too deep'),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":%s}' % (DEEP[:300] * 30), id='abyss'),
        pytest.param(b'{"jsonrpc":"2.0","id":NaN,"method":"ListTasks"}', id='NaN as id'),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"ListTasks","x":NaN}', id='NaN in an unknown field'),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"x":-Infinity}}', id='-Infinity'),
        pytest.param(
            b'{"jsonrpc":"2.0","id":1,"method":"CancelTask","params":{"id":"t","metadata":{"x":[NaN]}}}', id='NaN'
        ),
        pytest.param(
            b'{"jsonrpc":"2.0","id":1,"method":"CancelTask","params":{"id":"t","metadata":{"x":[Infinity]}}}',
            id='Infinity',
        ),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"x":%s}}' % (b'9' * 5000), id='number'),
    ],
)
def test_invalid_json_is_a_parse_error_with_null_id(body: bytes) -> None:
    assert refused(body)[:2] == (-32700, b'null')


@pytest.mark.parametrize(
    'body',
    [b'42', b'"x"', b'null', b'true', b'[]', b'[{"jsonrpc":"2.0","id":1,"method":"ListTasks"}]'],
)
def test_non_object_body_is_an_invalid_request(body: bytes) -> None:
    assert refused(body)[:2] == (-32600, b'null')


@pytest.mark.parametrize(
    ('body', 'id'),
    [
        pytest.param(b'{}', b'null', id='nothing'),
        pytest.param(b'{"id":1,"method":"ListTasks"}', b'1', id='no jsonrpc'),
        pytest.param(b'{"jsonrpc":"1.0","id":1,"method":"ListTasks"}', b'1', id='other jsonrpc'),
        pytest.param(b'{"jsonrpc":2.0,"id":1,"method":"ListTasks"}', b'1', id='jsonrpc is a number'),
        pytest.param(b'{"jsonrpc":"2.0","id":"a"}', b'"a"', id='no method'),
        pytest.param(b'{"jsonrpc":"2.0","id":"a","method":null}', b'"a"', id='method is null'),
        pytest.param(b'{"jsonrpc":"2.0","id":"a","method":["ListTasks"]}', b'"a"', id='method is a list'),
        pytest.param(b'{"jsonrpc":"2.0","id":"a","method":"\\ud800"}', b'"a"', id='method is no text'),
        pytest.param(b'{"jsonrpc":"2.0","id":true,"method":"ListTasks"}', b'null', id='id is a bool'),
        pytest.param(b'{"jsonrpc":"2.0","id":1.5,"method":"ListTasks"}', b'null', id='id is a fraction'),
        pytest.param(b'{"jsonrpc":"2.0","id":1.0,"method":"ListTasks"}', b'null', id='id is a float'),
        pytest.param(b'{"jsonrpc":"2.0","id":{},"method":"ListTasks"}', b'null', id='id is an object'),
        pytest.param(b'{"jsonrpc":"2.0","id":[],"method":"GetTask"}', b'null', id='id is a list, and params missing'),
        pytest.param(b'{"jsonrpc":"2.0","id":"\\udfff","method":"ListTasks"}', b'null', id='id is no text'),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"ListTasks","x":"\\ud800"}', b'1', id='unknown is no text'),
        pytest.param(b'{"jsonrpc":"2.0","id":"%s","method":"ListTasks"}' % (b'x' * 257), b'null', id='long id'),
    ],
)
def test_wrong_json_rpc_envelope_is_an_invalid_request(body: bytes, id: bytes) -> None:
    assert refused(body)[:2] == (-32600, id)


@pytest.mark.parametrize('method', ['message/send', 'sendMessage', 'SendMessage ', '', 'x' * 1000])
def test_unknown_method_is_not_found_and_not_echoed(method: str) -> None:
    assert refused(rpc(method, {})) == (-32601, b'1', 'Method not found.')


def test_missing_params_are_named_in_the_error() -> None:
    assert refused(b'{"jsonrpc":"2.0","id":1,"method":"GetTask"}') == snapshot(
        (-32602, b'1', 'Invalid parameters: params: Field required')
    )


def test_every_bad_field_is_reported_with_its_json_path() -> None:
    params: dict[str, Any] = {
        'tenant': 5,
        'message': {
            'message_id': '',
            'contextId': 'c' * 257,
            'taskId': 'a\nb',
            'role': 'ROLE_AGENT',
            'parts': [
                {'text': 5},
                {'text': 'x', 'media_type': 5, 'metadata': []},
                {'raw': 'no base64!'},
                {'url': 'a\x00b'},
                {},
                {'text': 'x', 'data': 1},
                'x',
            ],
            'extensions': ['', 5],
            'reference_task_ids': ['t', None],
            'metadata': 'x',
        },
        'configuration': {
            'acceptedOutputModes': 'text/plain',
            'taskPushNotificationConfig': 'https://example.com',
            'historyLength': -1,
            'returnImmediately': 'yes',
        },
        'metadata': [],
    }

    assert bad('SendMessage', params) == snapshot(
        {
            'tenant': 'Input should be a valid string',
            'message.messageId': 'String should have at least 1 character',
            'message.contextId': 'String should have at most 256 characters',
            'message.taskId': 'must not hold control characters',
            'message.role': 'must be ROLE_USER: clients speak as users',
            'message.parts[0].text': 'Input should be a valid string',
            'message.parts[1].mediaType': 'Input should be a valid string',
            'message.parts[1].metadata': 'Input should be an object',
            'message.parts[2].raw': 'must be base64',
            'message.parts[3].url': 'must not hold control characters',
            'message.parts[4]': 'must hold exactly one of text, raw, url and data',
            'message.parts[5]': 'must hold exactly one of text, raw, url and data',
            'message.parts[6]': 'Input should be an object',
            'message.metadata': 'Input should be an object',
            'message.extensions[0]': 'String should have at least 1 character',
            'message.extensions[1]': 'Input should be a valid string',
            'message.referenceTaskIds[1]': 'Input should be a valid string',
            'configuration.acceptedOutputModes': 'Input should be a valid array',
            'configuration.taskPushNotificationConfig': 'Input should be an object',
            'configuration.historyLength': 'Input should be greater than or equal to 0',
            'configuration.returnImmediately': 'Input should be a valid boolean',
            'metadata': 'Input should be an object',
        }
    )


def test_error_message_names_the_bad_fields() -> None:
    assert refused(rpc('SendMessage', {'message': {'role': 'user', 'parts': []}})) == snapshot(
        (
            -32602,
            b'1',
            'Invalid parameters: message.messageId: Field required; '
            'message.role: must be ROLE_USER: clients speak as users; '
            'message.parts: List should have at least 1 item after validation, not 0',
        )
    )


@pytest.mark.parametrize('role', ['ROLE_AGENT', 2, 'ROLE_UNSPECIFIED', 0, 'user', 'agent', '', None, True, 1.5, [], {}])
def test_message_role_must_be_user(role: object) -> None:
    assert bad('SendMessage', {'message': minimal(role=role)}) == {
        'message.role': 'must be ROLE_USER: clients speak as users'
    }


def test_message_without_role_is_refused() -> None:
    assert bad('SendMessage', {'message': {'messageId': 'm', 'parts': [{'text': 'x'}]}}) == snapshot(
        {'message.role': 'Field required'}
    )


@pytest.mark.parametrize(
    'part',
    [
        {},
        {'mediaType': 'text/plain'},
        {'text': None},
        {'url': ''},
        {'text': '', 'raw': ''},
        {'text': 'x', 'url': 'https://example.com'},
        {'text': 'x', 'data': 0},
        {'kind': 'file', 'file': {'bytes': ''}},
    ],
)
def test_part_must_hold_exactly_one_content(part: object) -> None:
    assert bad('SendMessage', {'message': minimal(parts=[{'text': 'x'}, part])}) == {
        'message.parts[1]': 'must hold exactly one of text, raw, url and data'
    }


@pytest.mark.parametrize('raw', ['A', 'AAAAA', 'AA=', 'AA=A', '=', 'A A=', 'AA\n==', 'é', 'AA*='])
def test_invalid_base64_is_refused(raw: str) -> None:
    assert bad('SendMessage', {'message': minimal(parts=[{'raw': raw}])}) == {'message.parts[0].raw': 'must be base64'}


def test_message_with_more_than_10000_parts_is_refused() -> None:
    assert bad('SendMessage', {'message': minimal(parts=[5] * 20_000)}) == snapshot(
        {'message.parts': 'List should have at most 10000 items after validation, not 20000'}
    )


def test_ids_of_256_characters_are_accepted() -> None:
    ids = {'messageId': 'é' * 256, 'contextId': '語' * 256, 'taskId': '😀' * 256}

    assert message(**ids) == {
        'message_id': 'é' * 256,
        'context_id': '語' * 256,
        'task_id': '😀' * 256,
        'role': 'user',
        'parts': [{'text': 'Hi'}],
    }


@pytest.mark.parametrize('value', [0, 101, 150, -1, '0', True, 'x'])
def test_page_size_outside_1_to_100_is_refused(value: object) -> None:
    assert list(bad('ListTasks', {'pageSize': value})) == ['pageSize']


@pytest.mark.parametrize(
    'value', ['completed', 'TASK_STATE_X', 'task_state_working', '', '1', 9, -1, True, 1.5, [], {}]
)
def test_unknown_task_state_filter_is_refused(value: object) -> None:
    assert bad('ListTasks', {'status': value}) == {'status': f'must be one of {", ".join(STATES)}'}


@pytest.mark.parametrize(
    'value',
    ['2026-01-01T00:00:00', '2026-01-01', '', 'yesterday', '1767225600', 1767225600, '2026-13-01T00:00:00Z', True, {}],
)
def test_timestamp_without_date_and_utc_offset_is_refused(value: object) -> None:
    assert bad('ListTasks', {'statusTimestampAfter': value}) == {
        'statusTimestampAfter': 'must be an ISO 8601 time with a UTC offset or Z'
    }


def test_nul_characters_are_refused_in_every_field() -> None:
    parts = [
        {'text': 'a\x00'},
        {'raw': '', 'filename': '\x00'},
        {'url': 'x', 'mediaType': '\x00'},
        {'data': {'deep': [{'x': 'a\x00b'}]}},
        {'data': {'\x00': 1}},
        {'text': 'x', 'metadata': {'x': '\x00'}},
        {'text': 'fine'},
    ]
    params: dict[str, Any] = {'message': minimal(parts=parts, metadata={'x': '\x00'}), 'metadata': {'x': '\x00'}}

    assert bad('SendMessage', params) == snapshot(
        {
            'message.parts[1].filename': 'must not hold control characters',
            'message.parts[2].mediaType': 'must not hold control characters',
        }
    )
    del params['message']['parts'][1:3]
    assert bad('SendMessage', params) == snapshot(
        {
            'message.parts[0].text': 'must not hold NUL characters',
            'message.parts[1].data': 'must not hold NUL characters',
            'message.parts[2].data': 'must not hold NUL characters',
            'message.parts[3].metadata': 'must not hold NUL characters',
            'message.metadata': 'must not hold NUL characters',
            'metadata': 'must not hold NUL characters',
        }
    )


def test_escaped_nul_and_nan_as_text_are_accepted() -> None:
    parts = [{'text': '\\u0000 \\\\u0000 \n\\u0000 "\\u0000'}, {'data': ['\\u0000', 'NaN', 'Infinity', '-Infinity']}]

    assert message(parts=parts)['parts'] == parts


@pytest.mark.parametrize('number', ['1e999', '-1e999', '9' * 400 + '.0'])
def test_numbers_beyond_double_range_are_refused(number: str) -> None:
    body = f'{{"x":[{number}]}}'
    part = f'{{"text":"x","metadata":{body}}},{{"data":{body}}}'
    wire = f'{{"messageId":"m","role":1,"metadata":{body},"parts":[{part}]}}'
    params = f'{{"message":{wire},"metadata":{body}}}'

    with pytest.raises(RpcRefused) as info:
        CODEC.decode(f'{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{params}}}'.encode())

    assert {violation.field for violation in info.value.error.violations} == snapshot(
        {
            'message.metadata',
            'message.parts[0].metadata',
            'message.parts[1].data',
            'metadata',
        }
    )


def test_lone_surrogates_are_refused_in_every_field() -> None:
    parts = [{'text': '\ud800'}, {'data': {'x': ['\udfff']}}, {'text': 'fine'}, {'unknown': '\ud800'}]
    params = {'message': minimal(message_id='\ud800', parts=parts), 'unknown': '\ud800'}

    assert bad('SendMessage', params) == snapshot(
        {
            'message.parts[0].text': 'must not hold lone surrogates',
            'message.parts[1].data': 'must not hold lone surrogates',
            'message.parts[3]': 'must not hold lone surrogates',
            'message.messageId': 'must not hold lone surrogates',
        }
    )
    assert bad('ListTasks', {'unknown': '\ud800'}) == {'params': 'must not hold lone surrogates'}


def test_paired_surrogates_are_accepted_as_text() -> None:
    body = rpc('SendMessage', {'message': minimal(parts=[{'text': '😀'}])})

    assert b'\\ud83d\\ude00' in body
    assert message(parts=[{'text': '😀'}])['parts'] == [{'text': '😀'}]


def test_errors_do_not_echo_request_values() -> None:
    secret = 'hunter2'
    params = {
        'tenant': [secret],
        'message': {
            'messageId': secret * 100,
            'contextId': f'{secret}\n',
            'role': secret,
            'parts': [
                {'raw': f'{secret}!'},
                {'text': [secret]},
                secret,
                {'text': secret, secret: secret, 'url': secret},
            ],
            secret: secret,
        },
        'configuration': {'historyLength': secret, 'returnImmediately': secret},
    }
    bodies = [
        rpc('SendMessage', params),
        rpc('ListTasks', {'status': secret, 'pageSize': secret, 'statusTimestampAfter': secret}),
        rpc('GetTask', {'id': 't', 'x': f'{secret}\ud800'}),
        rpc('CancelTask', {'id': 't', 'metadata': {secret: f'{secret}\x00'}}),
        rpc(secret, {}),
        f'{{"jsonrpc":"2.0","id":1,"method":"ListTasks","{secret}"}}'.encode(),
    ]

    for body in bodies:
        with pytest.raises(RpcRefused) as info:
            CODEC.decode(body)
        assert secret.encode() not in CODEC.encode_error(info.value.error, 'c')
