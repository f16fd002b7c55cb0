"""Events in the pieces of a stream, wherever the pieces begin and end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydantic_ai_a2a.client.transport import EventReader, EventTooLong

STREAM = (
    ': comment\n\nid: 1\ndata: {"a":\ndata:1}\n\nretry: 5\n\ndata: two\nevent: x\n\n'
    'id:é\ndata:  spaces\n\ndata: cut off'
)
EVENTS = [(b'{"a":\n1}', b'1'), (b'two', b'1'), (b' spaces', 'é'.encode())]


def read(pieces: Sequence[bytes], limit: int = 1000) -> list[tuple[bytes, bytes]]:
    reader = EventReader(limit)
    return [event for piece in pieces for event in reader.read(piece)]


@given(st.sampled_from(['\n', '\r\n', '\r']), st.lists(st.integers(0, 120)))
def test_events_do_not_depend_on_pieces_and_ends_of_lines(end: str, cuts: list[int]) -> None:
    stream = STREAM.replace('\n', end).encode()
    places = [0, *sorted(cuts), len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(places)]
    assert read(pieces) == EVENTS


@pytest.mark.parametrize(
    'pieces',
    [[b'data: 12345', b'67890'], [b'data: 1234\n', b'data: 1234\n'], [b': comment', b' that does not end']],
    ids=['line', 'event', 'comment'],
)
def test_an_event_longer_than_the_limit_is_refused_before_its_end(pieces: list[bytes]) -> None:
    assert read(pieces, 100) == []
    with pytest.raises(EventTooLong):
        read(pieces, 15)
