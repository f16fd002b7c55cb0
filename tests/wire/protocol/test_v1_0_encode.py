"""Writing A2A 1.0 answers, and the vocabulary's way to stored JSON and back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from a2a.types import a2a_pb2
from google.protobuf import any_pb2, json_format
from google.rpc import error_details_pb2
from hypothesis import given
from inline_snapshot import snapshot

from pydantic_ai_a2a.errors import InvalidParamsError, TaskNotFoundError
from pydantic_ai_a2a.types import Artifact, Message, Page, Part, SendParams, StoredTask, TaskEvent
from pydantic_ai_a2a.wire.protocol.stored import STATES
from pydantic_ai_a2a.wire.protocol.stored_values import (
    dump_artifact,
    dump_message,
    dump_parts,
    load_artifact,
    load_message,
    load_task,
)
from pydantic_ai_a2a.wire.protocol.v1_0 import V1_0

from .fuzzing import ARTIFACTS, NEW_TASK, canonical_json, messages

CODEC = V1_0()

USER: Message = {
    'message_id': 'm1',
    'context_id': 'c',
    'task_id': 't',
    'role': 'user',
    'parts': [
        {'text': 'Grüße', 'metadata': {'media_type': 'kept'}},
        {'raw': 'AAEC', 'filename': 'a.bin', 'media_type': 'application/octet-stream'},
        {'url': 'https://example.com/a.png', 'media_type': 'image/png'},
        {'data': {'role': 'user', 'message_id': [1.5, None]}},
        {'data': None},
    ],
    'metadata': {'task_id': None},
    'extensions': ['https://example.com/ext'],
    'reference_task_ids': ['t0'],
}
AGENT: Message = {'message_id': 'm2', 'role': 'agent', 'parts': [{'text': 'Which city?'}]}
ARTIFACT: Artifact = {
    'artifact_id': 'a',
    'name': 'result',
    'description': 'The answer.',
    'parts': [{'data': {'result': 42}, 'media_type': 'application/json'}],
    'metadata': {'json_schema': {}},
    'extensions': ['https://example.com/ext'],
}
FULL = StoredTask(
    replace(
        NEW_TASK,
        id='t"1',
        state='input-required',
        status_at=1_767_225_600_001,
        status_message=dump_message(AGENT),
        metadata=b'{"usage":{"input_tokens":1}}',
        last_event=7,
    ),
    history=[dump_message(USER), dump_message(AGENT)],
    artifacts=[dump_artifact(ARTIFACT)],
)
BARE = StoredTask(replace(NEW_TASK, id='t2'), history=None, artifacts=None)


def test_message_uses_1_0_field_names() -> None:
    assert json.loads(dump_message(USER)) == snapshot(
        {
            'messageId': 'm1',
            'contextId': 'c',
            'taskId': 't',
            'role': 'ROLE_USER',
            'parts': [
                {'text': 'Grüße', 'metadata': {'media_type': 'kept'}},
                {'raw': 'AAEC', 'filename': 'a.bin', 'mediaType': 'application/octet-stream'},
                {'url': 'https://example.com/a.png', 'mediaType': 'image/png'},
                {'data': {'role': 'user', 'message_id': [1.5, None]}},
                {'data': None},
            ],
            'metadata': {'task_id': None},
            'extensions': ['https://example.com/ext'],
            'referenceTaskIds': ['t0'],
        }
    )


def test_artifact_uses_1_0_field_names() -> None:
    assert json.loads(dump_artifact(ARTIFACT)) == snapshot(
        {
            'artifactId': 'a',
            'name': 'result',
            'description': 'The answer.',
            'parts': [{'data': {'result': 42}, 'mediaType': 'application/json'}],
            'metadata': {'json_schema': {}},
            'extensions': ['https://example.com/ext'],
        }
    )


def test_unset_fields_are_omitted_but_null_data_is_kept() -> None:
    parts: list[Any] = [{'data': None, 'metadata': None}, {'text': 'x', 'filename': None}]
    message: Any = {**AGENT, 'context_id': None}

    assert dump_parts(parts) == b'[{"data":null},{"text":"x"}]'
    assert dump_message(message) == dump_message(AGENT)


def test_nan_and_infinity_are_encoded_as_null() -> None:
    parts: list[Part] = [{'data': [float('nan'), float('inf'), -float('inf'), 1.5]}]

    assert dump_parts(parts) == b'[{"data":[null,null,null,1.5]}]'
    assert b'null,null,null' in dump_message({**AGENT, 'parts': parts})
    assert b'null,null,null' in dump_artifact({**ARTIFACT, 'parts': parts})


def test_dumping_does_not_change_its_argument() -> None:
    before = json.dumps([USER, ARTIFACT])
    dump_message(USER)
    dump_artifact(ARTIFACT)

    assert json.dumps([USER, ARTIFACT]) == before


@given(messages('user', 'agent'))
def test_any_message_survives_dump_and_load(message: Message) -> None:
    assert canonical_json(load_message(dump_message(message))) == canonical_json(message)


@given(ARTIFACTS)
def test_any_artifact_survives_dump_and_load(artifact: Artifact) -> None:
    assert canonical_json(load_artifact(dump_artifact(artifact))) == canonical_json(artifact)


@given(messages('user'))
def test_any_dumped_message_is_decoded_unchanged(message: Message) -> None:
    """Decoding a request undoes dumping, except that NUL is refused."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":%s}}' % dump_message(message)
    if '\\u0000' in canonical_json(message):
        body = body.replace(b'\\u0000', b'\\u2400')
        message = json.loads(canonical_json(message).replace('\\u0000', '\\u2400'))
    params = CODEC.decode(body).params

    assert isinstance(params, SendParams)
    assert canonical_json(params.message) == canonical_json(message)


