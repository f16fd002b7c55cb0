from __future__ import annotations

import pytest
from pydantic_core import from_json, to_json

from pydantic_ai_a2a.protocol import stored
from pydantic_ai_a2a.types import Message, Part


def update(parts: list[dict[str, object]], *, append: bool = False, artifact: str = 'a') -> bytes:
    body: dict[str, object] = {'artifact': {'artifactId': artifact, 'parts': parts}}
    return to_json({'artifactUpdate': body | ({'append': True} if append else {})})


def test_chunks_of_text_are_joined_and_other_parts_stay_between_them() -> None:
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


def test_a_message_that_is_joined_from_pieces_is_the_one_that_is_dumped() -> None:
    parts = stored.text_parts('Grüße "x"\n')
    joined = stored.with_ids(stored.message('m', b'ROLE_AGENT', parts, b',"metadata":{"k":1}'), 't', 'c')

    assert stored.load_message(joined) == {
        'message_id': 'm',
        'role': 'agent',
        'parts': [{'text': 'Grüße "x"\n', 'media_type': 'text/plain'}],
        'metadata': {'k': 1},
        'task_id': 't',
        'context_id': 'c',
    }
    assert from_json(joined) == from_json(stored.dump_message(stored.load_message(joined)))


def test_ids_are_32_hexadecimal_digits_and_differ() -> None:
    ids = {stored.new_id() for _ in range(1000)}

    assert len(ids) == 1000
    assert {len(bytes.fromhex(id)) for id in ids} == {16}


def test_a_message_is_the_same_if_its_content_and_where_it_goes_are_the_same() -> None:
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
        return stored.digest(message, stored.dump_parts(message['parts']), *rest)

    assert digest(said, {'k': 1, 'l': 2}, ('text/plain',)) == digest(again, {'l': 2, 'k': 1}, ['text/plain'])
    assert digest(said, None, (), None) == digest(again, {}, [], '')
    rests = [({'k': 1},), (None, ['text/plain']), (None, None, 'https://example.com')]
    assert len({digest(said), *map(digest, others), *(digest(said, *rest) for rest in rests)}) == 12


@pytest.mark.parametrize(
    'sizes', [[], [3], [100_000], [300] * 1_000, [10, 100_000, 10, 40_000, 40_000, 10], [70_000, 70_000], [1] * 100_000]
)
@pytest.mark.parametrize('separator', [b'', b','])
def test_joined_pieces_are_the_joined_values_and_long_values_are_not_copied(sizes: list[int], separator: bytes) -> None:
    values = [b'%d' % (n % 10) * size for n, size in enumerate(sizes)]
    pieces = stored.joined(values, separator)
    assert b''.join(pieces) == separator.join(values)
    assert len(pieces) <= 2 + 2 * sum(sizes) // 32_768
    long = [value for value in values if len(value) > 60_000]
    assert [piece for piece in pieces if any(piece is value for value in long)] == long
