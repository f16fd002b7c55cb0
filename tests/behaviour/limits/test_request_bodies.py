"""Bodies of requests that come slowly, never, or after the answer: none holds up the server or another client."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import httpx
import pytest
from pydantic_ai import Agent
from starlette import requests
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import Message

from pydantic_ai_a2a import Access, BearerAuth, Limits, Quotas, Rate, serve, to_a2a
from pydantic_ai_a2a.server.http import unread_bodies

from ...app_client import LIMIT, Answer, Client, Exchange, state_of
from ...constants import with_constants
from ...server.auth.issuer import bearer
from ...serving import serving
from ..refusals import error_of_answer, send_body, serving_without_runs

SHORT_BODY_TIME = with_constants(Limits, body_time=0.01)
LONG_BODY_TIME = with_constants(Limits, body_time=1000)


class ScriptedBody(Exchange):
    """A request whose body comes as the test wants."""

    def __init__(self, client: Client, headers: Mapping[str, str] | None = None) -> None:
        self.asked = asyncio.Event()
        self.parts: asyncio.Queue[Message] = asyncio.Queue()
        merged = {'Content-Type': 'application/json', **client.headers, **(headers or {})}
        super().__init__(client.app, 'POST', '/', merged, b'')

    async def _receive(self) -> Message:
        self.asked.set()
        return await self.parts.get()

    def give(self, body: bytes, *, more: bool) -> None:
        self.parts.put_nowait({'type': 'http.request', 'body': body, 'more_body': more})


@pytest.mark.parametrize('begun', [b'', b'{"jsonrpc"'], ids=['nothing', 'the beginning'])
async def test_late_request_body_is_408(begun: bytes) -> None:
    async with serving_without_runs(limits=SHORT_BODY_TIME) as client:
        slow = ScriptedBody(client)
        if begun:
            slow.give(begun, more=True)
        answer = await slow.answer()
        error = error_of_answer(answer, status=408, id=None)
    assert (error.code, error.message) == (-32600, 'The request body did not arrive in time.')
    assert answer.headers['connection'] == 'close'


async def test_body_sent_byte_by_byte_is_accepted() -> None:
    async with serving(Agent('test'), limits=LONG_BODY_TIME) as client:
        slow, body = ScriptedBody(client), send_body()
        for n in range(len(body)):
            slow.give(body[n : n + 1], more=n + 1 < len(body))
        assert state_of((await slow.answer()).json['result']['task']) == 'COMPLETED'


async def test_pending_bodies_do_not_block_requests() -> None:
    async with serving(Agent('test'), limits=LONG_BODY_TIME) as client:
        waiting = [ScriptedBody(client) for _ in range(50)]
        for each in waiting:
            await each.asked.wait()
        assert state_of(await client.send()) == 'COMPLETED'
        for each in waiting:
            each.give(send_body(), more=False)
            assert (await each.answer()).status == 200


async def test_cancellation_during_body_read_propagates() -> None:
    async with serving_without_runs(limits=LONG_BODY_TIME) as client:
        slow = ScriptedBody(client)
        await slow.asked.wait()
        slow.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow.task


class Ended(ScriptedBody):
    """A request that its server ends just as the time for its body is over."""

    answers = 0

    async def _receive(self) -> Message:
        try:
            return await super()._receive()
        except asyncio.CancelledError:
            self.task.cancel()
            raise

    async def _send(self, message: Message) -> None:
        self.answers += 1


async def test_request_cancelled_at_body_timeout_gets_no_response() -> None:
    async with serving_without_runs(limits=SHORT_BODY_TIME) as client:
        ended = Ended(client)
        with pytest.raises(asyncio.CancelledError):
            await ended.task
    assert ended.answers == 0


def test_body_timeout_works_in_every_event_loop() -> None:
    app = to_a2a(Agent('test'), limits=SHORT_BODY_TIME)

    async def status() -> int:
        async with asyncio.timeout(LIMIT):
            return (await ScriptedBody(Client(app)).answer()).status

    async def leave() -> None:
        await ScriptedBody(Client(app)).asked.wait()

    asyncio.run(leave())  # its timer goes with its loop
    both = [408, 408]
    there: list[int] = []
    thread = threading.Thread(target=lambda: there.append(asyncio.run(status())))

    async def here() -> int:
        thread.start()
        try:
            return await status()
        finally:
            await asyncio.to_thread(thread.join)

    assert [asyncio.run(here()), *there] == both


def until_closed(url: str, sent: bytes) -> bytes:
    """All that a server answers before it closes the connection."""
    host, port = url.removeprefix('http://').rstrip('/').split(':')
    with socket.create_connection((host, int(port)), timeout=LIMIT) as connection:
        connection.sendall(sent)
        return b''.join(iter(lambda: connection.recv(65536), b''))


def test_server_closes_connection_after_late_body() -> None:
    head = b'POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n'
    with serve(to_a2a(Agent('test'), limits=SHORT_BODY_TIME)) as server:
        answer = until_closed(server.url, head + b'{')
    assert answer.startswith(b'HTTP/1.1 408 ')
    assert b'did not arrive in time' in answer


# --- answers before the body has come end the connection ------------------------------------------------------------

ANN = 'the-token-of-ann-1234'
AUTH = BearerAuth({ANN: 'ann'})
CARD = '/.well-known/agent-card.json'
JSON = {'Content-Type': 'application/json'}
KNOWN = JSON | bearer(ANN)
BODY = b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "no-such-task"}}'


@pytest.fixture(autouse=True)
def discard_refused_bodies_at_once(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Discard refused bodies for no time; in tests of that, until the client has sent them."""
    monkeypatch.setattr(unread_bodies, 'REST_TIME', LIMIT if 'sends' in request.fixturenames else 0.0)


