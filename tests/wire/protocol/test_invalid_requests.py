"""What the codecs of all dialects refuse alike."""

from __future__ import annotations

from math import inf, nan

import pytest

from ...cases import each_case
from .dialect_requests import REQUESTS_0_3, REQUESTS_1_0, REQUESTS_FASTA2A, DialectRequests, rpc

pytestmark = pytest.mark.parametrize(
    'requests', [REQUESTS_1_0, REQUESTS_0_3, REQUESTS_FASTA2A], ids=lambda requests: requests.codec.dialect
)


@each_case(
    'body, code, id',
    [
        (b'', -32700, b'null'),
        (b'{', -32700, b'null'),
        (b'\xff', -32700, b'null'),
        (b'{"jsonrpc":"2.0","id":1,"method":"METHOD","x":NaN}', -32700, b'null'),
        (b'{"jsonrpc":"2.0","id":1,"method":"METHOD","params":{"id":NaN}}', -32700, b'null'),
        (b'[]', -32600, b'null'),
        (b'{"id":1,"method":"METHOD"}', -32600, b'1'),
        (b'{"jsonrpc":"2.0","id":"a","method":null}', -32600, b'"a"'),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"METHOD"}', -32600, b'null'),
    ],
)
def test_malformed_request_is_refused_with_its_id(requests: DialectRequests, body: bytes, code: int, id: bytes) -> None:
    assert requests.refused(body.replace(b'METHOD', requests.method('GetTask').encode()))[:2] == (code, id)


@each_case('constant', [nan, inf, -inf])
def test_nan_and_infinity_are_a_parse_error(requests: DialectRequests, constant: float) -> None:
    params = {'message': requests.minimal(parts=[{'kind': 'data', 'data': {'x': constant}}])}
    assert requests.refused(rpc(requests.method('SendMessage'), params))[:2] == (-32700, b'null')


@each_case('operation', ['SendMessage', 'SendStreamingMessage', 'GetTask', 'CancelTask', 'SubscribeToTask'])
@each_case('params', [None, 5, 'x', [], [{'id': 't'}]])
def test_params_of_wrong_type_are_refused(requests: DialectRequests, operation: str, params: object) -> None:
    assert list(requests.bad(requests.method(operation), params)) == ['params']


@each_case('id', ['', 'x' * 257, 'a\x00', '\x1f', '\x7f', 'a\x85b', '\n', None, 5, True, ['x'], {}])
@each_case('operation', ['GetTask', 'CancelTask', 'SubscribeToTask'])
def test_task_id_must_be_1_to_256_characters_without_controls(
    requests: DialectRequests, operation: str, id: object
) -> None:
    assert list(requests.bad(requests.method(operation), {'id': id})) == ['id']


@each_case('field', ['messageId', 'contextId', 'taskId'])
@each_case('id', ['x' * 257, 'a\x00', 'a\n', 5, [], {}])
def test_message_ids_must_have_at_most_256_characters_without_controls(
    requests: DialectRequests, field: str, id: object
) -> None:
    params = {'message': requests.minimal(**{field: id})}
    assert list(requests.bad(requests.method('SendMessage'), params)) == [f'message.{field}']


@each_case('parts', [None, [], {}, 'x', [None], [5], [[]]])
def test_message_parts_must_be_a_non_empty_list_of_objects(requests: DialectRequests, parts: object) -> None:
    fields = requests.bad(requests.method('SendMessage'), {'message': requests.minimal(parts=parts)})
    assert set(fields) <= {'message.parts', 'message.parts[0]'}


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
