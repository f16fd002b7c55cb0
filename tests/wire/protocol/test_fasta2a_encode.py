"""Writing what FastA2A's client reads: the shapes that FastA2A's own tests pin, validated by its own types."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from fasta2a import schema
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from pydantic import TypeAdapter

from pydantic_ai_a2a.errors import ExtensionSupportRequiredError, InvalidParamsError
from pydantic_ai_a2a.types import Artifact, Message, Page, StoredTask, TaskEvent
from pydantic_ai_a2a.wire.protocol import stored, stored_values, text_artifact
from pydantic_ai_a2a.wire.protocol.fasta2a_dialect import FastA2ADialect

from .fuzzing import NEW_TASK, messages, stored_tasks

CODEC = FastA2ADialect()
GET: TypeAdapter[Any] = TypeAdapter(schema.GetTaskResponse)

USER: Message = {
    'message_id': 'm1',
    'context_id': 'c',
    'task_id': 't',
    'role': 'user',
    'parts': [
        {'text': 'Hi', 'media_type': 'text/markdown'},
        {'raw': 'AAEC', 'media_type': 'image/jpeg'},
        {'data': None, 'media_type': 'application/json', 'metadata': {'json_schema': {}, 'mine': 1}},
    ],
}
AGENT: Message = {'message_id': 'm2', 'role': 'agent', 'parts': [{'text': 'Done.', 'media_type': 'text/plain'}]}
ARTIFACT: Artifact = {
    'artifact_id': 'a',
    'name': 'result',
    'parts': [
        {
            'data': {'result': ['foo', 'bar']},
            'media_type': 'application/json',
            'metadata': {'json_schema': {'items': {}, 'type': 'array'}, 'python_type': 'list[str]'},
        },
        {'raw': 'AAEC', 'media_type': 'image/png', 'filename': 'a.png'},
    ],
}
EMPTY = StoredTask(NEW_TASK, None, None)


def read_by_fasta2a(adapter: TypeAdapter[Any], body: bytes, key: Literal['result', 'error'] = 'result') -> Any:
    """What FastA2A's type reads in a whole answer, which must be all of it."""
    answer = b'{"jsonrpc":"2.0","id":null,"%s":%s}' % (key.encode(), body)
    value = adapter.validate_json(answer)
    assert adapter.dump_python(value, mode='json', by_alias=True) == json.loads(answer)
    assert schema.a2a_response_ta.validate_json(answer)
    return value[key]


def test_task_uses_fasta2a_field_names() -> None:
    task = StoredTask(
        NEW_TASK,
        [stored_values.dump_message(USER), stored_values.dump_message(AGENT)],
        [stored_values.dump_artifact(ARTIFACT)],
    )

    assert json.loads(CODEC.encode_task(task)) == snapshot(
        {
            'id': 't',
            'contextId': 'c',
            'status': {'state': 'submitted', 'timestamp': '1970-01-01T00:00:00.000Z'},
            'artifacts': [
                {
                    'artifactId': 'a',
                    'name': 'result',
                    'parts': [
                        {
                            'data': {'result': ['foo', 'bar']},
                            'metadata': {'json_schema': {'items': {}, 'type': 'array'}},
                        },
                        {'raw': 'AAEC', 'mediaType': 'image/png', 'filename': 'a.png'},
                    ],
                }
            ],
            'history': [
                {
                    'messageId': 'm1',
                    'contextId': 'c',
                    'taskId': 't',
                    'role': 'user',
                    'parts': [
                        {'text': 'Hi', 'mediaType': 'text/markdown'},
                        {'raw': 'AAEC', 'mediaType': 'image/jpeg'},
                        {'data': None, 'mediaType': 'application/json', 'metadata': {'json_schema': {}, 'mine': 1}},
                    ],
                },
                {'messageId': 'm2', 'role': 'agent', 'parts': [{'text': 'Done.'}]},
            ],
        }
    )


def test_send_result_is_the_task_in_an_object() -> None:
    assert b''.join(CODEC.result_pieces(EMPTY)) == snapshot(
        b'{"task":{"id":"t","contextId":"c","status":{"state":"submitted","timestamp":"1970-01-01T00:00:00.000Z"}}}'
    )
    assert CODEC.encode_task(StoredTask(NEW_TASK, [], [])) == CODEC.encode_task(EMPTY)


@pytest.mark.parametrize('metadata', [None, {}, {'k': 'v'}])
def test_data_part_metadata_without_json_schema_is_kept(metadata: Any) -> None:
    body = stored_values.dump_artifact({'artifact_id': 'a', 'parts': [{'data': 1, 'metadata': metadata}]})
    part = json.loads(CODEC.encode_task(StoredTask(NEW_TASK, None, [body])))['artifacts'][0]['parts'][0]

    assert part == {'data': 1} | ({} if metadata is None else {'metadata': metadata})


def without_media_types(item: Any) -> Any:
    """Those of text and data that the agent returned."""
    parts = [dict(part) for part in item['parts']]
    for part in parts:
        if 'text' in part or 'data' in part:
            part.pop('media_type', None)
    return {**item, 'parts': parts}


