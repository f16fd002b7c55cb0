"""JSON as it is stored: messages, artifacts, and the metadata of runs."""

from __future__ import annotations

from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart
from pydantic_ai.usage import RunUsage
from pydantic_core import from_json, to_json

from pydantic_ai_a2a.types import Message, Part
from pydantic_ai_a2a.wire.extensions.own_extensions import RUN_METADATA_URI
from pydantic_ai_a2a.wire.extensions.run_metadata import asks_run_metadata, task_metadata
from pydantic_ai_a2a.wire.protocol import joined_bytes, message_digest, new_ids, stored, stored_values, text_artifact


def update(parts: list[dict[str, object]], *, append: bool = False, artifact: str = 'a') -> bytes:
    body: dict[str, object] = {'artifact': {'artifactId': artifact, 'parts': parts}}
    return to_json({'artifactUpdate': body | ({'append': True} if append else {})})


def test_appended_text_chunks_merge_but_data_parts_stay() -> None:
    updates = [
        update([{'text': 'old'}]),
        update([{'text': 'a'}]),
        update([{'text': 'b'}], append=True),
        update([{'data': 1}], append=True),
        update([{'data': 2}], append=True),
        update([{'text': 'c'}], append=True),
        update([{'text': 'else'}], artifact='b'),
    ]
    assert [from_json(body) for body in stored.assemble([], updates)] == [
        {'artifactId': 'a', 'parts': [{'text': 'ab'}, {'data': 1}, {'data': 2}, {'text': 'c'}]},
        {'artifactId': 'b', 'parts': [{'text': 'else'}]},
    ]


def test_note_drops_earlier_text_chunks_but_not_whole_answers() -> None:
    def texts(*updates: bytes) -> list[str]:
        kept = to_json({'artifactId': 'earlier', 'parts': [{'text': 'kept'}]})
        return [from_json(body)['parts'][0]['text'] for body in stored.assemble([kept], updates)]

    text, earlier = (text_artifact.TextArtifact('t', 'c', name, 'result') for name in ('now', 'earlier'))
    pieces = [text.piece('Let me ', first=True), text.piece('look.', first=False)]
    note = stored.note('t', 'c', stored.status('working', 0, None))
    answer = text.piece('Sunny', first=True)
    whole = stored.whole_text('t', 'c', to_json({'artifactId': 'now', 'parts': [{'text': 'Sunny.'}]}))
    assert texts(*pieces) == ['kept', 'Let me look.']
    assert texts(*pieces, note) == texts(note) == ['kept']
    assert texts(*pieces, note, answer) == ['kept', 'Sunny']
    assert texts(*pieces, note, answer, whole, note) == ['kept', 'Sunny.']
    assert texts(earlier.piece('Let me look.', first=True), note) == ['kept']


def test_message_joined_from_pieces_equals_dumped_message() -> None:
    parts = stored.text_parts('Grüße "x"\n')
    joined = stored.with_ids(stored.message('m', b'ROLE_AGENT', parts, b',"metadata":{"k":1}'), 't', 'c')

    assert stored_values.load_message(joined) == {
        'message_id': 'm',
        'role': 'agent',
        'parts': [{'text': 'Grüße "x"\n', 'media_type': 'text/plain'}],
        'metadata': {'k': 1},
        'task_id': 't',
        'context_id': 'c',
    }
    assert from_json(joined) == from_json(stored_values.dump_message(stored_values.load_message(joined)))


def test_new_ids_are_unique_32_digit_hex() -> None:
    ids = {new_ids.new_id() for _ in range(1000)}

    assert len(ids) == 1000
    assert {len(bytes.fromhex(id)) for id in ids} == {16}


