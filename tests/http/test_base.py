from __future__ import annotations

import sys
from itertools import repeat
from typing import Any

import pytest
from starlette.types import Message

from pydantic_ai_a2a.auth.callers import header
from pydantic_ai_a2a.http.base import CachedAnswer, read_body


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


@pytest.mark.parametrize('known', [[], [(b'if-none-match', b'*')]], ids=['200', '304'])
async def test_middleware_that_adds_headers_in_place_does_not_change_a_cached_answer(
    known: list[tuple[bytes, bytes]],
) -> None:
    """OpenTelemetry's middleware for ASGI does so, with the ids of a trace."""
    answer, sent = CachedAnswer(b'{}', []), list[int]()

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        headers: list[Any] = message.get('headers', [])
        sent.append(len(headers))
        headers.append((b'traceresponse', b'1'))

    for _ in range(2):
        await answer({'type': 'http', 'method': 'GET', 'headers': known}, receive, send)
    assert sent[:2] == sent[2:]
