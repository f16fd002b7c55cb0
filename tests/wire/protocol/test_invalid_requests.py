"""What the codecs of all dialects refuse alike."""

from __future__ import annotations

import tracemalloc
from math import inf, nan
from typing import Any

import pytest
from inline_snapshot import snapshot

from pydantic_ai_a2a.wire.protocol.nearest_names import nearest_method
from pydantic_ai_a2a.wire.protocol.operations import OPERATIONS
from pydantic_ai_a2a.wire.protocol.refused_requests import RpcRefused

from ...cases import each_case
from .dialect_requests import DIALECTS, REQUESTS_0_3, REQUESTS_1_0, DialectRequests, dialect_name, rpc

pytestmark = pytest.mark.parametrize('requests', DIALECTS, ids=dialect_name)

DEEP = b'[' * 300 + b']' * 300


def get_task(requests: DialectRequests, body: bytes) -> bytes:
    """The body with the name of the method in the place of `METHOD`."""
    return body.replace(b'METHOD', requests.method('GetTask').encode())


# --- the envelope of JSON-RPC


@each_case(
    'body',
    [
        pytest.param(b'', id='empty'),
        pytest.param(b' ', id='blank'),
        pytest.param(b'{', id='cut off'),
        pytest.param(b'{"jsonrpc":"2.0","id":1,', id='cut off after the id'),
        pytest.param(b"{'a':1}", id='Python'),
        pytest.param(b'{} {}', id='two values'),
        pytest.param(b'"\0"', id='NUL in a string'),
        pytest.param('{}'.encode('utf-16'), id='UTF-16'),
        pytest.param(b'"\xed\xa0\x80"', id='surrogate as UTF-8'),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"METHOD","params":{"id":"\xff"}}', id='not UTF-8'),
        pytest.param(
            b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"METHOD","params":{"id":"t"}}', id='byte order mark'
        ),
        pytest.param(b'[' * 100_000, id='deep and cut off'),
        pytest.param(b'[' * 100_000 + b']' * 100_000, id='deep'),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"METHOD","params":%s}' % DEEP, id='deep params'),
        pytest.param(b'{"jsonrpc":"2.0","id":NaN,"method":"METHOD","params":{"id":"t"}}', id='NaN as id'),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"METHOD","x":NaN}', id='NaN in an unknown field'),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"METHOD","params":{"id":NaN}}', id='NaN in a field'),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"METHOD","params":{"x":-Infinity}}', id='-Infinity'),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"METHOD","params":{"x":%s}}' % (b'9' * 5000), id='long number'),
    ],
)
def test_invalid_json_is_parse_error_with_null_id(requests: DialectRequests, body: bytes) -> None:
    assert requests.refused(get_task(requests, body))[:2] == (-32700, b'null')


@each_case('constant', [nan, inf, -inf])
def test_nan_and_infinity_are_a_parse_error(requests: DialectRequests, constant: float) -> None:
    params = {'message': requests.minimal(parts=[requests.part('data', {'x': constant})])}
    assert requests.refused(rpc(requests.method('SendMessage'), params))[:2] == (-32700, b'null')


@each_case('body', [b'42', b'"x"', b'null', b'true', b'[]', b'[{"jsonrpc":"2.0","id":1,"method":"METHOD"}]'])
def test_non_object_body_is_an_invalid_request(requests: DialectRequests, body: bytes) -> None:
    assert requests.refused(get_task(requests, body))[:2] == (-32600, b'null')


@each_case(
    'body, id',
    [
        pytest.param(b'{}', b'null', id='nothing'),
        pytest.param(b'{"id":1,"method":"METHOD"}', b'1', id='no jsonrpc'),
        pytest.param(b'{"jsonrpc":"1.0","id":1,"method":"METHOD"}', b'1', id='other jsonrpc'),
        pytest.param(b'{"jsonrpc":2.0,"id":1,"method":"METHOD"}', b'1', id='jsonrpc is a number'),
        pytest.param(b'{"jsonrpc":"2.0","id":"a"}', b'"a"', id='no method'),
        pytest.param(b'{"jsonrpc":"2.0","id":"a","method":null}', b'"a"', id='method is null'),
        pytest.param(b'{"jsonrpc":"2.0","id":"a","method":["METHOD"]}', b'"a"', id='method is a list'),
        pytest.param(b'{"jsonrpc":"2.0","id":"a","method":"\\ud800"}', b'"a"', id='method is no text'),
        pytest.param(b'{"jsonrpc":"2.0","id":"\\udfff","method":"METHOD"}', b'null', id='id is no text'),
        pytest.param(
            b'{"jsonrpc":"2.0","id":1,"method":"METHOD","params":{"id":"t"},"x":"\\ud800"}',
            b'1',
            id='unknown field is no text',
        ),
    ],
)
def test_wrong_json_rpc_envelope_is_invalid_request(requests: DialectRequests, body: bytes, id: bytes) -> None:
    assert requests.refused(get_task(requests, body))[:2] == (-32600, id)