def test_message_digest_covers_content_and_target_but_not_id() -> None:
    said = Message(role='user', parts=[Part(data={'a': 1, 'b': {'c': 2, 'd': 3}})], message_id='m', context_id='c')
    again = Message(role='user', parts=[Part(data={'b': {'d': 3, 'c': 2}, 'a': 1})], message_id='n', context_id='c')
    others: list[Message] = [
        {**said, 'parts': [Part(text='a')]},
        {**said, 'parts': [Part(text='a', metadata={'k': 1})]},
        {**said, 'role': 'agent'},
        {**said, 'context_id': 'd'},
        {**said, 'task_id': 'c'},
        {**said, 'reference_task_ids': ['c']},
        {**said, 'extensions': ['c']},
        {**said, 'metadata': {'k': 1}},
    ]

    def digest(message: Message, *rest: object) -> bytes:
        return message_digest.digest(message, stored_values.dump_parts(message['parts']), *rest)

    assert digest(said, {'k': 1, 'l': 2}, ('text/plain',)) == digest(again, {'l': 2, 'k': 1}, ['text/plain'])
    assert digest(said, None, (), None) == digest(again, {}, [], '')
    rests = [({'k': 1},), (None, ['text/plain']), (None, None, 'https://example.com')]
    assert len({digest(said), *map(digest, others), *(digest(said, *rest) for rest in rests)}) == 12


@pytest.mark.parametrize(
    'sizes', [[], [3], [100_000], [300] * 1_000, [10, 100_000, 10, 40_000, 40_000, 10], [70_000, 70_000], [1] * 100_000]
)
@pytest.mark.parametrize('separator', [b'', b','])
def test_joining_bytes_does_not_copy_long_values(sizes: list[int], separator: bytes) -> None:
    values = [b'%d' % (n % 10) * size for n, size in enumerate(sizes)]
    pieces = joined_bytes.joined(values, separator)
    assert b''.join(pieces) == separator.join(values)
    assert len(pieces) <= 2 + 2 * sum(sizes) // 32_768
    long = [value for value in values if len(value) > 60_000]
    assert [piece for piece in pieces if any(piece is value for value in long)] == long


USAGE = RunUsage(requests=2, input_tokens=7, output_tokens=3, cache_read_tokens=1)


def recorded_metadata(before: dict[str, Any] | None, usage: RunUsage | None, *models: str | None) -> dict[str, Any]:
    messages = [ModelRequest(parts=[]), *(ModelResponse(parts=[TextPart('a')], model_name=name) for name in models)]
    body = None if before is None else to_json(before)
    return from_json(task_metadata(body, run_id='r', usage=usage, messages=messages))


def test_run_metadata_keeps_existing_task_metadata() -> None:
    assert recorded_metadata({'own': 1}, None, 'm', None) == {'own': 1, RUN_METADATA_URI: {'runId': 'r', 'model': 'm'}}


def test_metadata_names_model_of_last_response() -> None:
    assert recorded_metadata(None, None, 'small', 'large', None)[RUN_METADATA_URI]['model'] == 'large'


def test_run_metadata_adds_usage_of_earlier_runs() -> None:
    assert recorded_metadata(recorded_metadata(None, USAGE), USAGE, 'm') == snapshot(
        {
            'https://pypi.org/project/pydantic-ai-a2a/#run-metadata-v1': {
                'runId': 'r',
                'model': 'm',
                'usage': {
                    'requests': 4,
                    'toolCalls': 0,
                    'inputTokens': 14,
                    'outputTokens': 6,
                    'cacheReadTokens': 2,
                    'cacheWriteTokens': 0,
                },
            }
        }
    )


def test_run_without_usage_keeps_usage_of_earlier_runs() -> None:
    before = recorded_metadata(None, USAGE, 'm')
    assert recorded_metadata(before, None) == {
        RUN_METADATA_URI: {'runId': 'r', 'usage': before[RUN_METADATA_URI]['usage']}
    }


def test_run_metadata_is_requested_only_by_message_extensions() -> None:
    assert asks_run_metadata(to_json({'extensions': [RUN_METADATA_URI]}))
    assert not asks_run_metadata(to_json({'metadata': {'about': RUN_METADATA_URI}}))
    assert not asks_run_metadata(to_json({'extensions': [f'{RUN_METADATA_URI}.1']}))
    assert not asks_run_metadata(b'{}')
