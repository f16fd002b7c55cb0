"""What the codec of A2A 0.3 refuses, and how it says so."""

from __future__ import annotations

from typing import Any

import pytest
from inline_snapshot import snapshot

from pydantic_ai_a2a.protocol.operations import RpcRefused
from pydantic_ai_a2a.protocol.v0_3 import METHODS

from ..tables import each_case
from .v0_3_requests import CODEC, bad, bad_part, minimal, refused, rpc


@pytest.mark.parametrize('body', [b'', b'{', b'\xff', b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","x":NaN}'])
def test_what_is_not_json_is_a_parse_error_without_id(body: bytes) -> None:
    assert refused(body)[:2] == (-32700, b'null')


@pytest.mark.parametrize('constant', ['NaN', 'Infinity', '-Infinity'])
def test_constants_that_json_lacks_are_a_parse_error(constant: str) -> None:
    part = '{"kind":"data","data":{"x":%s}}' % constant  # noqa: UP031
    wire = '{"messageId":"m","role":"user","parts":[%s]}' % part  # noqa: UP031

    assert (
        refused(b'{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":%s}}' % wire.encode())[0]
        == -32700
    )


@pytest.mark.parametrize(
    ('body', 'id'),
    [
        (b'[]', b'null'),
        (b'{"id":1,"method":"tasks/get"}', b'1'),
        (b'{"jsonrpc":"2.0","id":"a","method":null}', b'"a"'),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"tasks/get"}', b'null'),
    ],
)
def test_a_wrong_envelope_is_an_invalid_request(body: bytes, id: bytes) -> None:
    assert refused(body)[:2] == (-32600, id)


@pytest.mark.parametrize(
    'method',
    ['message/stream', 'tasks/resubscribe', 'message/send', 'tasks/get'],
)
def test_a_refused_request_names_its_operation(method: str) -> None:
    for params in ({}, {'id': '\x00', 'metadata': {'\x00': 1}}, {'id': '\ud800'}):
        with pytest.raises(RpcRefused) as info:
            CODEC.decode(rpc(method, params))
        assert info.value.operation is METHODS[method]


@pytest.mark.parametrize('method', ['SendMessage', 'tasks/list', 'tasks/pushNotification/set', 'message/Send', '/'])
def test_a_method_of_another_version_is_not_found(method: str) -> None:
    assert refused(rpc(method, {})) == (-32601, b'1', 'Method not found.')


@each_case('method', ['message/send', 'message/stream', 'tasks/get', 'tasks/cancel', 'tasks/resubscribe'])
@each_case('params', [None, 5, 'x', [], [{'id': 't'}]])
def test_params_of_a_wrong_type_are_named(method: str, params: object) -> None:
    assert list(bad(method, params)) == ['params']


def test_every_bad_field_is_named_with_its_path_on_the_wire() -> None:
    params: dict[str, Any] = {
        'message': {
            'kind': 'task',
            'messageId': '',
            'contextId': 'c' * 257,
            'taskId': 'a\nb',
            'role': 'agent',
            'parts': [
                {'kind': 'text', 'text': 5},
                {'kind': 'text', 'text': 'x', 'metadata': []},
                {'kind': 'file', 'file': {'bytes': 'no base64!', 'mimeType': 5}},
                {'kind': 'file', 'file': {'uri': 'a\x00b', 'name': 'a\nb'}},
                {'kind': 'data', 'data': [1]},
                'x',
            ],
            'extensions': ['', 5],
            'referenceTaskIds': ['t', None],
            'metadata': 'x',
        },
        'configuration': {
            'acceptedOutputModes': 'text/plain',
            'pushNotificationConfig': 'https://example.com',
            'historyLength': -1,
            'blocking': 'yes',
        },
        'metadata': [],
    }

    assert bad('message/send', params) == snapshot(
        {
            'message.kind': "Input should be 'message'",
            'message.messageId': 'String should have at least 1 character',
            'message.contextId': 'String should have at most 256 characters',
            'message.taskId': 'must not hold control characters',
            'message.role': 'must be user: clients speak as users',
            'message.parts[0].text': 'Input should be a valid string',
            'message.parts[1].metadata': 'Input should be an object',
            'message.parts[2].file.bytes': 'must be base64',
            'message.parts[2].file.mimeType': 'Input should be a valid string',
            'message.parts[3].file.uri': 'must not hold control characters',
            'message.parts[3].file.name': 'must not hold control characters',
            'message.parts[4].data': 'Input should be an object',
            'message.parts[5]': 'Input should be an object',
            'message.metadata': 'Input should be an object',
            'message.extensions[0]': 'String should have at least 1 character',
            'message.extensions[1]': 'Input should be a valid string',
            'message.referenceTaskIds[1]': 'Input should be a valid string',
            'configuration.acceptedOutputModes': 'Input should be a valid array',
            'configuration.blocking': 'Input should be a valid boolean',
            'configuration.historyLength': 'Input should be greater than or equal to 0',
            'configuration.pushNotificationConfig': 'Input should be an object',
            'metadata': 'Input should be an object',
        }
    )


@pytest.mark.parametrize('role', ['agent', 'ROLE_USER', 'User', '', None, 1, True, [], {}])
def test_a_client_speaks_as_user(role: object) -> None:
    assert bad('message/send', {'message': minimal(role=role)}) == {
        'message.role': 'must be user: clients speak as users'
    }


@pytest.mark.parametrize('kind', ['', 'message', 'Text', None, 5, [], {}])
def test_a_part_says_its_kind(kind: object) -> None:
    assert bad_part({'kind': kind, 'text': 'x'}) == {
        'message.parts[1].kind': "Input should be 'text', 'file' or 'data'"
    }
    assert bad_part({'text': 'x'}) == {'message.parts[1].kind': 'Field required'}


@pytest.mark.parametrize(
    ('part', 'kind'),
    [
        ({'kind': 'text'}, 'text'),
        ({'kind': 'text', 'text': None}, 'text'),
        ({'kind': 'text', 'data': {}}, 'text'),
        ({'kind': 'file', 'text': 'x'}, 'file'),
        ({'kind': 'file', 'bytes': 'AA=='}, 'file'),
        ({'kind': 'data', 'file': {'uri': 'x'}}, 'data'),
        ({'kind': 'data', 'data': None}, 'data'),
    ],
)
def test_a_part_holds_what_its_kind_says(part: object, kind: str) -> None:
    assert bad_part(part) == {'message.parts[1]': f'must have the field {kind}, because its kind is {kind}'}


@pytest.mark.parametrize(
    'file',
    [{}, {'bytes': None}, {'uri': ''}, {'name': 'x'}, {'bytes': 'AA==', 'uri': 'x'}, {'bytes': '', 'uri': 'x'}],
)
def test_a_file_without_content_or_with_two_is_refused(file: object) -> None:
    assert bad_part({'kind': 'file', 'file': file}) == {'message.parts[1]': 'must hold either file.bytes or file.uri'}


@pytest.mark.parametrize('data', ['x', 0, True, [], [{}]])
def test_data_that_is_no_object_is_refused_where_nothing_says_that_it_is_wrapped(data: object) -> None:
    assert bad_part({'kind': 'data', 'data': data}) == {'message.parts[1].data': 'Input should be an object'}


@pytest.mark.parametrize('content', ['A', 'AAAAA', '=', 'A A=', 'é'])
def test_bad_base64_is_refused(content: str) -> None:
    assert bad_part({'kind': 'file', 'file': {'bytes': content}}) == {'message.parts[1].file.bytes': 'must be base64'}


@pytest.mark.parametrize('parts', [None, [], {}, 'x', [None], [5], [[]]])
def test_there_is_at_least_one_part_and_parts_are_objects(parts: object) -> None:
    assert set(bad('message/send', {'message': minimal(parts=parts)})) <= {'message.parts', 'message.parts[0]'}


@each_case('id', ['', 'x' * 257, 'a\x00', '\n', None, 5, True, ['x'], {}])
@each_case('method', ['tasks/get', 'tasks/cancel', 'tasks/resubscribe'])
def test_a_task_id_is_a_text_of_1_to_256_characters_without_controls(method: str, id: object) -> None:
    assert list(bad(method, {'id': id})) == ['id']


@pytest.mark.parametrize('field', ['messageId', 'contextId', 'taskId'])
@pytest.mark.parametrize('id', ['x' * 257, 'a\x00', 'a\n', 5, [], {}])
def test_the_ids_of_a_message_are_texts_of_at_most_256_characters_without_controls(field: str, id: object) -> None:
    assert list(bad('message/send', {'message': minimal(**{field: id})})) == [f'message.{field}']


@pytest.mark.parametrize('value', [-1, 5.5, 'x', '', True, 2**31, [], {}])
def test_a_history_length_is_a_natural_number(value: object) -> None:
    assert list(bad('tasks/get', {'id': 't', 'historyLength': value})) == ['historyLength']


@pytest.mark.parametrize('value', ['true', 1, 0, [], {}])
def test_blocking_is_true_or_false(value: object) -> None:
    assert list(bad('message/send', {'message': minimal(), 'configuration': {'blocking': value}})) == [
        'configuration.blocking'
    ]


def test_nul_characters_and_lone_surrogates_are_refused_wherever_they_are() -> None:
    def params(text: str) -> dict[str, Any]:
        parts = [
            {'kind': 'text', 'text': text},
            {'kind': 'data', 'data': {'deep': [{'x': text}]}},
            {'kind': 'text', 'text': 'x', 'metadata': {text: 1}},
            {'kind': 'text', 'text': 'fine'},
        ]
        return {'message': minimal(parts=parts, metadata={'x': text}), 'metadata': {'x': text}}

    fields = [
        'message.parts[0].text',
        'message.parts[1].data',
        'message.parts[2].metadata',
        'message.metadata',
        'metadata',
    ]

    assert bad('message/send', params('a\x00b')) == dict.fromkeys(fields, 'must not hold NUL characters')
    assert bad('message/send', params('a\ud800b')) == dict.fromkeys(fields, 'must not hold lone surrogates')
    assert bad_part({'kind': 'file', 'file': {'uri': 'x', 'name': '\udfff'}}) == {
        'message.parts[1].file.name': 'must not hold lone surrogates'
    }
    assert bad('tasks/get', {'id': '\ud800'}) == {'id': 'must not hold lone surrogates'}


def test_numbers_that_could_not_be_written_again_are_refused() -> None:
    part = '{"kind":"data","data":{"x":1e999},"metadata":{"x":-1e999}}'
    wire = f'{{"messageId":"m","role":"user","parts":[{part}]}}'

    with pytest.raises(RpcRefused) as info:
        CODEC.decode(f'{{"jsonrpc":"2.0","id":1,"method":"message/send","params":{{"message":{wire}}}}}'.encode())

    assert {violation.field for violation in info.value.error.violations} == {
        'message.parts[0].data',
        'message.parts[0].metadata',
    }


def test_no_refusal_repeats_what_was_sent() -> None:
    secret = 'hunter2'
    parts = [
        {'kind': secret},
        {'kind': 'file', 'file': {'bytes': f'{secret}!', 'uri': [secret]}},
        {'kind': 'text', 'text': [secret], secret: secret},
        {'kind': 'data', 'data': secret},
        secret,
    ]
    wire = {'kind': secret, 'messageId': f'{secret}\n', 'role': secret, 'parts': parts, secret: secret}
    bodies = [
        rpc('message/send', {'message': wire, 'configuration': {'blocking': secret, 'historyLength': secret}}),
        rpc('tasks/get', {'id': 't', 'x': f'{secret}\ud800'}),
        rpc(secret, {}),
    ]

    for body in bodies:
        with pytest.raises(RpcRefused) as info:
            CODEC.decode(body)
        assert secret.encode() not in CODEC.encode_error(info.value.error, 'c')
