"""What the codec of A2A 1.0 refuses, and of its parts also that of FastA2A, which has them from 1.0."""

from __future__ import annotations

from typing import Any

import pytest
from inline_snapshot import snapshot

from pydantic_ai_a2a.wire.protocol.stored import STATES

from ...cases import each_case
from .dialect_requests import REQUESTS_1_0, REQUESTS_FASTA2A, DialectRequests, dialect_name, rpc

CODEC = REQUESTS_1_0.codec
bad, message, minimal, refused = REQUESTS_1_0.bad, REQUESTS_1_0.message, REQUESTS_1_0.minimal, REQUESTS_1_0.refused


def test_bad_field_has_camel_case_path_in_any_spelling() -> None:
    params = {
        'tenant': 5,
        'message': {'message_id': '', 'reference_task_ids': [None], 'role': 'ROLE_USER', 'parts': []},
    }
    assert {*bad('SendMessage', params)} == {
        'tenant',
        'message.messageId',
        'message.parts',
        'message.referenceTaskIds[0]',
    }


@pytest.mark.parametrize('requests', [REQUESTS_1_0, REQUESTS_FASTA2A], ids=dialect_name)
@each_case(
    'part, field, text',
    [
        ({'url': 'a\x00b'}, '.url', 'must not hold control characters'),
        ({'raw': '', 'filename': 'a\nb'}, '.filename', 'must not hold control characters'),
        ({'text': 'x', 'mediaType': '\x00'}, '.mediaType', 'must not hold control characters'),
        ({'text': 'x', 'mediaType': 5}, '.mediaType', 'Input should be a valid string'),
    ],
)
def test_bad_part_field_is_reported_with_json_path(requests: DialectRequests, part: Any, field: str, text: str) -> None:
    params = {'message': requests.minimal(parts=[{'text': 'x'}, part])}
    assert requests.bad(requests.method('SendMessage'), params) == {f'message.parts[1]{field}': text}


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


@pytest.mark.parametrize('requests', [REQUESTS_1_0, REQUESTS_FASTA2A], ids=dialect_name)
@each_case(
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
def test_part_with_no_or_several_contents_is_refused(requests: DialectRequests, part: object) -> None:
    params = {'message': requests.minimal(parts=[{'text': 'x'}, part])}
    assert requests.bad(requests.method('SendMessage'), params) == {
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
