"""Writing A2A 0.3 answers: what the official SDK's 0.3 types read, and take for the same as the 1.0 answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from a2a.compat.v0_3 import conversions, types
from a2a.types import a2a_pb2
from google.protobuf.json_format import Parse
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from pydantic import BaseModel

from pydantic_ai_a2a.errors import InvalidParamsError, TaskNotFoundError
from pydantic_ai_a2a.types import Artifact, Message, StoredTask, TaskEvent
from pydantic_ai_a2a.wire.protocol import stored, stored_values, text_artifact
from pydantic_ai_a2a.wire.protocol.v0_3 import V0_3
from pydantic_ai_a2a.wire.protocol.v1_0 import V1_0

from .fuzzing import ARTIFACTS, NEW_TASK, messages, stored_tasks

CODEC = V0_3()

USER: Message = {
    'message_id': 'm1',
    'context_id': 'c',
    'task_id': 't',
    'role': 'user',
    'parts': [
        {'text': 'Grüße', 'media_type': 'text/plain', 'metadata': {'k': 'v'}},
        {'raw': 'AAEC', 'filename': 'a.bin', 'media_type': 'application/octet-stream', 'metadata': {}},
        {'url': 'https://example.com/a.png', 'media_type': 'image/png'},
        {'data': {'role': 'ROLE_USER'}, 'media_type': 'application/json', 'filename': 'a.json'},
        {'data': [1, None], 'metadata': {'k': 'v'}},
        {'data': None},
    ],
    'metadata': {'state': 'TASK_STATE_WORKING'},
    'extensions': ['https://example.com/ext'],
    'reference_task_ids': ['t0'],
}
AGENT: Message = {'message_id': 'm2', 'role': 'agent', 'parts': [{'text': 'Which city?', 'media_type': 'text/plain'}]}
ARTIFACT: Artifact = {
    'artifact_id': 'a',
    'name': 'result',
    'description': 'The answer.',
    'parts': [{'data': {'result': 42}, 'media_type': 'application/json', 'metadata': {'json_schema': {}}}],
    'metadata': {'k': 'v'},
    'extensions': ['https://example.com/ext'],
}
HEADER = replace(
    NEW_TASK,
    state='input-required',
    status_at=1_767_225_600_001,
    status_message=stored_values.dump_message(AGENT),
    metadata=b'{"usage":{"input_tokens":1}}',
    last_event=7,
)


def read_by_official_type(model: type[BaseModel], body: bytes) -> Any:
    """What the official type reads in the JSON, which must be all of it."""
    read = model.model_validate_json(body)
    assert read.model_dump(mode='json', by_alias=True, exclude_unset=True) == json.loads(body)
    return read


def test_task_uses_0_3_field_names() -> None:
    task = StoredTask(HEADER, [stored_values.dump_message(USER)], [stored_values.dump_artifact(ARTIFACT)])

    assert json.loads(CODEC.encode_task(task)) == snapshot(
        {
            'kind': 'task',
            'id': 't',
            'contextId': 'c',
            'status': {
                'state': 'input-required',
                'timestamp': '2026-01-01T00:00:00.001Z',
                'message': {
                    'kind': 'message',
                    'messageId': 'm2',
                    'role': 'agent',
                    'parts': [{'kind': 'text', 'text': 'Which city?'}],
                },
            },
            'artifacts': [
                {
                    'artifactId': 'a',
                    'name': 'result',
                    'description': 'The answer.',
                    'parts': [{'kind': 'data', 'data': {'result': 42}, 'metadata': {'json_schema': {}}}],
                    'metadata': {'k': 'v'},
                    'extensions': ['https://example.com/ext'],
                }
            ],
            'history': [
                {
                    'kind': 'message',
                    'messageId': 'm1',
                    'contextId': 'c',
                    'taskId': 't',
                    'role': 'user',
                    'parts': [
                        {'kind': 'text', 'text': 'Grüße', 'metadata': {'k': 'v'}},
                        {
                            'kind': 'file',
                            'file': {'bytes': 'AAEC', 'name': 'a.bin', 'mimeType': 'application/octet-stream'},
                            'metadata': {},
                        },
                        {'kind': 'file', 'file': {'uri': 'https://example.com/a.png', 'mimeType': 'image/png'}},
                        {'kind': 'data', 'data': {'role': 'ROLE_USER'}},
                        {
                            'kind': 'data',
                            'data': {'value': [1, None]},
                            'metadata': {'k': 'v', 'data_part_compat': True},
                        },
                        {'kind': 'data', 'data': {'value': None}, 'metadata': {'data_part_compat': True}},
                    ],
                    'metadata': {'state': 'TASK_STATE_WORKING'},
                    'extensions': ['https://example.com/ext'],
                    'referenceTaskIds': ['t0'],
                }
            ],
            'metadata': {'usage': {'input_tokens': 1}},
        }
    )


def test_new_task_has_no_empty_fields() -> None:
    assert CODEC.encode_task(StoredTask(NEW_TASK, None, None)) == snapshot(
        b'{"kind":"task","id":"t","contextId":"c","status":{"state":"submitted","timestamp":"1970-01-01T00:00:00.000Z"}}'
    )
    assert CODEC.encode_task(StoredTask(NEW_TASK, [], [])) == CODEC.encode_task(StoredTask(NEW_TASK, None, None))


def test_send_result_is_the_bare_task() -> None:
    task = StoredTask(HEADER, None, None)

    assert b''.join(CODEC.result_pieces(task)) == CODEC.encode_task(task)


@pytest.mark.parametrize('state', stored.STATE_NAMES)
def test_task_states_use_0_3_names(state: Any) -> None:
    payload = stored.status_update('t', 'c', stored.status(state, 0, None))
    event = read_by_official_type(types.TaskStatusUpdateEvent, CODEC.encode_event(TaskEvent(1, state, payload), False))

    assert event.status.state == types.TaskState(state)


def with_metadata(item: Any) -> Iterator[Any]:
    """Everything in a message of the proto that has metadata, in a task, an artifact, a message or an update."""
    yield item
    for _, value in item.ListFields():
        for each in value if hasattr(value, 'extend') else [value]:
            if isinstance(each, (a2a_pb2.Message, a2a_pb2.Artifact, a2a_pb2.Part, a2a_pb2.TaskStatus)):
                yield from with_metadata(each)


def without_0_3_gaps(item: Any) -> Any:
    """Without what 0.3 has no place for: empty metadata, and what text and data are besides their content."""
    for holder in with_metadata(item):
        if isinstance(holder, a2a_pb2.Part) and holder.WhichOneof('content') in {'text', 'data'}:
            holder.media_type = holder.filename = ''
        if not isinstance(holder, a2a_pb2.TaskStatus) and not holder.metadata.fields:
            holder.ClearField('metadata')
    return item


@given(stored_tasks())
def test_official_sdk_reads_task_alike_in_both_versions(task: StoredTask) -> None:
    read = read_by_official_type(types.Task, CODEC.encode_task(task))
    same = Parse(V1_0().encode_task(task), a2a_pb2.Task())

    assert without_0_3_gaps(conversions.to_core_task(read)) == without_0_3_gaps(same)


@given(messages('agent'), st.sampled_from(list(stored.STATE_NAMES)), st.booleans())
def test_official_sdk_reads_any_status_update(message: Message, state: Any, last: bool) -> None:
    status = stored.status(state, 1_767_225_600_001, stored_values.dump_message(message))
    payload = stored.status_update('t', 'c', status)
    read = read_by_official_type(types.TaskStatusUpdateEvent, CODEC.encode_event(TaskEvent(1, state, payload), last))
    same = Parse(payload, a2a_pb2.StreamResponse()).status_update

    assert without_0_3_gaps(conversions.to_core_task_status_update_event(read)) == without_0_3_gaps(same)
    assert read.final is last


@given(ARTIFACTS)
def test_official_sdk_reads_any_artifact_update(artifact: Artifact) -> None:
    payload = stored.artifact_update('t', 'c', stored_values.dump_artifact(artifact))
    read = read_by_official_type(types.TaskArtifactUpdateEvent, CODEC.encode_event(TaskEvent(1, None, payload), False))
    same = Parse(payload, a2a_pb2.StreamResponse()).artifact_update

    assert without_0_3_gaps(conversions.to_core_task_artifact_update_event(read)) == without_0_3_gaps(same)


def test_text_chunks_set_append_and_last_chunk() -> None:
    text = text_artifact.TextArtifact('t', 'c', 'a', 'result')
    whole = stored.whole_text('t', 'c', stored_values.dump_artifact({'artifact_id': 'a', 'parts': [{'text': 'Hello'}]}))
    chunks = [text.piece('Hel', first=True), text.piece('lo', first=False), stored.without_text(whole), whole]
    encode = CODEC.encode_event
    events = [
        read_by_official_type(types.TaskArtifactUpdateEvent, encode(TaskEvent(1, None, chunk), False))
        for chunk in chunks
    ]

    assert json.loads(encode(TaskEvent(1, None, chunks[1]), False)) == snapshot(
        {
            'kind': 'artifact-update',
            'artifact': {'artifactId': 'a', 'name': 'result', 'parts': [{'kind': 'text', 'text': 'lo'}]},
            'taskId': 't',
            'contextId': 'c',
            'append': True,
        }
    )
    assert [(event.append, event.last_chunk) for event in events] == [
        (None, None),
        (True, None),
        (True, True),
        (None, True),
    ]


def test_official_sdk_reads_stream_responses() -> None:
    task = StoredTask(HEADER, [stored_values.dump_message(USER)], [stored_values.dump_artifact(ARTIFACT)])
    status = stored.status('completed', 0, None)
    payloads = [
        TaskEvent(1, 'completed', stored.status_update('t', 'c', status)),
        TaskEvent(2, None, stored.artifact_update('t', 'c', stored_values.dump_artifact(ARTIFACT))),
    ]
    results = [b''.join(CODEC.result_pieces(task)), *(CODEC.encode_event(event, True) for event in payloads)]
    answers = [types.SendStreamingMessageResponse.model_validate_json(answer(b'result', each)) for each in results]

    assert [type(each.root.result).__name__ for each in answers] == [  # type: ignore[union-attr]
        'Task',
        'TaskStatusUpdateEvent',
        'TaskArtifactUpdateEvent',
    ]
    assert types.SendMessageResponse.model_validate_json(answer(b'result', results[0])).root.result == (  # type: ignore[union-attr]
        types.GetTaskResponse.model_validate_json(answer(b'result', CODEC.encode_task(task))).root.result  # type: ignore[union-attr]
    )


def answer(key: bytes, body: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":"x","%s":%s}' % (key, body)


def test_error_has_only_code_and_message() -> None:
    error = InvalidParamsError.of('message.role', 'must be user')

    assert CODEC.encode_error(TaskNotFoundError(), 'corr') == b'{"code":-32001,"message":"Task not found"}'
    assert json.loads(CODEC.encode_error(error, 'corr')) == {
        'code': -32602,
        'message': 'Invalid parameters: message.role: must be user',
    }
