from __future__ import annotations

import sys
from itertools import repeat

import pytest
from starlette.types import Message

from pydantic_ai_a2a.auth.callers import header
from pydantic_ai_a2a.http.base import read_body


@pytest.mark.parametrize(
    ('name', 'value'), [(b'one', '1'), (b'several', '2,3,4'), (b'none', None)], ids=['one', 'several', 'none']
)
def test_the_values_of_a_header_are_one(name: bytes, value: str | None) -> None:
    headers = [(b'several', b'2'), (b'one', b'1'), (b'several', b'3'), (b'several', b'4')]
    assert header(headers, name) == value


async def test_a_body_does_not_keep_its_chunks() -> None:
    """A list of small chunks would need many times the memory of their bytes."""
    chunks = [bytes([n % 251, n % 241]) for n in range(1000)]
    messages = iter([*zip(chunks, repeat(True)), (b'end', False)])
    references = [sys.getrefcount(chunk) for chunk in chunks]
    left = list[int]()

    async def receive() -> Message:
        body, more = next(messages)
        if not more:
            left.extend(sys.getrefcount(chunk) for chunk in chunks)
        return {'type': 'http.request', 'body': body, 'more_body': more}

    assert await read_body({'headers': []}, receive, 10**6) == b''.join([*chunks, b'end'])
    assert left[:-1] == references[:-1]  # the reader still has the last one
