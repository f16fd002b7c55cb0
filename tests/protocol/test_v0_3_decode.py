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

from pydantic_ai_a2a.protocol.codec import Params, RpcRefused, RpcRequest
from pydantic_ai_a2a.protocol.operations import OPERATIONS
from pydantic_ai_a2a.protocol.stored import dump_message
from pydantic_ai_a2a.protocol.v0_3 import METHODS, V0_3
from pydantic_ai_a2a.protocol.v1_0 import V1_0
from pydantic_ai_a2a.types import CancelParams, GetParams, Message, PushParams, SendParams, SubscribeParams, TaskState

from .strategies import NAMES, STRUCT, messages

CODEC = V0_3()
WAITS: frozenset[TaskState] = frozenset({'input-required', 'auth-required'})


def rpc(method: str, params: Any) -> bytes:
    return json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': params}).encode()


def decoded(method: str, params: Any) -> Params | None:
    return CODEC.decode(rpc(method, params)).params


def minimal(**fields: Any) -> dict[str, Any]:
    return {'kind': 'message', 'messageId': 'm', 'role': 'user', 'parts': [{'kind': 'text', 'text': 'Hi'}], **fields}


def sent(**params: Any) -> SendParams:
    """A request with these params, and a minimal message if they have none."""
    request = decoded('message/send', {'message': minimal(), **params})
    assert isinstance(request, SendParams)
    return request


def message(**fields: Any) -> Message:
    """The message of a request whose minimal message was given more fields."""
    return sent(message=minimal(**fields)).message


def refused(body: bytes) -> tuple[int, bytes, str]:
    with pytest.raises(RpcRefused) as info:
        CODEC.decode(body)
    return info.value.error.code, info.value.id, info.value.error.message


def bad(method: str, params: Any) -> dict[str, str]:
    """The fields that the params are refused for."""
    with pytest.raises(RpcRefused) as info:
        CODEC.decode(rpc(method, params))
    assert (info.value.error.code, info.value.id) == (-32602, b'1')
    return {violation.field: violation.description for violation in info.value.error.violations}


def bad_part(part: Any) -> dict[str, str]:
    return bad('message/send', {'message': minimal(parts=[{'kind': 'text', 'text': 'x'}, part])})


