"""What codecs share: JSON-RPC ids, strict JSON, limits of its values, and finding bad fields."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from pydantic_ai_a2a.errors import FieldViolation, PayloadTooLargeError
from pydantic_ai_a2a.wire.protocol.invalid_params import bad_fields, invalid_fields
from pydantic_ai_a2a.wire.protocol.request_fields import MAX_ID, MAX_ITEMS
from pydantic_ai_a2a.wire.protocol.rpc_requests import encode_id, request_id
from pydantic_ai_a2a.wire.protocol.value_count import check_values


@pytest.mark.parametrize(
    ('id', 'encoded'),
    [
        (None, b'null'),
        (0, b'0'),
        (-1, b'-1'),
        (2**70, b'1180591620717411303424'),
        ('', b'""'),
        ('a"b\n', b'"a\\"b\\n"'),
        ('é', '"é"'.encode()),
        ('x' * MAX_ID, b'"' + b'x' * MAX_ID + b'"'),
    ],
)
def test_request_id_is_repeated_as_json(id: object, encoded: bytes) -> None:
    assert encode_id(id) == encoded


@pytest.mark.parametrize(
    ('body', 'id'),
    [
        (b'{"id":7,"method":[],"params":{"x":"\\ud800"}}', b'7'),
        (b'{"id":"a","jsonrpc":"9"}', b'"a"'),
        (b'{}', b'null'),
        (b'{"id":true}', b'null'),
        (b'{"id":"\\ud800"}', b'null'),
        (b'[{"id":7}]', b'null'),
        (b'7', b'null'),
        (b'{"id":7', b'null'),
        (b'\xff', b'null'),
    ],
)
def test_request_id_is_recovered_from_undecodable_request(body: bytes, id: bytes) -> None:
    assert request_id(body) == (id, False)


@pytest.mark.parametrize(
    ('body', 'notification'),
    [
        (b'{"jsonrpc":"2.0","method":"GetTask"}', True),
        (b'{"jsonrpc":"2.0","method":"","params":7}', True),
        (b'{"jsonrpc":"2.0","method":"GetTask","id":null}', False),
        (b'{"jsonrpc":"2.0","method":7}', False),
        (b'{"jsonrpc":"2.0"}', False),
        (b'{"jsonrpc":"1.0","method":"GetTask"}', False),
        (b'[{"jsonrpc":"2.0","method":"GetTask"}]', False),
    ],
)
def test_request_without_id_is_a_notification(body: bytes, notification: bool) -> None:
    assert request_id(body) == (b'null', notification)


FIELDS = {'items': 'items', 'a_b': 'aB', 'aB': 'aB', 'data': 'data'}


def _is_bad(value: object) -> bool:
    return 'bad' in repr(value)


@pytest.mark.parametrize(
    ('params', 'paths'),
    [
        pytest.param({'aB': 'good'}, [], id='nothing'),
        pytest.param('bad', ['params'], id='all of it'),
        pytest.param({'a_b': 'bad'}, ['aB'], id='by its name on the wire'),
        pytest.param({'items': ['good', {'aB': 'bad'}, 'bad']}, ['items[1].aB', 'items[2]'], id='in lists'),
        pytest.param({'aB': {'x': 'bad'}}, ['aB'], id='unknown names are not repeated'),
        pytest.param({'aB': {'bad': 1}}, ['aB'], id='nor bad names'),
        pytest.param({'data': {'items': ['bad']}}, ['data'], id='what belongs to the application is not entered'),
        pytest.param([[[[[[[[[['bad']]]]]]]]]], ['[0][0][0][0][0][0][0][0]'], id='not too deep'),
        pytest.param({'items': ['good'] * MAX_ITEMS + ['bad']}, ['items'], id='not too far'),
        pytest.param({'items': ['bad'] * 1000}, [f'items[{i}]' for i in range(100)], id='not too many'),
    ],
)
def test_bad_fields_are_located_only_through_known_names(params: object, paths: list[str]) -> None:
    assert bad_fields(params, _is_bad, FIELDS) == paths


def test_error_message_names_first_five_bad_fields() -> None:
    violations = [FieldViolation(f'f{i}', 'is bad') for i in range(7)]
    error = invalid_fields(iter(violations))

    assert error.violations == tuple(violations)
    assert error.message == snapshot(
        'Invalid parameters: f0: is bad; f1: is bad; f2: is bad; f3: is bad; f4: is bad; and more'
    )
    assert invalid_fields(violations[:2]).message == snapshot('Invalid parameters: f0: is bad; f1: is bad')


def test_at_most_100_bad_fields_are_reported() -> None:
    assert len(invalid_fields(FieldViolation(f'f{i}', 'is bad') for i in range(1000)).violations) == 100


@pytest.mark.parametrize(
    'body',
    [
        b'[0,0,0,0,0,0,0,0,0]',
        b'[[],[],[],[],[]]',
        b'{"a":{"a":{"a":{"a":{"a":{}}}}}}',
        b'["",",[{",[],[],[],{},{},{},{}]',
        b'["\\\\",0,0,0,0,0,0,0,0,0,0]',
        b'["\\"",0,0,0,0,0,0,0,0,0,0,"]',
        b'[[[[[[[[[[[[[[[[[[[[[[[[[[',
    ],
)
def test_body_with_too_many_json_values_is_refused(body: bytes) -> None:
    with pytest.raises(PayloadTooLargeError, match='more than 5 JSON values'):
        check_values(body, 5)


@pytest.mark.parametrize(
    'body',
    [
        b'[0,0,0]',
        b'["a long text, with, many, commas, and [[[[ brackets {{{{", 1]',
        b'["\\", [[[[[[[[", "\\\\", "\\\\\\", [[[[[["]',
        b'["it does not end, [[[[[[[[[[[[[\\"[[[[[[[[[',
        b'"' + b'\\"[' * 100_000,
        b'"' + b',' * 100_000 + b'\\',
        b' ' * 100_000,
    ],
)
def test_punctuation_inside_strings_is_not_counted_as_values(body: bytes) -> None:
    check_values(body, 5)
