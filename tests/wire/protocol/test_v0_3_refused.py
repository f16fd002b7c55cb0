"""What the codec of A2A 0.3 refuses, and how it says so."""

from __future__ import annotations

from typing import Any

import pytest
from inline_snapshot import snapshot

from .dialect_requests import REQUESTS_0_3

CODEC = REQUESTS_0_3.codec
bad, minimal, refused = REQUESTS_0_3.bad, REQUESTS_0_3.minimal, REQUESTS_0_3.refused


def bad_part(part: Any) -> dict[str, str]:
    return bad('message/send', {'message': minimal(parts=[{'kind': 'text', 'text': 'x'}, part])})


def test_bad_fields_of_0_3_have_json_paths() -> None:
    parts = [
        {'kind': 'file', 'file': {'bytes': '', 'mimeType': 5}},
        {'kind': 'file', 'file': {'uri': 'a\x00b', 'name': 'a\nb'}},
        {'kind': 'data', 'data': [1]},
    ]
    assert bad('message/send', {'message': minimal(kind='task', parts=parts)}) == snapshot(
        {
            'message.kind': "Input should be 'message'",
            'message.parts[0].file.mimeType': 'Input should be a valid string',
            'message.parts[1].file.uri': 'must not hold control characters',
            'message.parts[1].file.name': 'must not hold control characters',
            'message.parts[2].data': 'Input should be an object',
        }
    )


@pytest.mark.parametrize('kind', ['', 'message', 'Text', None, 5, [], {}])
def test_part_with_missing_or_unknown_kind_is_refused(kind: object) -> None:
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
def test_part_without_content_of_its_kind_is_refused(part: object, kind: str) -> None:
    assert bad_part(part) == {'message.parts[1]': f'must have the field {kind}, because its kind is {kind}'}


@pytest.mark.parametrize(
    'file',
    [{}, {'bytes': None}, {'uri': ''}, {'name': 'x'}, {'bytes': 'AA==', 'uri': 'x'}, {'bytes': '', 'uri': 'x'}],
)
def test_file_part_needs_either_bytes_or_uri(file: object) -> None:
    assert bad_part({'kind': 'file', 'file': file}) == {'message.parts[1]': 'must hold either file.bytes or file.uri'}


@pytest.mark.parametrize('data', ['x', 0, True, [], [{}]])
def test_unwrapped_data_part_must_be_an_object(data: object) -> None:
    assert bad_part({'kind': 'data', 'data': data}) == {'message.parts[1].data': 'Input should be an object'}
