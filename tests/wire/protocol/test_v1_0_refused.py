"""What the codec of A2A 1.0 refuses, and how it says so."""

from __future__ import annotations

from typing import Any

import pytest
from inline_snapshot import snapshot

from pydantic_ai_a2a.wire.protocol.stored import STATES

from .dialect_requests import REQUESTS_1_0, rpc

CODEC = REQUESTS_1_0.codec
bad, message, minimal, refused = REQUESTS_1_0.bad, REQUESTS_1_0.message, REQUESTS_1_0.minimal, REQUESTS_1_0.refused


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
                {'url': 'a\x00b', 'filename': 'a\nb', 'mediaType': '\x00'},
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
            'message.parts[3].filename': 'must not hold control characters',
            'message.parts[3].mediaType': 'must not hold control characters',
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
def test_part_with_no_or_several_contents_is_refused(part: object) -> None:
    assert bad('SendMessage', {'message': minimal(parts=[{'text': 'x'}, part])}) == {
        'message.parts[1]': 'must hold exactly one of text, raw, url and data'
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
