from __future__ import annotations

from pydantic_core import from_json, to_json

from pydantic_ai_a2a.protocol import stored


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
