from __future__ import annotations

import tracemalloc
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


async def test_a_body_takes_no_more_memory_if_it_comes_bit_by_bit() -> None:
    bits = [bytes([n % 251, n % 241]) for n in range(100_000)]
    body = b''.join([*bits, b'end'])
    # Threads of earlier tests may allocate at the same time: the least of the peaks is of the body alone.
    assert min([await _peak(bits, body) for _ in range(5)]) < 4 * len(body)


async def _peak(bits: list[bytes], whole: bytes) -> int:
    messages = iter([*zip(bits, repeat(True)), (b'end', False)])

    async def receive() -> Message:
        body, more = next(messages)
        return {'type': 'http.request', 'body': bytes([*body]), 'more_body': more}

    tracemalloc.start()
    try:
        body = await read_body({'headers': []}, receive, 10**6)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert body == whole
    return peak
