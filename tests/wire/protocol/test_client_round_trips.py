"""Requests as clients write them and answers as clients read them: the inverses of what the codecs do."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast
from urllib.parse import unquote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from pydantic_ai_a2a import errors
from pydantic_ai_a2a.errors import A2AError, FieldViolation, InvalidParamsError, UnsupportedOperationError
from pydantic_ai_a2a.types import (
    CancelParams,
    CardParams,
    CreatePushParams,
    GetParams,
    ListParams,
    ListPushParams,
    Page,
    PushParams,
    PushTarget,
    Registered,
    SendParams,
    StoredTask,
    SubscribeParams,
    TaskEvent,
)
from pydantic_ai_a2a.wire.protocol import lenient_reading
from pydantic_ai_a2a.wire.protocol.codec import Codec
from pydantic_ai_a2a.wire.protocol.fasta2a_dialect import FastA2ADialect
from pydantic_ai_a2a.wire.protocol.lenient_reading import AnswerUnreadable
from pydantic_ai_a2a.wire.protocol.operations import OPERATIONS, Params
from pydantic_ai_a2a.wire.protocol.received_errors import http_error, rpc_error, status_error
from pydantic_ai_a2a.wire.protocol.received_push_configs import read_config, read_configs
from pydantic_ai_a2a.wire.protocol.received_tasks import read_event, read_list, read_streamed, read_task
from pydantic_ai_a2a.wire.protocol.stored import STATE_NAMES, artifact_update, status, status_update
from pydantic_ai_a2a.wire.protocol.stored_values import dump_artifact, dump_message, load_task
from pydantic_ai_a2a.wire.protocol.v0_3 import V0_3
from pydantic_ai_a2a.wire.protocol.v1_0 import V1_0

from ...cases import each_case
from .fuzzing import ARTIFACTS, NAME, STRUCT, canonical_json, messages, stored_tasks

NEWER, OLDER, FASTA2A = V1_0(), V0_3(), FastA2ADialect()
PRINTABLE = st.from_regex(r'[!-~]{1,20}', fullmatch=True)
TARGETS = st.builds(
    PushTarget,
    id=NAME,
    url=PRINTABLE,
    token=st.none() | PRINTABLE,
    scheme=st.just('Bearer'),
    credentials=st.none() | PRINTABLE,
)
COUNTS = st.none() | st.integers(1, 1000)
STATES = st.sampled_from(list(STATE_NAMES))
MAYBE_STRUCT = st.none() | STRUCT.filter(bool)
PARAMS: dict[str, st.SearchStrategy[Any]] = {
    'SendMessage': st.builds(
        SendParams,
        message=messages('user'),
        return_immediately=st.booleans(),
        history_length=COUNTS,
        accepted_output_modes=st.lists(NAME, max_size=2).map(tuple),
        push_config=st.none() | TARGETS,
        metadata=MAYBE_STRUCT,
    ),
    'GetTask': st.builds(GetParams, id=NAME, history_length=COUNTS),
    'ListTasks': st.builds(
        ListParams,
        context_id=st.none() | NAME,
        state=st.none() | STATES,
        since=st.none() | st.integers(0, 4_102_444_800_000),
        page_size=st.integers(1, 100),
        page_token=st.none() | NAME,
        history_length=COUNTS,
        include_artifacts=st.booleans(),
    ),
    'CancelTask': st.builds(CancelParams, id=NAME, metadata=MAYBE_STRUCT),
    'SubscribeToTask': st.builds(SubscribeParams, id=NAME),
    'CreateTaskPushNotificationConfig': st.builds(CreatePushParams, task_id=NAME, target=TARGETS),
    'GetTaskPushNotificationConfig': st.builds(PushParams, task_id=NAME, id=NAME),
    'ListTaskPushNotificationConfigs': st.builds(
        ListPushParams, task_id=NAME, page_size=st.none() | st.integers(1, 100), page_token=st.just('') | NAME
    ),
    'DeleteTaskPushNotificationConfig': st.builds(PushParams, task_id=NAME, id=NAME),
    'GetExtendedAgentCard': st.just(CardParams()),
}
DECODER_FIELDS = ('also_ends', 'ended_too', 'push_field', 'field')
"""Fields that a decoder adds."""


def client_fields(params: Any, *without: str) -> dict[str, Any]:
    """The fields of params that a client has given."""
    return {name: getattr(params, name) for name in params.__slots__ if name not in (*DECODER_FIELDS, *without)}


def drawn_params(data: st.DataObject, name: str) -> Any:
    """Params of the operation, without NUL, which servers refuse."""
    params = data.draw(PARAMS[name])
    assume(b'\\u0000' not in to_json(NEWER.params(params)))
    return params


@pytest.mark.parametrize('name', list(PARAMS))
@given(data=st.data())
def test_server_decodes_json_rpc_requests_of_client(name: str, data: st.DataObject) -> None:
    params = drawn_params(data, name)
    operation = OPERATIONS[name]
    request = NEWER.decode(NEWER.encode_request(operation, params))
    assert request.operation is operation
    assert client_fields(request.params) == client_fields(params)
    tenanted = replace(params, tenant='acme')
    assert client_fields(NEWER.decode(NEWER.encode_request(operation, tenanted)).params) == client_fields(tenanted)


@pytest.mark.parametrize('name', list(PARAMS))
@given(data=st.data())
def test_server_decodes_http_json_requests_of_client(name: str, data: st.DataObject) -> None:
    params = drawn_params(data, name)
    operation = OPERATIONS[name]
    request = NEWER.http_request(operation, params)
    [(verb, template), *_] = operation.http
    pattern = re.sub(r'\\{(\w+)\\}', r'(?P<\1>[^/]+?)', re.escape(template))
    match = re.fullmatch(pattern, request.path)
    assert match is not None
    path = {key: unquote(value) for key, value in match.groupdict().items()}
    decoded = NEWER.decode_params(operation, path=path, query=request.query.encode(), body=request.body)
    assert verb == request.verb
    assert client_fields(decoded) == client_fields(params)


@pytest.mark.parametrize('codec', [OLDER, FASTA2A], ids=['0.3', 'fasta2a'])
@pytest.mark.parametrize('name', list(PARAMS))
@given(data=st.data())
def test_server_decodes_older_requests_of_client(codec: Codec, name: str, data: st.DataObject) -> None:
    params = drawn_params(data, name)
    operation = OPERATIONS[name]
    if not codec.method(operation):
        with pytest.raises(UnsupportedOperationError, match=name):
            codec.encode_request(operation, params)
        return
    pages = ('page_size', 'page_token') if codec is OLDER and isinstance(params, ListPushParams) else ()
    decoded: Any = codec.decode(codec.encode_request(operation, params)).params
    if codec is OLDER and isinstance(params, SendParams):  # parts of 0.3 have fewer fields
        assert len(decoded.message['parts']) == len(params.message['parts'])
        pages = ('message',)
    assert client_fields(decoded, *pages) == client_fields(params, *pages)


def comparable_task(task: Any, codec: Codec = NEWER) -> str:
    """A task without empty fields outside of its data, and without fields that the parts of the version lack."""
    keep = ('data', 'metadata')
    lost = ('filename', 'media_type') if codec is OLDER else ()

    def walk(value: Any) -> Any:
        if isinstance(value, list):
            return [walk(item) for item in cast('list[Any]', value)]
        if not isinstance(value, dict):
            return value
        fields = cast('dict[str, Any]', value)
        kept = {name: item if name in keep else walk(item) for name, item in fields.items()}
        return {
            name: item
            for name, item in kept.items()
            if name not in lost or not {'text', 'data'} & kept.keys()
            if name in ('text', 'raw', 'data') or not (item == '' or (name == 'metadata' and item == {}))
        }

    return canonical_json(walk(task))


def read_both_ways(value: object) -> Any:
    """The event in an answer; in a stream the same event is read from its bytes."""
    event = read_event(value)
    streamed = [
        read_streamed(to_json(value), in_response=False),
        read_streamed(to_json({'jsonrpc': '2.0', 'id': 1, 'result': value}), in_response=True),
    ]
    assert [canonical_json(one) for one in streamed] == [canonical_json(event)] * 2
    return event


@pytest.mark.parametrize('codec', [NEWER, OLDER], ids=['1.0', '0.3'])
@given(task=stored_tasks())
def test_client_reads_task_as_stored(codec: Codec, task: StoredTask) -> None:
    read = read_both_ways(from_json(b''.join(codec.result_pieces(task))))['task']
    expected: Any = load_task(task)
    assert comparable_task(read, codec) == comparable_task(expected, codec)
    assert comparable_task(read_task(from_json(codec.encode_task(task))), codec) == comparable_task(expected, codec)


@given(task=stored_tasks())
def test_client_reads_id_state_and_artifacts_of_fasta2a_task(task: StoredTask) -> None:
    read = read_both_ways(from_json(b''.join(FASTA2A.result_pieces(task))))['task']
    assert read['id'] == task.header.id
    assert read['status']['state'] == task.header.state
    assert len(read.get('artifacts', ())) == len(task.artifacts or ())


@pytest.mark.parametrize('codec', [NEWER, OLDER, FASTA2A], ids=['1.0', '0.3', 'fasta2a'])
@given(artifact=ARTIFACTS, message=messages('agent'), append=st.booleans(), state=STATES)
def test_client_reads_events_and_messages_as_stored(
    codec: Codec, artifact: Any, message: Any, append: bool, state: Any
) -> None:
    encode = codec.encode_event
    stored_status = status(state, 0, dump_message(message))
    event = TaskEvent(1, state, status_update('t', 'c', stored_status, b'{"a":1}'))
    update = read_both_ways(from_json(encode(event, True)))['status_update']
    assert (update['task_id'], update['context_id'], update['metadata']) == ('t', 'c', {'a': 1})
    assert update['status']['state'] == state
    assert update['status']['message']['message_id'] == message['message_id']
    event = TaskEvent(2, None, artifact_update('t', 'c', dump_artifact(artifact), append=append, last=False))
    chunk = read_both_ways(from_json(encode(event, False)))['artifact_update']
    assert chunk['artifact']['artifact_id'] == artifact['artifact_id']
    assert chunk.get('append', False) is (append or codec is FASTA2A)
    if codec is not FASTA2A:
        assert comparable_task(chunk['artifact'], codec) == comparable_task(artifact, codec)
    answer = read_both_ways(from_json(codec.encode_message_result(dump_message(message))))
    assert answer['message']['message_id'] == message['message_id']


@given(tasks=st.lists(stored_tasks(), max_size=3), token=st.just('') | NAME)
def test_client_reads_page_of_tasks_as_sent(tasks: list[StoredTask], token: str) -> None:
    written = b''.join(NEWER.page_pieces(Page(tasks, None, len(tasks)), page_size=7, next_page_token=token))
    page = read_list(from_json(written))
    assert [task['id'] for task in page['tasks']] == [task.header.id for task in tasks]
    assert page.get('next_page_token', '') == token


@pytest.mark.parametrize('codec', [NEWER, OLDER, FASTA2A], ids=['1.0', '0.3', 'fasta2a'])
@given(target=TARGETS)
def test_client_reads_push_configs_as_sent(codec: Codec, target: PushTarget) -> None:
    registered = Registered('t', target)
    config: Any = read_config(from_json(codec.encode_push_config(registered)))
    authentication = {'scheme': 'Bearer', **({'credentials': target.credentials} if target.credentials else {})}
    token = {'token': target.token} if target.token else {}
    expected = {'id': target.id, 'task_id': 't', 'url': target.url, **token, 'authentication': authentication}
    assert config == expected
    assert read_configs(from_json(codec.encode_push_configs([registered]))) == ([expected], '')


def test_push_config_list_has_next_page_token() -> None:
    assert read_configs(from_json(NEWER.encode_push_configs([], 'next'))) == ([], 'next')
    assert read_configs({}) == ([], '')
    assert read_config({'url': 'https://example.com', 'authentication': {}}) == {'url': 'https://example.com'}


KINDS = sorted(
    {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, A2AError)},
    key=lambda kind: kind.__name__,
)


@each_case('kind', KINDS)
def test_client_reads_error_code_message_and_correlation_id(kind: type[A2AError]) -> None:
    error = kind()
    over_rpc = rpc_error(from_json(NEWER.encode_error(error, 'name')), error.http_status if error.transport else 200)
    over_http = http_error(from_json(NEWER.encode_status(error, 'name')), error.http_status)
    for read in (over_rpc, over_http):
        assert (read.code, read.reason, read.message) == (error.code, error.reason, error.message)
        assert read.correlation_id == 'name'
    assert over_http.http_status == error.http_status


def test_client_reads_field_violations_of_invalid_params() -> None:
    error = InvalidParamsError('Bad.', violations=[FieldViolation('message.parts', 'must not be empty')])
    for read in (
        rpc_error(from_json(NEWER.encode_error(error, 'name')), 200),
        http_error(from_json(NEWER.encode_status(error, 'name')), 400),
    ):
        assert isinstance(read, InvalidParamsError)
        assert read.violations == error.violations


@pytest.mark.parametrize(
    ('error', 'kind', 'text'),
    [
        ({'code': -32001, 'message': 'Gone\nand over'}, errors.TaskNotFoundError, 'Gone and over'),
        ({'code': -32602, 'message': 'x' * 5000}, InvalidParamsError, 'x' * 1000),
        (
            {'code': -32601, 'message': 'No', 'data': {'detail': 'No such method.'}},
            errors.MethodNotFoundError,
            'No such method.',
        ),
        ({'code': 7, 'message': ''}, A2AError, 'The request could not be served.'),
        ('broken', A2AError, 'broken'),
        (3, A2AError, 'The request could not be served.'),
        (
            {'code': True, 'data': [3, {'reason': 3}, {'fieldViolations': [4, {'field': 'a'}]}]},
            A2AError,
            'The request could not be served.',
        ),
        (
            {'code': -1, 'data': [{'reason': 'TASK_NOT_FOUND', 'metadata': {'a': 3}}]},
            errors.TaskNotFoundError,
            'Task not found.',
        ),
    ],
)
def test_malformed_remote_errors_are_read_leniently(error: object, kind: type[A2AError], text: str) -> None:
    read = rpc_error(error, 200)
    assert type(read) is kind
    assert read.message == text


def test_unknown_error_code_falls_back_to_http_status() -> None:
    assert rpc_error({'code': 7, 'message': 'Odd'}, 200).metadata['code'] == '7'
    assert type(rpc_error({'code': -32001, 'message': 'No'}, 404)) is errors.TaskNotFoundError
    assert type(rpc_error({'code': 0}, 401)) is errors.UnauthenticatedError
    refused = status_error(403, 'http://agent.example/')
    assert type(refused) is errors.PermissionDeniedError
    assert refused.message == 'http://agent.example/ has answered with HTTP 403.'
    assert type(http_error([], 418)) is A2AError


def test_retry_after_is_whole_seconds_or_none() -> None:
    assert errors.QuotaExceededError.of('day', 1500).retry_after == 2
    assert errors.OverloadedError(headers={'Retry-After': 'Mon, 23 Nov 2026 10:00:00 GMT'}).retry_after is None


NO_EVENTS: list[tuple[Any, str]] = [
    (3, 'valid dictionary'),
    ([], 'valid dictionary'),
    ({}, 'exactly one of task'),
    ({'kind': []}, 'exactly one of task'),
    ({'kind': 'cat'}, 'exactly one of task'),
    ({'task': {}, 'message': None}, 'task.id'),
    ({'task': {'id': 't', 'status': {'state': 'odd'}}}, 'task.status.state: must be a state'),
    ({'task': {'id': 't', 'status': {'state': []}}}, 'task.status.state: must be a state'),
    ({'message': {'messageId': 'm', 'role': 'ROLE_CAT', 'parts': []}}, 'message.role: must be the role'),
    ({'artifactUpdate': {'taskId': 't'}}, 'artifactUpdate.artifact'),
    ({'message': {'role': 1, 'parts': [{}] * 1001}}, 'more than 1000 values cannot be read'),
]


@pytest.mark.parametrize(('value', 'text'), NO_EVENTS)
def test_invalid_event_is_refused_by_field_without_its_value(value: object, text: str) -> None:
    with pytest.raises(AnswerUnreadable, match=re.escape(text)) as refused:
        read_event(value)
    assert 'odd' not in str(refused.value)
    assert read_streamed(to_json(value), in_response=False) is None


def test_faulty_optional_values_of_task_are_dropped() -> None:
    good = {'role': 'agent', 'parts': [{'text': 'a'}]}
    wire: dict[str, Any] = {
        'id': 't',
        'status': {'state': 'completed', 'timestamp': 5, 'message': {'role': 'cat', 'parts': []}},
        'history': [
            good,
            3,
            {'role': 'agent', 'parts': [{}, {'text': 'b'}], 'reference_task_ids': 'x'},
            {},
            {'metadata': 5},
            good,
        ],
        'artifacts': [{'parts': [{'text': 1}, {'text': 'c', 'metadata': []}]}, {'name': 'two', 'parts': None}],
        'metadata': 'none',
    }
    before = deepcopy(wire)
    message = {'message_id': '', **good}
    assert read_task(wire) == {
        'id': 't',
        'context_id': '',
        'status': {'state': 'completed'},
        'history': [message, {**message, 'parts': [{'text': 'b'}]}, message],
        'artifacts': [
            {'artifact_id': 'artifact-0', 'parts': [{'text': 'c'}]},
            {'artifact_id': 'artifact-1', 'name': 'two', 'parts': []},
        ],
    }
    assert wire == before


def test_task_with_too_many_faulty_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lenient_reading, 'MOST_ROUNDS', 1)
    with pytest.raises(AnswerUnreadable, match='metadata: '):
        read_task({'id': 't', 'status': {'state': 'completed'}, 'metadata': 3})


TEXT: dict[str, Any] = {'artifactId': 'a', 'parts': [{'text': 'x'}]}
CHUNK: dict[str, Any] = {'taskId': 't', 'contextId': 'c', 'artifact': TEXT}


CHUNKS: list[dict[str, Any]] = [
    CHUNK,
    {**CHUNK, 'append': True, 'lastChunk': False},
    {**CHUNK, 'append': None, 'contextId': ''},
    {**CHUNK, 'contextId': ''},
    {**CHUNK, 'artifact': {**TEXT, 'name': ''}},
    {**CHUNK, 'artifact': {**TEXT, 'parts': [{'text': 'x', 'mediaType': ''}]}},
    {**CHUNK, 'metadata': {}, 'newField': 3},
    {**CHUNK, 'task_id': 't', 'artifact': {**TEXT, 'name': 'answer', 'description': '', 'metadata': {'a': None}}},
    {**CHUNK, 'artifact': {'artifactId': 'a', 'parts': []}},
    {**CHUNK, 'artifact': {**TEXT, 'parts': [{'text': '', 'mediaType': 'text/plain'}, {'text': 'x'}]}},
    {**CHUNK, 'artifact': {**TEXT, 'parts': [{'text': 'x', 'mediaType': '', 'metadata': {}}, {'data': None}]}},
    {**CHUNK, 'artifact': {**TEXT, 'parts': [{'kind': 'text', 'text': 'x'}]}, 'kind': 'artifact-update'},
]


@pytest.mark.parametrize('chunk', CHUNKS)
def test_text_chunk_is_read_like_its_json_value(chunk: dict[str, Any]) -> None:
    read_both_ways(chunk if 'kind' in chunk else {'artifactUpdate': chunk})


def test_response_with_error_or_without_result_has_no_event() -> None:
    responses: list[Any] = [{'result': {'artifactUpdate': CHUNK}, 'error': {'code': 1}}, {'id': 1}, []]
    for response in responses:
        assert read_streamed(to_json(response), in_response=True) is None


def test_malformed_config_and_task_lists_are_refused() -> None:
    for value in (3, {'configs': 3}):
        with pytest.raises(AnswerUnreadable):
            read_configs(value)
    assert read_configs([3]) == ([], '')
    with pytest.raises(AnswerUnreadable, match='tasks: '):
        read_list({'tasks': 3})


def test_absent_response_fields_are_read_as_empty() -> None:
    assert read_event({'message': {'messageId': 'm', 'role': 'agent'}}) == {
        'message': {'message_id': 'm', 'role': 'agent', 'parts': []}
    }
    assert read_task({'id': 't', 'status': {'state': 3}, 'history': None, 'metadata': None}) == {
        'id': 't',
        'context_id': '',
        'status': {'state': 'completed'},
    }
    assert read_list({}) == {'tasks': []}
    wrapped = {'kind': 'data', 'data': {'value': 3}, 'metadata': {'data_part_compat': True, 'a': 1}}
    bare = {'kind': 'data', 'data': {'other': 3}, 'metadata': {'data_part_compat': True}}
    own = {'kind': 'data', 'data': {'value': 3}, 'metadata': {'a': 1}}
    file = {'kind': 'file', 'file': {'bytes': 'AA==', 'name': 'a', 'mimeType': 'text/plain'}}
    parts = read_both_ways({'kind': 'message', 'messageId': 'm', 'role': 'agent', 'parts': [wrapped, bare, own, file]})
    assert parts['message']['parts'] == [
        {'data': 3, 'metadata': {'a': 1}},
        {'data': {'other': 3}, 'metadata': {'data_part_compat': True}},
        {'data': {'value': 3}, 'metadata': {'a': 1}},
        {'raw': 'AA==', 'filename': 'a', 'media_type': 'text/plain'},
    ]


def test_equal_params_encode_to_equal_bytes() -> None:
    params: Params = SendParams(message={'message_id': 'm', 'role': 'user', 'parts': [{'data': {'b': 1, 'a': 2}}]})
    for codec in (NEWER, OLDER, FASTA2A):
        first = codec.encode_request(OPERATIONS['SendMessage'], params)
        assert first == codec.encode_request(OPERATIONS['SendMessage'], params)
        assert to_json(from_json(first)) == first