@each_case('id', [b'true', b'false', b'1.0', b'1.5', b'[]', b'{}', b'"%s"' % (b'x' * 257)])
@each_case('params', [b'', b',"params":{"id":"t"}'])
def test_request_id_of_wrong_type_or_length_is_refused(requests: DialectRequests, id: bytes, params: bytes) -> None:
    body = b'{"jsonrpc":"2.0","id":%s,"method":"METHOD"%s}' % (id, params)
    assert requests.refused(get_task(requests, body)) == (
        -32600,
        b'null',
        'Invalid request: id must be a string of at most 256 characters, an integer or null',
    )


@each_case('method', ['', '/', 'x' * 1000, 'SendMessage' * 10, '__init__', 'tools/call', 'NoSuchMethod'])
def test_unknown_method_is_not_found_and_not_echoed(requests: DialectRequests, method: str) -> None:
    assert requests.refused(rpc(method, {})) == (-32601, b'1', 'Method not found.')


@each_case(
    ('method', 'operation'),
    [
        ('sendMessage', 'SendMessage'),
        ('SENDMESSAGE', 'SendMessage'),
        ('SendMessage ', 'SendMessage'),
        ('send_message', 'SendMessage'),
        ('message/Send', 'SendMessage'),
        ('message.send', 'SendMessage'),
        ('tasks/send', 'SendMessage'),
        ('tasks/sendSubscribe', 'SendStreamingMessage'),
        ('StreamMessage', 'SendStreamingMessage'),
        ('getTask', 'GetTask'),
        ('tasks/cancle', 'CancelTask'),
        ('Subscribe', 'SubscribeToTask'),
        ('SetTaskPushNotificationConfig', 'CreateTaskPushNotificationConfig'),
    ],
)
def test_misspelt_method_error_suggests_correct_method(requests: DialectRequests, method: str, operation: str) -> None:
    text = f'Method not found. Did you mean {requests.method(operation)}?'
    assert requests.refused(rpc(method, {})) == (-32601, b'1', text)


def test_long_method_name_is_not_compared(requests: DialectRequests) -> None:
    method, methods = 'x' * 1_000_000, {requests.method('GetTask'): OPERATIONS['GetTask']}
    tracemalloc.start()
    assert nearest_method(method, methods) == ''
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


def test_method_of_another_version_suggests_own_method(requests: DialectRequests) -> None:
    others = {each.method(operation): operation for each in DIALECTS for operation in OPERATIONS}
    for operation in OPERATIONS:
        others.pop(requests.method(operation), None)
    assert others
    for method, operation in others.items():
        own = requests.method(operation)
        text = f'Method not found. Did you mean {own}?' if own and method else 'Method not found.'
        assert requests.refused(rpc(method, {})) == (-32601, b'1', text)


# --- params


@each_case('operation', ['SendMessage', 'SendStreamingMessage', 'GetTask', 'CancelTask', 'SubscribeToTask'])
@each_case('params', [None, 5, 'x', [], [{'id': 't'}]])
def test_params_of_wrong_type_are_refused(requests: DialectRequests, operation: str, params: object) -> None:
    assert list(requests.bad(requests.method(operation), params)) == ['params']


def test_missing_params_are_named_in_the_error(requests: DialectRequests) -> None:
    body = get_task(requests, b'{"jsonrpc":"2.0","id":1,"method":"METHOD"}')
    assert requests.refused(body) == snapshot((-32602, b'1', 'Invalid parameters: params: Field required'))


@each_case('operation', ['SendMessage', 'SendStreamingMessage', 'GetTask', 'CancelTask', 'SubscribeToTask'])
@each_case('params', [{}, {'id': '\x00', 'metadata': {'\x00': 1}}, {'id': '\ud800'}])
def test_refused_request_carries_its_operation(requests: DialectRequests, operation: str, params: object) -> None:
    with pytest.raises(RpcRefused) as info:
        requests.codec.decode(rpc(requests.method(operation), params))
    assert info.value.operation is OPERATIONS[operation]


@each_case('id', ['', 'x' * 257, 'a\x00', '\x1f', '\x7f', 'a\x85b', '\n', None, 5, True, ['x'], {}])
@each_case('operation', ['GetTask', 'CancelTask', 'SubscribeToTask'])
def test_task_id_has_1_to_256_plain_characters(requests: DialectRequests, operation: str, id: object) -> None:
    assert list(requests.bad(requests.method(operation), {'id': id})) == ['id']