def test_a_plain_send_becomes_a_request() -> None:
    body = b"""{"jsonrpc": "2.0", "id": "x", "method": "message/send", "params": {"message": {
        "kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "Hi"}]}}}"""

    assert CODEC.decode(body) == RpcRequest(
        id=b'"x"',
        operation=OPERATIONS['SendMessage'],
        params=SendParams(
            message={'message_id': 'm', 'role': 'user', 'parts': [{'text': 'Hi'}]}, dialect='0.3', also_ends=WAITS
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


def test_every_field_of_a_send_comes_through() -> None:
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
            push_config={'url': 'https://example.com/hook', 'token': 'secret'},
            metadata={'trace': 'x'},
            dialect='0.3',
            also_ends=WAITS,
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


def essence(params: Params | None) -> Any:
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
def test_the_official_sdk_says_in_0_3_what_it_says_in_1_0(request: types.SendMessageRequest, nulls: bool) -> None:
    body = request.model_dump_json(by_alias=True, exclude_none=not nulls).encode()
    core: Any = MessageToDict(conversions.to_core_send_message_request(request))
    same = json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': 'SendMessage', 'params': core}).encode()

    assert essence(CODEC.decode(body).params) == essence(V1_0().decode(same).params)


def test_null_and_empty_values_are_unset() -> None:
    unset = {'metadata': None, 'file': None, 'data': None}
    file = {'bytes': 'AA==', 'uri': None, 'name': '', 'mimeType': None}
    params = {
        'message': minimal(
            kind=None,
            contextId='',
            taskId=None,
            parts=[{'kind': 'text', 'text': '', **unset}, {'kind': 'file', 'file': file, 'text': None}],
            metadata=None,
            extensions=[],
            referenceTaskIds=None,
        ),
        'configuration': {
            'acceptedOutputModes': None,
            'pushNotificationConfig': None,
            'historyLength': None,
            'blocking': None,
        },
        'metadata': None,
    }

    assert sent(**params) == SendParams(
        message={'message_id': 'm', 'role': 'user', 'parts': [{'text': ''}, {'raw': 'AA=='}]},
        dialect='0.3',
        also_ends=WAITS,
    )
    assert sent(configuration=None) == sent(configuration={}) == sent()


def test_unknown_fields_are_ignored_everywhere() -> None:
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


def test_names_of_the_proto_are_no_names_of_0_3() -> None:
    assert bad('message/send', {'message': {'message_id': 'm', 'role': 'user', 'parts': []}}) == snapshot(
        {
            'message.messageId': 'Field required',
            'message.parts': 'List should have at least 1 item after validation, not 0',
        }
    )
    assert decoded('tasks/get', {'id': 't', 'history_length': 1}) == GetParams(id='t')


@pytest.mark.parametrize(
    ('configuration', 'returns'),
    [(None, False), ({}, False), ({'blocking': None}, False), ({'blocking': True}, False), ({'blocking': False}, True)],
)
def test_an_answer_waits_for_the_task_unless_the_client_says_otherwise(configuration: Any, returns: bool) -> None:
    assert sent(configuration=configuration).return_immediately is returns


@pytest.mark.parametrize(('length', 'read'), [(0, None), (None, None), (1, 1), (5.0, 5), ('5', 5)])
def test_only_a_positive_history_length_is_a_limit(length: object, read: int | None) -> None:
    assert sent(configuration={'historyLength': length}).history_length == read
    assert decoded('tasks/get', {'id': 't', 'historyLength': length}) == GetParams(id='t', history_length=read)


@pytest.mark.parametrize('key', ['pushNotificationConfig', 'taskPushNotificationConfig'])
def test_a_push_configuration_comes_through_by_its_old_and_its_new_name(key: str) -> None:
    assert sent(configuration={key: {'url': 'x'}}).push_config == {'url': 'x'}


@pytest.mark.parametrize('data', [{}, {'value': 1}, {'a': None}, {'kind': 'text'}])
def test_a_data_part_holds_an_object(data: Any) -> None:
    assert message(parts=[{'kind': 'data', 'data': data}])['parts'] == [{'data': data}]


@pytest.mark.parametrize('value', [None, '', 'x', 0, 1.5, True, [], [None], {}, {'value': 1}])
def test_data_that_the_official_sdk_wrapped_in_an_object_is_unwrapped(value: Any) -> None:
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
def test_data_that_is_not_wrapped_is_left_as_it_is(data: Any, metadata: Any) -> None:
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
def test_a_file_has_bytes_or_a_uri(file: Any, part: Any) -> None:
    assert message(parts=[{'kind': 'file', 'file': file}])['parts'] == [part]


def test_the_other_methods() -> None:
    assert decoded('tasks/get', {'id': 't', 'metadata': {}}) == GetParams(id='t')
    assert decoded('tasks/cancel', {'id': 't'}) == CancelParams(id='t')
    assert decoded('tasks/cancel', {'id': 't', 'metadata': {'why': 1}}) == CancelParams(id='t', metadata={'why': 1})


def test_a_task_that_has_ended_or_waits_may_be_followed() -> None:
    assert decoded('tasks/resubscribe', {'id': 't'}) == SubscribeParams(id='t', also_ends=WAITS, ended_too=True)


@pytest.mark.parametrize(
    'method',
    [
        'tasks/pushNotificationConfig/set',
        'tasks/pushNotificationConfig/get',
        'tasks/pushNotificationConfig/list',
        'tasks/pushNotificationConfig/delete',
        'agent/getAuthenticatedExtendedCard',
    ],
)
@pytest.mark.parametrize('params', [None, {}, 5, {'taskId': 't', 'pushNotificationConfig': {'url': 'x'}}])
def test_the_params_of_what_may_not_be_served_are_not_read(method: str, params: object) -> None:
    unread = PushParams('0.3', params) if 'push' in method else None
    assert CODEC.decode(rpc(method, params)) == RpcRequest(b'1', METHODS[method], unread)
    assert refused(b'{"jsonrpc":"1.0","id":1,"method":"%s"}' % method.encode())[0] == -32600


def test_the_methods_are_those_of_the_official_requests() -> None:
    requests: list[Any] = list(types.A2ARequest.model_fields['root'].annotation.__args__)  # type: ignore[union-attr]

    assert {request.model_fields['method'].default for request in requests} == METHODS.keys()


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
    ('method', 'stream'),
    [('message/stream', True), ('tasks/resubscribe', True), ('message/send', False), ('tasks/get', False)],
)
def test_a_refused_request_says_whether_it_asked_for_a_stream(method: str, stream: bool) -> None:
    for params in ({}, {'id': '\x00', 'metadata': {'\x00': 1}}, {'id': '\ud800'}):
        with pytest.raises(RpcRefused) as info:
            CODEC.decode(rpc(method, params))
        assert info.value.stream is stream


@pytest.mark.parametrize('method', ['SendMessage', 'tasks/list', 'tasks/pushNotification/set', 'message/Send', '/'])
def test_a_method_of_another_version_is_not_found(method: str) -> None:
    assert refused(rpc(method, {})) == (-32601, b'1', 'Method not found.')


@pytest.mark.parametrize('method', ['message/send', 'message/stream', 'tasks/get', 'tasks/cancel', 'tasks/resubscribe'])
@pytest.mark.parametrize('params', [None, 5, 'x', [], [{'id': 't'}]])
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
    assert bad_part(part) == {'message.parts[1]': f'must hold {kind}, as its kind says'}


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


@pytest.mark.parametrize('id', ['', 'x' * 257, 'a\x00', '\n', None, 5, True, ['x'], {}])
@pytest.mark.parametrize('method', ['tasks/get', 'tasks/cancel', 'tasks/resubscribe'])
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
