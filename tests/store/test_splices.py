"""Deltas that refer to the artifact of their text: they read as before, whatever stands between them."""

from __future__ import annotations

import pytest

from pydantic_ai_a2a.protocol import stored
from pydantic_ai_a2a.store.memory.splices import SplicedEvent, splice_deltas
from pydantic_ai_a2a.types import TaskEvent

TEXTS = [f'"{n}" \\ ü\n' * size for n, size in enumerate([1_000, 10, 1_000, 2_000])]
CHUNKS = stored.TextArtifact('t', 'c', 'a', 'result')
OTHER = stored.artifact_update('t', 'c', b'{"artifactId":"b","parts":[{"text":"%b"}]}' % (b'x' * 10_000))
STATUS = stored.status_update('t', 'c', stored.status('working', 1, None))


def deltas(*, first: bool = True) -> list[bytes]:
    return [CHUNKS.chunk(text, first=first and not n) for n, text in enumerate(TEXTS)]


def artifact(*texts: str) -> bytes:
    parts = stored.text_parts(''.join(texts))
    return b'{"artifactId":"a","name":"result","parts":%b}' % parts


@pytest.mark.parametrize(
    ('payloads', 'texts', 'spliced'),
    [
        (deltas(), TEXTS, 3),
        ([OTHER, *deltas(), STATUS, OTHER], TEXTS, 3),
        ([CHUNKS.chunk('x' * 5_000, first=True), *deltas()], TEXTS, 3),  # the first delta replaces an earlier text
        ([deltas()[0], STATUS, *deltas()[1:]], TEXTS, 3),
        (deltas(), ['another text'], 0),
        ([OTHER, STATUS], TEXTS, 0),
    ],
)
def test_long_deltas_refer_to_the_artifact_and_read_as_before(
    payloads: list[bytes], texts: list[str], spliced: int
) -> None:
    events = [TaskEvent(n, 'working' if payload is STATUS else None, payload) for n, payload in enumerate(payloads)]
    whole = artifact(*texts)
    after = splice_deltas(events, whole)
    assert sum(isinstance(event, SplicedEvent) for event in after) == spliced
    assert [event.whole() if isinstance(event, SplicedEvent) else event for event in after] == events
    assert splice_deltas(after, whole) == after