@each_case('value', [-1, '-1', 5.5, '5.5', 'x', '', True, False, 2**31, [], {}])
def test_history_length_must_be_a_natural_number(requests: DialectRequests, value: object) -> None:
    assert list(requests.bad(requests.method('GetTask'), {'id': 't', 'historyLength': value})) == ['historyLength']
    if requests is not REQUESTS_0_3:  # which has no list
        assert list(requests.bad(requests.method('ListTasks'), {'historyLength': value})) == ['historyLength']


@each_case('value', ['true', 1, 0, 'x', [], {}])
def test_boolean_fields_accept_only_true_or_false(requests: DialectRequests, value: object) -> None:
    field = 'returnImmediately' if requests is REQUESTS_1_0 else 'blocking'
    params = {'message': requests.minimal(), 'configuration': {field: value}}
    assert list(requests.bad(requests.method('SendMessage'), params)) == [f'configuration.{field}']
    if requests is not REQUESTS_0_3:
        assert list(requests.bad(requests.method('ListTasks'), {'includeArtifacts': value})) == ['includeArtifacts']


def test_every_bad_field_is_reported_with_its_json_path(requests: DialectRequests) -> None:
    older = requests is REQUESTS_0_3
    user = 'ROLE_USER' if requests is REQUESTS_1_0 else 'user'
    boolean = 'returnImmediately' if requests is REQUESTS_1_0 else 'blocking'
    push = 'pushNotificationConfig' if older else 'taskPushNotificationConfig'
    params: dict[str, Any] = {
        'message': {
            'messageId': '',
            'contextId': 'c' * 257,
            'taskId': 'a\nb',
            'role': 'agent',
            'parts': [
                requests.part('text', 5),
                requests.part('text', 'x', metadata=[]),
                requests.part('raw', 'no base64!'),
                'x',
            ],
            'extensions': ['', 5],
            'referenceTaskIds': ['t', None],
            'metadata': 'x',
        },
        'configuration': {
            'acceptedOutputModes': 'text/plain',
            push: 'https://example.com',
            'historyLength': -1,
            boolean: 'yes',
        },
        'metadata': [],
    }

    assert requests.bad(requests.method('SendMessage'), params) == {
        'message.messageId': 'String should have at least 1 character',
        'message.contextId': 'String should have at most 256 characters',
        'message.taskId': 'must not hold control characters',
        'message.role': f'must be {user}: clients speak as users',
        'message.parts[0].text': 'Input should be a valid string',
        'message.parts[1].metadata': 'Input should be an object',
        f'message.parts[2].{"file.bytes" if older else "raw"}': 'must be base64',
        'message.parts[3]': 'Input should be an object',
        'message.metadata': 'Input should be an object',
        'message.extensions[0]': 'String should have at least 1 character',
        'message.extensions[1]': 'Input should be a valid string',
        'message.referenceTaskIds[1]': 'Input should be a valid string',
        'configuration.acceptedOutputModes': 'Input should be a valid array',
        f'configuration.{push}': 'Input should be an object',
        'configuration.historyLength': 'Input should be greater than or equal to 0',
        f'configuration.{boolean}': 'Input should be a valid boolean',
        'metadata': 'Input should be an object',
    }


# --- messages


@each_case('field', ['messageId', 'contextId', 'taskId'])
@each_case('id', ['x' * 257, 'a\x00', 'a\n', 5, [], {}])
def test_message_ids_have_at_most_256_plain_characters(requests: DialectRequests, field: str, id: object) -> None:
    params = {'message': requests.minimal(**{field: id})}
    assert list(requests.bad(requests.method('SendMessage'), params)) == [f'message.{field}']


@each_case('role', ['agent', 'ROLE_AGENT', 'ROLE_UNSPECIFIED', 'User', '', None, 0, 2, True, 1.5, [], {}])
def test_message_role_must_be_user(requests: DialectRequests, role: object) -> None:
    user, others = ('ROLE_USER', ['user']) if requests is REQUESTS_1_0 else ('user', ['ROLE_USER', 1])
    for value in (role, *others):
        assert requests.bad(requests.method('SendMessage'), {'message': requests.minimal(role=value)}) == {
            'message.role': f'must be {user}: clients speak as users'
        }


def test_message_without_role_is_refused(requests: DialectRequests) -> None:
    message = requests.minimal()
    del message['role']
    assert requests.bad(requests.method('SendMessage'), {'message': message}) == {'message.role': 'Field required'}


@each_case('parts', [None, [], {}, 'x', [None], [5], [[]]])
def test_message_parts_must_be_non_empty_object_list(requests: DialectRequests, parts: object) -> None:
    fields = requests.bad(requests.method('SendMessage'), {'message': requests.minimal(parts=parts)})
    assert set(fields) <= {'message.parts', 'message.parts[0]'}


