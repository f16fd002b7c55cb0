"""Long answers in many pieces: reading a piece copies the piece, and not the text before."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import pytest
from pydantic_ai.messages import PartDeltaEvent, TextPartDelta
from starlette.responses import StreamingResponse

from pydantic_ai_a2a import A2AClient, RemoteAgent
from pydantic_ai_a2a.testing import A2ATestClient

from ..bounds import LIMIT
from .canned_agent import WORKING, CannedAgent, agent_message, artifact_update, status_update, stream_response

PIECES, SIZE = 200, 8_000
COPIES = 6
"""Bytes that a reader takes for each byte of an answer: 2 to 4, or more than 10 if each step copies the text before."""
TEXTS = [f'{n:05}' * (SIZE // 5) for n in range(PIECES)]
WHOLE = ''.join(TEXTS)
DONE = status_update('COMPLETED')
LARGE = [{'task': WORKING}, *(artifact_update(text, append=True) for text in TEXTS)]
STREAMS: dict[str, tuple[list[Any], str]] = {
    'one artifact': ([*LARGE, DONE], WHOLE),
    'two artifacts by turns': (
        [*(artifact_update(text, artifact_id=str(n % 2), append=True) for n, text in enumerate(TEXTS)), DONE],
        TEXTS[0] + ''.join(f'\n{b}\n\n{a}' for b, a in zip(TEXTS[1::2], TEXTS[2::2], strict=False)) + f'\n{TEXTS[-1]}',
    ),
    'a small artifact that is replaced': (
        [*LARGE, *(artifact_update(str(n), artifact_id='b') for n in range(PIECES)), DONE],
        f'{WHOLE}\n0' + ''.join(f'\n\n{n}' for n in range(1, PIECES)),
    ),
    'statuses': ([*LARGE, *[status_update('WORKING')] * PIECES, DONE], WHOLE),
    'tasks': ([*LARGE, *({'task': {**WORKING, 'metadata': {'n': n}}} for n in range(PIECES)), DONE], WHOLE),
    'messages': ([{'message': agent_message(text)} for text in TEXTS], WHOLE),
}


async def read_with_client(canned: CannedAgent) -> AsyncGenerator[str]:
    async with A2AClient(canned.app) as client:
        async for piece in client.stream_text('hello'):
            yield piece


async def read_with_conversation(canned: CannedAgent) -> AsyncGenerator[str]:
    async with A2AClient(canned.app) as client:
        async for piece in client.conversation().stream_text('hello'):
            yield piece


async def read_with_test_client(canned: CannedAgent) -> AsyncGenerator[str]:
    async with A2ATestClient(canned.app) as client:
        async for update in client.stream('hello'):
            yield update.text


async def read_with_agent(canned: CannedAgent) -> AsyncGenerator[str]:
    async with RemoteAgent(canned.app) as agent, agent.run_stream_events('hello') as events:
        async for event in events:
            if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                yield event.delta.content_delta


class MeasuredAgent:
    """A remote agent in this process that counts the bytes that are taken for each of its events.

    The bytes of an event are those at their most between the event and the next one: copies count also if they are gone
    at once.
    """

    def __init__(self, events: list[Any]) -> None:
        self.taken = 0
        self.canned = CannedAgent(StreamingResponse(self._body(events), media_type='text/event-stream'))

    async def _body(self, events: list[Any]) -> AsyncGenerator[str]:
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for event in events:
                yield 'data: ' + json.dumps({'jsonrpc': '2.0', 'id': 1, 'result': event}) + '\n\n'
                now, peak = tracemalloc.get_traced_memory()
                self.taken += peak - before
                tracemalloc.reset_peak()
                before = now
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize('read', [read_with_client, read_with_conversation, read_with_test_client, read_with_agent])
@pytest.mark.parametrize('name', STREAMS)
async def test_reading_text_chunk_does_not_copy_earlier_text(
    name: str, read: Callable[[CannedAgent], AsyncGenerator[str]]
) -> None:
    events, _ = STREAMS[name]
    counted = MeasuredAgent(events)
    async with asyncio.timeout(LIMIT), aclosing(read(counted.canned)) as pieces:
        async for _ in pieces:
            pass

    assert counted.taken <= COPIES * len(WHOLE)


@pytest.mark.parametrize('name', STREAMS)
async def test_long_streamed_text_arrives_exactly_once(name: str) -> None:
    events, text = STREAMS[name]
    async with asyncio.timeout(LIMIT), A2AClient(CannedAgent(stream_response(*events)).app) as client:
        assert ''.join([piece async for piece in client.stream_text('hello')]) == text