def as_fasta2a_reads(task: StoredTask) -> Any:
    """The task as a value, without what FastA2A's client does not expect of an agent."""
    value: Any = stored_values.load_task(task)
    for key in ('history', 'artifacts'):
        if key in value:
            value[key] = [each if each.get('role') == 'user' else without_media_types(each) for each in value[key]]
    if 'message' in value['status']:
        value['status']['message'] = without_media_types(value['status']['message'])
    return value


@given(stored_tasks())
def test_fasta2a_types_read_any_stored_task(task: StoredTask) -> None:
    assert read_by_fasta2a(GET, CODEC.encode_task(task)) == as_fasta2a_reads(task)
    assert read_by_fasta2a(schema.send_message_response_ta, b''.join(CODEC.result_pieces(task))) == {
        'task': as_fasta2a_reads(task)
    }
    assert read_by_fasta2a(schema.stream_message_response_ta, b''.join(CODEC.result_pieces(task))) == {
        'task': as_fasta2a_reads(task)
    }


def test_fasta2a_types_read_a_page_of_tasks() -> None:
    task = StoredTask(NEW_TASK, [stored_values.dump_message(USER)], [stored_values.dump_artifact(ARTIFACT)])
    page = b''.join(CODEC.page_pieces(Page([task, EMPTY], (1, 't'), 3), page_size=2, next_page_token='x'))

    assert read_by_fasta2a(TypeAdapter[Any](schema.ListTasksResponse), page) == {
        'tasks': [read_by_fasta2a(GET, CODEC.encode_task(task)), read_by_fasta2a(GET, CODEC.encode_task(EMPTY))],
        'next_page_token': 'x',
        'page_size': 2,
        'total_size': 3,
    }


@given(messages('agent'), st.sampled_from(list(stored.STATE_NAMES)), st.booleans())
def test_fasta2a_types_read_any_status_update(message: Message, state: Any, last: bool) -> None:
    status = stored.status(state, 1_767_225_600_001, stored_values.dump_message(message))
    event = TaskEvent(1, state, stored.status_update('t', 'c', status))

    assert read_by_fasta2a(schema.stream_message_response_ta, CODEC.encode_event(event, last)) == {
        'status_update': {
            'task_id': 't',
            'context_id': 'c',
            'status': {
                'state': state,
                'timestamp': '2026-01-01T00:00:00.001Z',
                'message': without_media_types(message),
            },
        }
    }


def artifact_updates(*payloads: bytes) -> list[tuple[Any, Any, str, str]]:
    """Append, last chunk, artifact and text of each update, as FastA2A's client reads them."""
    found: list[tuple[Any, Any, str, str]] = []
    for payload in payloads:
        event = CODEC.encode_event(TaskEvent(1, None, payload), False)
        update = read_by_fasta2a(schema.stream_message_response_ta, event)['artifact_update']
        artifact = update['artifact']
        text = '|'.join(part['text'] for part in artifact['parts'])
        found.append((update['append'], update['last_chunk'], artifact['artifact_id'], text))
    return found


def whole_artifact(text: str) -> bytes:
    """The update with a whole artifact."""
    artifact: Artifact = {'artifact_id': 'a', 'parts': [{'text': text}]}
    return stored.artifact_update('t', 'c', stored_values.dump_artifact(artifact))


TEXT = text_artifact.TextArtifact('t', 'c', 'a', 'result')


def test_text_chunks_append_and_whole_artifacts_replace() -> None:
    chunk = TEXT.piece('Hel', first=True)
    assert json.loads(CODEC.encode_event(TaskEvent(1, None, chunk), False)) == snapshot(
        {
            'artifactUpdate': {
                'artifact': {'artifactId': 'a', 'name': 'result', 'parts': [{'text': 'Hel'}]},
                'taskId': 't',
                'contextId': 'c',
                'append': True,
                'lastChunk': False,
            }
        }
    )
    whole = stored.whole_text('t', 'c', stored_values.dump_artifact({'artifact_id': 'a', 'parts': [{'text': 'Hello'}]}))
    chunks = [chunk, TEXT.piece('lo', first=False), whole, stored.without_text(whole), whole_artifact('Hello')]
    assert artifact_updates(*chunks) == [
        (True, False, 'a', 'Hel'),
        (True, False, 'a', 'lo'),
        (False, True, 'a', 'Hello'),
        (True, True, 'a', ''),
        (False, True, 'a', 'Hello'),
    ]


def test_bad_fields_are_named_in_error_data() -> None:
    error = InvalidParamsError.of('message.role', 'must be user')

    assert json.loads(CODEC.encode_error(error, 'corr')) == {
        'code': -32602,
        'message': 'Invalid parameters',
        'data': {'detail': 'Invalid parameters: message.role: must be user'},
    }


def test_missing_required_extensions_are_listed_in_error_data() -> None:
    error = ExtensionSupportRequiredError(metadata={'requiredExtensions': 'https://a.example, https://b.example'})

    assert json.loads(CODEC.encode_error(error, 'corr')) == {
        'code': -32600,
        'message': 'Request payload validation error',
        'data': {'missing_required_extensions': ['https://a.example', 'https://b.example']},
    }


def test_delete_push_config_result_is_null() -> None:
    assert CODEC.encode_deleted() == b'null'