def test_message_with_more_than_10000_parts_is_refused(requests: DialectRequests) -> None:
    message = requests.minimal(parts=[requests.part('text', 'x')] * 10_001)
    assert requests.bad(requests.method('SendMessage'), {'message': message}) == snapshot(
        {'message.parts': 'List should have at most 10000 items after validation, not 10001'}
    )


@each_case('content', ['A', 'AAAAA', 'AA=', 'AA=A', '=', 'A A=', 'AA\n==', 'é', 'AA*='])
def test_invalid_base64_is_refused(requests: DialectRequests, content: str) -> None:
    field = 'file.bytes' if requests is REQUESTS_0_3 else 'raw'
    params = {'message': requests.minimal(parts=[requests.part('raw', content)])}
    assert requests.bad(requests.method('SendMessage'), params) == {f'message.parts[0].{field}': 'must be base64'}


@each_case(
    'text, reason',
    [
        ('a\x00b', 'must not hold NUL characters'),
        ('\ud800', 'must not hold lone surrogates'),
        ('a\udfff', 'must not hold lone surrogates'),
    ],
)
def test_text_and_data_refuse_nul_and_lone_surrogates(requests: DialectRequests, text: str, reason: str) -> None:
    parts = [
        requests.part('text', text),
        requests.part('data', {'deep': [{'x': text}]}),
        requests.part('data', {text: 1}),
        requests.part('text', 'x', metadata={text: 1}),
        requests.part('text', 'fine'),
    ]
    params = {'message': requests.minimal(parts=parts, metadata={'x': text}), 'metadata': {'x': text}}
    assert requests.bad(requests.method('SendMessage'), params) == {
        'message.parts[0].text': reason,
        'message.parts[1].data': reason,
        'message.parts[2].data': reason,
        'message.parts[3].metadata': reason,
        'message.metadata': reason,
        'metadata': reason,
    }


def test_lone_surrogates_are_refused_in_ids_and_unknown_fields(requests: DialectRequests) -> None:
    reason = 'must not hold lone surrogates'
    message = requests.minimal(messageId='\ud800', parts=[requests.part('text', 'x', unknown='\ud800')])
    assert requests.bad(requests.method('SendMessage'), {'message': message}) == {
        'message.messageId': reason,
        'message.parts[0]': reason,
    }
    assert requests.bad(requests.method('GetTask'), {'id': '\ud800'}) == {'id': reason}
    assert requests.bad(requests.method('GetTask'), {'id': 't', 'unknown': '\ud800'}) == {'params': reason}


@each_case('number', ['1e999', '-1e999', '9' * 400 + '.0'])
def test_numbers_beyond_double_range_are_refused(requests: DialectRequests, number: str) -> None:
    values = {'x': ['NUMBER']}
    parts = [requests.part('text', 'x', metadata=values), requests.part('data', values)]
    params = {'message': requests.minimal(parts=parts, metadata=values), 'metadata': values}
    body = rpc(requests.method('SendMessage'), params).replace(b'"NUMBER"', number.encode())

    with pytest.raises(RpcRefused) as info:
        requests.codec.decode(body)
    assert {violation.field for violation in info.value.error.violations} == {
        'message.parts[0].metadata',
        'message.parts[1].data',
        'message.metadata',
        'metadata',
    }


def test_errors_do_not_echo_request_values(requests: DialectRequests) -> None:
    secret = 'hunter2'
    parts = [
        requests.part('raw', f'{secret}!'),
        requests.part('text', [secret], **{secret: secret}),
        requests.part('data', secret),
        {'kind': secret, 'text': secret, 'url': secret},
        secret,
    ]
    message = {'kind': secret, 'messageId': secret * 100, 'contextId': f'{secret}\n', 'role': secret, 'parts': parts}
    configuration = {'historyLength': secret, 'returnImmediately': secret, 'blocking': secret}
    send = {'tenant': [secret], 'message': {**message, secret: secret}, 'configuration': configuration}
    bodies = [
        rpc(requests.method('SendMessage'), send),
        rpc(requests.method('GetTask'), {'id': 't', 'x': f'{secret}\ud800'}),
        rpc(requests.method('CancelTask'), {'id': 't', 'metadata': {secret: f'{secret}\x00'}}),
        rpc(requests.method('ListTasks'), {'status': secret, 'pageSize': secret, 'statusTimestampAfter': secret}),
        rpc(secret, {}),
        get_task(requests, f'{{"jsonrpc":"2.0","id":1,"method":"METHOD","{secret}"}}'.encode()),
    ]

    for body in bodies:
        with pytest.raises(RpcRefused) as info:
            requests.codec.decode(body)
        assert secret.encode() not in requests.codec.encode_error(info.value.error, 'c')