@given(messages('user', 'agent'))
def test_official_sdk_reads_any_message(message: Message) -> None:
    read = json_format.Parse(dump_message(message), a2a_pb2.Message())

    assert read.message_id == message['message_id']
    assert [part.text for part in read.parts] == [part.get('text', '') for part in message['parts']]


def test_task_is_encoded_from_stored_json() -> None:
    assert CODEC.encode_task(BARE) == snapshot(
        b'{"id":"t2","contextId":"c","status":{"state":"TASK_STATE_SUBMITTED","timestamp":"1970-01-01T00:00:00.000Z"}}'
    )
    assert json.loads(CODEC.encode_task(FULL)) == {
        'id': 't"1',
        'contextId': 'c',
        'status': {
            'state': 'TASK_STATE_INPUT_REQUIRED',
            'timestamp': '2026-01-01T00:00:00.001Z',
            'message': {'messageId': 'm2', 'role': 'ROLE_AGENT', 'parts': [{'text': 'Which city?'}]},
        },
        'artifacts': [json.loads(dump_artifact(ARTIFACT))],
        'history': [json.loads(dump_message(USER)), json.loads(dump_message(AGENT))],
        'metadata': {'usage': {'input_tokens': 1}},
    }


def test_empty_history_and_artifacts_are_omitted() -> None:
    assert CODEC.encode_task(BARE._replace(history=[], artifacts=[])) == CODEC.encode_task(BARE)


def test_send_result_is_the_task_in_an_object() -> None:
    assert b''.join(CODEC.result_pieces(BARE)) == b'{"task":%s}' % CODEC.encode_task(BARE)


def test_event_is_encoded_as_stored() -> None:
    assert CODEC.encode_event(TaskEvent(1, 'working', b'{"statusUpdate":{}}'), False) == b'{"statusUpdate":{}}'


def test_empty_page_of_tasks_has_all_fields() -> None:
    empty = b''.join(CODEC.page_pieces(Page([], None, 0), page_size=50, next_page_token=''))
    page = b''.join(CODEC.page_pieces(Page([BARE, BARE], (1, 't'), 3), page_size=2, next_page_token='"x"'))

    assert empty == b'{"tasks":[],"nextPageToken":"","pageSize":50,"totalSize":0}'
    assert json.loads(page) == {
        'tasks': [json.loads(CODEC.encode_task(BARE))] * 2,
        'nextPageToken': '"x"',
        'pageSize': 2,
        'totalSize': 3,
    }


def test_official_sdk_parses_task_in_every_response() -> None:
    task = json_format.Parse(CODEC.encode_task(FULL), a2a_pb2.Task())
    result = json_format.Parse(b''.join(CODEC.result_pieces(FULL)), a2a_pb2.SendMessageResponse())
    event = json_format.Parse(b''.join(CODEC.result_pieces(FULL)), a2a_pb2.StreamResponse())
    page = json_format.Parse(
        b''.join(CODEC.page_pieces(Page([FULL], None, 1), page_size=50, next_page_token='')),
        a2a_pb2.ListTasksResponse(),
    )

    assert task == result.task == event.task == page.tasks[0]
    assert task.status.timestamp.ToMilliseconds() == FULL.header.status_at
    assert json_format.MessageToDict(task) == json.loads(CODEC.encode_task(FULL))


@pytest.mark.parametrize(('name', 'state'), STATES.items())
def test_task_states_use_proto_names(state: Any, name: str) -> None:
    task = StoredTask(replace(NEW_TASK, state=state), None, None)

    assert json.loads(CODEC.encode_task(task))['status']['state'] == name


def test_stored_task_is_loaded_as_value() -> None:
    assert load_task(FULL) == {
        'id': 't"1',
        'context_id': 'c',
        'status': {'state': 'input-required', 'timestamp': '2026-01-01T00:00:00.001Z', 'message': AGENT},
        'artifacts': [ARTIFACT],
        'history': [USER, AGENT],
        'metadata': {'usage': {'input_tokens': 1}},
    }
    assert load_task(BARE) == snapshot(
        {'id': 't2', 'context_id': 'c', 'status': {'state': 'submitted', 'timestamp': '1970-01-01T00:00:00.000Z'}}
    )
    assert load_task(BARE._replace(history=[], artifacts=[])) == load_task(BARE)


def test_error_data_has_reason_and_correlation_id() -> None:
    assert json.loads(CODEC.encode_error(TaskNotFoundError(metadata={'taskId': 't'}), 'corr')) == snapshot(
        {
            'code': -32001,
            'message': 'Task not found.',
            'data': [
                {
                    '@type': 'type.googleapis.com/google.rpc.ErrorInfo',
                    'reason': 'TASK_NOT_FOUND',
                    'domain': 'a2a-protocol.org',
                    'metadata': {'correlationId': 'corr', 'taskId': 't'},
                }
            ],
        }
    )


def test_error_details_parse_as_google_rpc_types() -> None:
    error = InvalidParamsError.of('message.role', 'must be ROLE_USER')
    info, request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail, message in zip(json.loads(CODEC.encode_error(error, 'corr'))['data'], (info, request), strict=True):
        assert json_format.ParseDict(detail, any_pb2.Any()).Unpack(message)

    assert (info.reason, info.domain, dict(info.metadata)) == (
        'INVALID_PARAMS',
        'a2a-protocol.org',
        {'correlationId': 'corr'},
    )
    assert [(violation.field, violation.description) for violation in request.field_violations] == [
        ('message.role', 'must be ROLE_USER')
    ]
