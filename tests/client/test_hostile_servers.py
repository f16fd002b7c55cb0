"""Hostile servers: redirects, answers without an end, or byte by byte, or without a body; clients of many loops."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from starlette.responses import RedirectResponse, Response, StreamingResponse

from pydantic_ai_a2a import A2AClient, CardRefused, RemoteProtocolError, RemoteUnavailable, serve
from pydantic_ai_a2a.client import http_connections, transport
from pydantic_ai_a2a.wire.extensions.own_extensions import REPLAY

from ..bounds import LIMIT
from ..tcp_server import tcp_server
from .canned_agent import (
    CREDENTIALS,
    TASK,
    WORKING,
    CannedAgent,
    artifact_update,
    canned_http_client,
    card_with_interface,
    result_response,
    serve_canned,
    stream_response,
)
from .servers import ANSWER, WaitingAgent, text_of, wait_until_named


class Endless:
    """An answer without an end."""

    def __init__(self, begin: str, kind: str) -> None:
        self.sent = 0
        self.response = StreamingResponse(self._pieces(begin), media_type=kind)

    async def _pieces(self, begin: str) -> AsyncGenerator[str]:
        yield begin
        while True:
            self.sent += 65_536
            yield ' ' * 65_536
            await asyncio.sleep(0)  # the server sees that its client has left


@pytest.mark.parametrize('status', [301, 307])
@pytest.mark.parametrize('place', ['card', 'answer', 'stream'])
async def test_redirect_is_refused_and_target_gets_no_request(status: int, place: str) -> None:
    other = CannedAgent(result_response(TASK))
    with serve_canned(other) as elsewhere:
        redirect = RedirectResponse(f'{elsewhere.url}?token=secret', status)
        canned = CannedAgent(redirect, card=redirect if place == 'card' else None)
        async with (
            httpx2.AsyncClient(follow_redirects=True) as http,
            canned_http_client(canned, http_client=http) as client,
        ):
            kind = CardRefused if place == 'card' else RemoteProtocolError
            with pytest.raises(kind, match=f'HTTP {status} redirects, and redirects are not followed') as refused:
                await (client.send('hello') if place == 'stream' else client.get('t'))
    assert 'secret' not in str(refused.value)
    assert canned.requests[0][2]['authorization'] == CREDENTIALS['headers']['authorization']
    assert other.requests == []


async def test_endless_card_is_refused() -> None:
    endless = Endless('{', 'application/json')
    async with canned_http_client(CannedAgent(result_response(TASK), card=endless.response)) as client:
        with pytest.raises(CardRefused, match='more than 1000000 bytes'):
            await client.card()
    assert endless.sent < 50_000_000


@pytest.mark.parametrize('begin', ['data: ', ': ', 'id: ', 'data: x\ndata: '])
async def test_endless_stream_event_is_refused(begin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, 'MAX_ANSWER', 1_000_000)
    endless = Endless(begin, 'text/event-stream')
    async with canned_http_client(CannedAgent(endless.response)) as client:
        with pytest.raises(RemoteProtocolError, match='an event has more than 1000000 bytes'):
            _ = [update async for update in client.stream('hello')]
    assert endless.sent < 50_000_000


async def test_endless_json_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections.HttpConnections.read, '__defaults__', (1_000_000,))
    endless = Endless('{', 'application/json')
    async with canned_http_client(CannedAgent(endless.response)) as client:
        with pytest.raises(RemoteProtocolError, match='more than 1000000 bytes'):
            await client.get('t')
    assert endless.sent < 50_000_000


async def test_stream_ending_before_task_is_remote_unavailable() -> None:
    canned = CannedAgent(stream_response(), stream_response({'task': TASK}))
    async with canned_http_client(canned) as client:
        with pytest.raises(RemoteUnavailable, match='has ended the stream before the task'):
            await client.send('hello')
    assert len(canned.methods) == 1


@pytest.mark.parametrize('state', ['TASK_STATE_ODD', 'odd', None, 99])
async def test_event_with_unknown_state_is_refused(state: Any) -> None:
    odd = {'taskId': 't', 'contextId': 'c', 'status': {'state': state}}
    async with canned_http_client(
        CannedAgent(stream_response({'task': WORKING}, {'statusUpdate': odd}, ids=True))
    ) as client:
        with pytest.raises(RemoteProtocolError, match=r'status\.state: must be a state of a task'):
            _ = [update async for update in client.stream('hello')]


def test_client_works_in_several_event_loops_at_once() -> None:
    with serve(WaitingAgent().agent) as server:
        client = A2AClient(server.url, timeout=LIMIT)

        async def talk() -> list[str]:
            async with asyncio.timeout(LIMIT), client:
                streamed = [update.task async for update in client.stream('hello')]
                return [text_of((await client.send('hello')).outcome), text_of(streamed[-1])]

        with ThreadPoolExecutor(4) as threads:
            answers = [threads.submit(asyncio.run, talk()) for _ in range(8)]
            assert [answer.result() for answer in answers] == [[ANSWER, ANSWER]] * 8


def gzip_answer(value: str, *, depth: int = 1) -> Response:
    """An answer with a task whose metadata has this JSON, compressed."""
    task = json.dumps({**TASK, 'metadata': {'a': 0}}).replace('0}', f'{"[" * depth}{value}{"]" * depth}}}')
    body = f'{{"jsonrpc": "2.0", "id": 1, "result": {task}}}'
    return Response(
        gzip.compress(body.encode()), headers={'content-type': 'application/json', 'content-encoding': 'gzip'}
    )


async def test_compressed_answer_with_too_many_json_values_is_refused() -> None:
    answer = gzip_answer('[],' * 20_000_000 + '1')
    assert len(answer.body) < 100_000
    async with canned_http_client(CannedAgent(answer)) as client:
        await client.card()
        tracemalloc.start()
        try:
            with pytest.raises(RemoteProtocolError, match='more than 1000000 JSON values'):
                await client.get('t')
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 600_000_000  # the bytes; the objects would take 1.5 GB


@pytest.mark.parametrize('value', ['"[],"', '"[{,\\\\\\","', '1'], ids=['text', 'escapes', 'deep'])
async def test_brackets_in_text_do_not_count_as_json_values(value: str) -> None:
    answer = gzip_answer('1', depth=150) if value == '1' else gzip_answer(value.replace('[', '[' * 3_000_000))
    async with canned_http_client(CannedAgent(answer)) as client:
        assert (await client.get('t')).task_id == 't'


async def test_too_deeply_nested_answer_is_refused() -> None:
    async with canned_http_client(CannedAgent(gzip_answer('1', depth=100_000))) as client:
        with pytest.raises(RemoteProtocolError, match='broken JSON'):
            await client.get('t')


@pytest.mark.parametrize(('events', 'values'), [(1, 1_100_000), (30, 50_000)])
async def test_streamed_task_with_too_many_json_values_is_refused(events: int, values: int) -> None:
    chunk = artifact_update({'data': [0] * values}, append=True)
    async with canned_http_client(CannedAgent(stream_response({'task': WORKING}, *[chunk] * events))) as client:
        with pytest.raises(RemoteProtocolError, match='1000000 JSON values'):
            _ = [update async for update in client.stream('hello')]


# --- servers that are never silent and never come to the end of an answer: they send a byte now and then

HEAD = b'HTTP/1.1 200 OK\r\nx-drip: '
BODY = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n'
REFUSAL = BODY.replace(b'200 OK', b'500 Broken')
EVENTS = BODY.replace(b'application/json', b'text/event-stream')
SLOW = r'too slowly for a `timeout` of 0\.2|was silent for 0\.2|cannot be reached'  # a slow machine is silent
EVENT = EVENTS + b'data: ' + json.dumps({'result': {'task': WORKING}}).encode() + b'\n\n:'


@asynccontextmanager
async def slow_server(
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

    async with tcp_server(serve) as port:
        url = f'http://127.0.0.1:{port}/'
        capabilities = {'streaming': streams, 'extendedAgentCard': True, 'extensions': [REPLAY]}
        card = json.dumps({**card_with_interface(url=url), 'capabilities': capabilities}).encode()
        async with asyncio.timeout(LIMIT), A2AClient(url, **options) as client:
            yield client


async def streamed(client: A2AClient) -> None:
    async for _ in client.stream('hello'):
        pass


CALLS: dict[str, Callable[[A2AClient], Awaitable[Any]]] = {
    'card': lambda client: client.card(),
    'get': lambda client: client.get('t'),
    'cancel': lambda client: client.cancel('t'),
    'webhooks': lambda client: client.list_push_configs('t'),
    'extended card': lambda client: client.extended_card(),
    'send': lambda client: client.send('hello'),
    'send at once': lambda client: client.send('hello', return_immediately=True),
    'stream': streamed,
}


@pytest.mark.parametrize(
    ('begin', 'name'),
    [(HEAD, 'card'), (HEAD, 'get'), (REFUSAL, 'get'), (HEAD, 'stream'), *((BODY, name) for name in CALLS)],
)
async def test_answer_sent_byte_by_byte_is_given_up(begin: bytes, name: str) -> None:
    async with slow_server(begin, has_card=name != 'card', timeout=0.2) as client:
        with pytest.raises(RemoteUnavailable, match=SLOW):
            await CALLS[name](client)


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
async def test_max_wait_without_task_is_remote_unavailable(begin: bytes, *, has_card: bool, streams: bool) -> None:
    async with slow_server(begin, has_card=has_card, streams=streams, timeout=LIMIT) as client:
        with pytest.raises(
            RemoteUnavailable, match=r'no task for 0\.2 seconds, the `max_wait`\. The task may have been'
        ):
            await client.send('hello', max_wait=0.2)


async def test_max_wait_returns_task_received_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    async with slow_server(EVENT, timeout=LIMIT) as client:
        task: Any = (await client.send('hello', max_wait=wait_until_named(monkeypatch))).outcome
    assert task['status']['state'] == 'working'
