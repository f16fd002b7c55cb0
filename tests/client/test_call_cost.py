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
from ..costs import calls, request
from .canned_agent import CARD, TASK, WORKING

SEND_CALLS = 410
"""Of a blocking send, beside those of the HTTP request: a tenth more than it takes."""
DELTA_CALLS = 62
"""Of a piece of a streamed answer, with those of the HTTP client: likewise."""

AGENT: Any = {**CARD, 'capabilities': {'streaming': True, 'extensions': [{'uri': REPLAY_URI}]}}
URL = CARD['supportedInterfaces'][0]['url']
IDS: dict[str, Any] = {'taskId': 't', 'contextId': 'c'}


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


async def test_client_reads_streamed_delta_in_few_calls() -> None:
    async def streamed(deltas: int) -> int:
        artifacts = [{'artifactId': 'a', 'parts': [{'text': f'delta {n} '}]} for n in range(deltas)]
        events: list[Any] = [
            {'task': WORKING},
            *({'artifactUpdate': {**IDS, 'artifact': artifact, 'append': True}} for artifact in artifacts),
            {'statusUpdate': {**IDS, 'status': TASK['status']}},
        ]
        pieces = [b'data: %b\n\n' % rpc_response(event) for event in events]
        async with client_of_answer('text/event-stream', pieces) as (client, _):

            async def read() -> None:
                assert [update.state async for update in client.stream('hello')][-1] == 'completed'

            return await calls(read)

    assert (await streamed(60) - await streamed(20)) / 40 <= DELTA_CALLS