async def ask(app: Any, verb: str, path: str, headers: dict[str, str], **scope: Any) -> Answer:
    """A request whose length is declared, or that has no body if it says so itself."""
    exchange = Exchange(app, verb, path, {'Content-Length': str(len(BODY))} | headers, BODY)
    exchange.scope.update(scope)
    return await exchange.answer()


REFUSED: list[tuple[str, str, dict[str, str], int]] = [
    ('POST', '/', JSON, 401),
    ('POST', '/', {'Transfer-Encoding': 'chunked', 'Content-Length': '0'}, 401),
    ('POST', '/', bearer(ANN), 415),
    ('POST', '/', KNOWN | {'Content-Length': '99999999'}, 413),
    ('POST', '/tasks/a:cancel', JSON, 401),
    ('POST', '/tasks/a:cancel', bearer(ANN) | {'Content-Type': 'text/plain'}, 415),
    ('PUT', '/tasks', KNOWN, 405),
    ('POST', '/tasks/a/b', KNOWN, 404),
    ('POST', '/nothing', KNOWN, 404),
    ('POST', CARD, KNOWN, 405),
    ('PUT', '/', KNOWN, 405),
    ('GET', CARD, {}, 200),
    ('GET', '/health/live', {}, 200),
    ('OPTIONS', '/', {'Origin': 'https://app.example.com', 'Access-Control-Request-Method': 'POST'}, 200),
]


@pytest.mark.parametrize(('verb', 'path', 'headers', 'status'), REFUSED)
async def test_response_before_body_closes_connection(
    verb: str, path: str, headers: dict[str, str], status: int
) -> None:
    async with serving(Agent('test'), auth=AUTH, access=Access(cors=['https://app.example.com'])) as client:
        answer = await ask(client.app, verb, path, headers)
        over_http_2 = await ask(client.app, verb, path, headers, http_version='2')
    assert (answer.status, answer.headers['connection']) == (status, 'close')
    assert 'connection' not in over_http_2.headers


async def test_refused_host_closes_connection() -> None:
    app = to_a2a(Agent('test'), access=Access(allowed_hosts=['agent.example.com']))
    answer = await ask(app, 'POST', '/', JSON)
    assert (answer.status, answer.headers['connection']) == (421, 'close')


async def test_missing_wildcard_scope_closes_connection() -> None:
    app = to_a2a(Agent('test'), auth=AUTH, access=Access(scopes={'*': 'admin'}))
    answer = await ask(app, 'POST', '/', KNOWN)
    assert (answer.status, answer.headers['connection']) == (403, 'close')


async def test_refusal_of_empty_body_keeps_connection() -> None:
    app = to_a2a(Agent('test'), auth=AUTH)
    answers = [await ask(app, 'POST', path, JSON | {'Content-Length': '0'}) for path in ('/', '/tasks/a:cancel')]
    assert [(answer.status, 'connection' in answer.headers) for answer in answers] == [(401, False)] * 2


async def read(request: requests.Request) -> PlainTextResponse:
    return PlainTextResponse(await request.body())


