"""Gates that keep the calls of the client short: the functions that a call takes beside those of its HTTP client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from pydantic_ai_a2a import A2AClient
from pydantic_ai_a2a.wire.extensions.own_extensions import REPLAY_URI

from ..app_client import message
from ..bounds import LIMIT
from ..cases import each_case
from ..costs import calls, request
from .canned_agent import CARD, TASK, WORKING, artifact_update, status_update

SEND_CALLS = 410
"""Of a blocking send, beside those of the HTTP request: a tenth more than it takes."""
DELTA_CALLS = 61
"""Of a piece of a streamed answer, with those of the HTTP client: likewise."""
DELTA_CALLS_TOGETHER = 50
"""Of a piece that comes together with others."""

AGENT: Any = {**CARD, 'capabilities': {'streaming': True, 'extensions': [{'uri': REPLAY_URI}]}}
URL = CARD['supportedInterfaces'][0]['url']


@asynccontextmanager
async def client_of_answer(
    media_type: str, pieces: Sequence[bytes]
) -> AsyncGenerator[tuple[A2AClient, httpx2.AsyncClient]]:
    """A client that gets the same answer to each request, and its HTTP client."""

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={'content-type': media_type}, content=body())

    async with (
        asyncio.timeout(LIMIT),
        httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http,
        A2AClient(AGENT, http_client=http) as client,
    ):
        yield client, http


def rpc_response(result: Any) -> bytes:
    return json.dumps({'jsonrpc': '2.0', 'id': 1, 'result': result}).encode()


async def test_blocking_send_adds_few_calls_to_http_request() -> None:
    task = {**TASK, 'artifacts': [{'artifactId': 'a', 'parts': [{'text': 'The answer.'}]}]}
    async with client_of_answer('application/json', [rpc_response({'task': task})]) as (client, http):
        body = request('SendMessage', {'message': message('hello')})
        alone = await calls(lambda: http.post(URL, content=body))
        assert await calls(lambda: client.send('hello')) - alone <= SEND_CALLS


@each_case('together, most', [(False, DELTA_CALLS), (True, DELTA_CALLS_TOGETHER)])
async def test_client_reads_streamed_delta_in_few_calls(together: bool, most: int) -> None:
    async def streamed(deltas: int) -> int:
        updates = [artifact_update(f'delta {n} ', append=True) for n in range(deltas)]
        events = enumerate([{'task': WORKING}, *updates, status_update('COMPLETED')])
        pieces = [b'id: %d\ndata: %b\n\n' % (number, rpc_response(event)) for number, event in events]
        async with client_of_answer('text/event-stream', [b''.join(pieces)] if together else pieces) as (client, _):

            async def read() -> None:
                received = [update async for update in client.stream('hello')]
                assert received[-1].state == 'completed'

            return await calls(read)

    assert (await streamed(60) - await streamed(20)) / 40 <= most
