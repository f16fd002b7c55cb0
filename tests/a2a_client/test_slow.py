"""Servers that are never silent and never come to the end of an answer: they send a byte now and then."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pydantic_ai_a2a import A2AClient, RemoteUnavailable
from pydantic_ai_a2a.protocol.fields import REPLAY

from ..bounds import LIMIT
from ..listening import listening
from .canned import CARD, WORKING

HEAD = b'HTTP/1.1 200 OK\r\nx-drip: '
BODY = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n'
REFUSAL = BODY.replace(b'200 OK', b'500 Broken')
EVENTS = BODY.replace(b'application/json', b'text/event-stream')
SLOW = r'too slowly for a `timeout` of 0\.2|was silent for 0\.2|cannot be reached'  # a slow machine is silent
EVENT = EVENTS + b'data: ' + json.dumps({'result': {'task': WORKING}}).encode() + b'\n\n:'


@asynccontextmanager
async def dripping(
    begin: bytes, *, has_card: bool = True, streams: bool = True, **options: Any
) -> AsyncGenerator[A2AClient]:
    """Call a server that answers each request with such a beginning, and then byte by byte without an end."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b'\r\n\r\n')
        if has_card and request.startswith(b'GET'):
            writer.write(BODY + card)
            writer.close()
            return
        writer.write(begin)
        while True:
            await writer.drain()
            await asyncio.sleep(0.01)
            writer.write(b' ')

    async with listening(serve) as port:
        url = f'http://127.0.0.1:{port}/'
        interface = {**CARD['supportedInterfaces'][0], 'url': url}
        capabilities = {'streaming': streams, 'extendedAgentCard': True, 'extensions': [REPLAY]}
        card = json.dumps({**CARD, 'capabilities': capabilities, 'supportedInterfaces': [interface]}).encode()
        async with asyncio.timeout(LIMIT), A2AClient(url, **options) as client:
            yield client


async def streamed(client: A2AClient) -> None:
    async for _ in client.stream('hello'):
        pass


CALLS: dict[str, Callable[[A2AClient], Awaitable[Any]]] = {
    'get': lambda client: client.get('t'),
    'cancel': lambda client: client.cancel('t'),
    'webhooks': lambda client: client.list_push_configs('t'),
    'extended card': lambda client: client.extended_card(),
    'send': lambda client: client.send('hello'),
    'send at once': lambda client: client.send('hello', return_immediately=True),
    'stream': streamed,
}


@pytest.mark.parametrize(
    ('begin', 'name'), [(HEAD, 'get'), (REFUSAL, 'get'), (HEAD, 'stream'), *((BODY, name) for name in CALLS)]
)
async def test_an_answer_that_comes_byte_by_byte_is_given_up(begin: bytes, name: str) -> None:
    async with dripping(begin, timeout=0.2) as client:
        with pytest.raises(RemoteUnavailable, match=SLOW):
            await CALLS[name](client)


@pytest.mark.parametrize('begin', [HEAD, BODY])
async def test_a_card_that_comes_byte_by_byte_is_given_up(begin: bytes) -> None:
    async with dripping(begin, has_card=False, timeout=0.2) as client:
        with pytest.raises(RemoteUnavailable, match=SLOW):
            await client.card()


@pytest.mark.parametrize(
    ('begin', 'has_card', 'streams'),
    [
        (HEAD, False, True),
        (HEAD, True, True),
        (BODY, True, False),
        (EVENTS + b'data: ', True, True),
        (EVENTS + b':', True, True),
    ],
)
async def test_max_wait_ends_a_call_that_has_no_task_yet(begin: bytes, *, has_card: bool, streams: bool) -> None:
    async with dripping(begin, has_card=has_card, streams=streams, timeout=LIMIT) as client:
        with pytest.raises(
            RemoteUnavailable, match=r'no task for 0\.2 seconds, the `max_wait`\. The task may have been'
        ):
            await client.send('hello', max_wait=0.2)


async def test_max_wait_returns_the_task_that_the_agent_has_named() -> None:
    async with dripping(EVENT, timeout=LIMIT) as client:
        task: Any = (await client.send('hello', max_wait=2)).outcome
    assert task['status']['state'] == 'working'