@pytest.mark.parametrize(
    ('verb', 'path', 'status'), [('POST', '/', 200), ('POST', '/tasks/a:cancel', 400), ('PUT', '/own', 200)]
)
async def test_connection_stays_open_after_read_or_absent_body(verb: str, path: str, status: int) -> None:
    async with serving(Agent('test'), auth=AUTH, routes=[Route('/own', read, methods=['PUT'])]) as client:
        answer = await ask(client.app, verb, path, KNOWN)
        refused = await Exchange(client.app, 'GET', '/tasks', {}, b'').answer()
    assert (answer.status, refused.status) == (status, 401)
    assert 'connection' not in answer.headers
    assert 'connection' not in refused.headers


async def test_exceeded_quota_keeps_connection_open() -> None:
    async with serving(
        Agent('test'), auth=AUTH, limits=Limits(quotas=Quotas(rates=Rate(1, timedelta(hours=1))))
    ) as client:
        answers = [await ask(client.app, 'POST', '/', KNOWN) for _ in range(2)]
    assert [(each.status, 'connection' in each.headers) for each in answers] == [(200, False), (429, False)]


@pytest.mark.parametrize('http', ['h11', 'httptools'])
@pytest.mark.parametrize(
    ('first', 'status'),
    [
        (b'POST / HTTP/1.1\r\nContent-Type: application/json\r\n', b'401'),
        (b'POST /message:send HTTP/1.1\r\nContent-Type: application/json\r\n', b'401'),
        (b'POST /nothing HTTP/1.1\r\n', b'404'),
        (b'GET /.well-known/agent-card.json HTTP/1.1\r\n', b'200'),
    ],
)
def test_server_closes_connection_with_unread_body(http: Any, first: bytes, status: bytes) -> None:
    app = to_a2a(Agent('test'), auth=AUTH, limits=with_constants(Limits, body_time=1_000))
    with serve(app, http=http) as server:
        answer = until_closed(server.url, first + b'Host: localhost\r\nContent-Length: 1000\r\n\r\n{')
    assert answer.startswith(b'HTTP/1.1 ' + status)
    assert b'\r\nconnection: close\r\n' in answer.lower()


def by_urllib(url: str, body: bytes) -> int:
    request = Request(url, data=body, headers=JSON)
    with pytest.raises(HTTPError) as refused:
        urlopen(request, timeout=LIMIT)
    assert b'larger than' in refused.value.read()
    refused.value.close()
    return refused.value.code


def by_httpx(url: str, body: bytes) -> int:
    answer = httpx.post(url, content=body, headers=JSON, timeout=LIMIT)
    assert 'larger than' in answer.text
    return answer.status_code


def by_httpx_in_chunks(url: str, body: bytes) -> int:
    chunks = (body[n : n + 100_000] for n in range(0, len(body), 100_000))
    return httpx.post(url, content=chunks, headers=JSON, timeout=LIMIT).status_code


def by_curl(url: str, body: bytes) -> int:
    command = ['curl', '-sS', '-w', '%{http_code}', '-H', 'Content-Type: application/json', '--data-binary', '@-', url]
    for options in ([], ['-H', 'Expect:']):
        done = subprocess.run([*command, *options], input=body, capture_output=True, timeout=LIMIT, check=True)
        assert b'larger than' in done.stdout
    return int(done.stdout[-3:])


@pytest.mark.parametrize('http', ['h11', 'httptools'])
@pytest.mark.parametrize('path', ['', 'message:send'], ids=['JSON-RPC', 'HTTP+JSON'])
@pytest.mark.parametrize('sends', [by_urllib, by_httpx, by_httpx_in_chunks, by_curl])
def test_client_reads_413_while_still_sending(sends: Callable[[str, bytes], int], path: str, http: Any) -> None:
    with serve(to_a2a(Agent('test'), limits=Limits(body=100_000)), http=http) as server:
        assert sends(server.url + path, b'[' * 20_000_000) == 413


async def test_discarded_bytes_of_refused_body_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread_bodies, 'REST_TIME', LIMIT)
    monkeypatch.setattr(unread_bodies, 'REST', 10)
    bodies, sent = 0, list[Message]()

    async def receive() -> Message:
        nonlocal bodies
        bodies += 1
        return {'type': 'http.request', 'body': b'abcd', 'more_body': True}

    async def send(message: Message) -> None:
        sent.append(message)

    await unread_bodies.discarding(receive, send)({'type': 'http.response.body', 'body': b'too large'})
    assert bodies == 3
    assert [(message['body'], message.get('more_body', False)) for message in sent] == [
        (b'too large', True),
        (b'', False),
    ]
