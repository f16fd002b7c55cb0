"""A key in the query is for who authenticates, and for nobody else: no log has it, whatever the request comes to."""

from __future__ import annotations

import logging
from itertools import product
from typing import Any

import httpx
import pytest
from fasta2a.schema import SecurityScheme
from pydantic_ai import Agent
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from pydantic_ai_a2a import Access, AllOf, APIKeyAuth, BearerAuth, mount, serve, to_a2a

from ...app_client import LIMIT, Exchange, rpc
from ...server.auth.issuer import bearer
from ...serving import serving

BOB = 'the-key-of-bob-1234'
AUTH = APIKeyAuth({BOB: 'bob'}, query='key')
APP = 'https://app.example.com'
CARD = '/.well-known/agent-card.json'
JSON = {'Content-Type': 'application/json'}


@pytest.mark.parametrize(
    ('verb', 'path', 'headers', 'status'),
    [
        ('GET', CARD, {}, 200),
        ('HEAD', CARD, {}, 200),
        ('GET', '/health/live', {}, 200),
        ('GET', '/health/ready', {}, 200),
        ('GET', '/tasks', {}, 200),
        ('POST', '/', {}, 415),
        ('POST', '/', JSON, 200),
        ('PUT', '/', {}, 405),
        ('POST', CARD, {}, 405),
        ('PUT', '/tasks', {}, 405),
        ('GET', '/nothing', {}, 404),
        ('GET', '/tasks/a/b', {}, 404),
        ('OPTIONS', '/', {'Origin': APP, 'Access-Control-Request-Method': 'POST'}, 200),
        ('OPTIONS', '/', {'Origin': 'https://evil.example', 'Access-Control-Request-Method': 'POST'}, 400),
        ('GET', CARD, {'Host': 'evil.example'}, 421),
    ],
)
async def test_key_is_redacted_from_scope_when_response_starts(
    verb: str, path: str, headers: dict[str, str], status: int
) -> None:
    async with serving(Agent('test'), auth=AUTH, access=Access(cors=[APP], allowed_hosts=['testserver'])) as client:
        exchange = Exchange(client.app, verb, f'{path}?key={BOB}&x=1', headers, b'{}')
        if 'Host' in headers:
            del exchange.scope['headers'][0]
        start = await exchange.next()
        assert (start['status'], exchange.scope['query_string']) == (status, b'key=redacted&x=1')
        assert BOB not in repr(exchange.scope)
        await exchange.next()


ANN = 'the-token-of-ann-1234'
TOKENS = BearerAuth({ANN: 'ann'})


@pytest.mark.parametrize(
    ('auth', 'key', 'status', 'left'),
    [
        (AUTH, f'key={BOB}', 200, b'key=redacted'),
        (AUTH, 'key=wrong&key=twice', 401, b'key=redacted&key=redacted'),
        ([TOKENS, AUTH], f'key={BOB}', 200, b'key=redacted'),
        (AllOf(BearerAuth({'another-token-1234': 'ann'}), AUTH), f'key={BOB}', 401, b'key=redacted'),
        ([TOKENS, AUTH], 'other=a+b', 200, b'other=a+b'),
        ([TOKENS, APIKeyAuth({BOB: 'bob'})], 'key=a+b', 200, b'key=a+b'),
    ],
    ids=['right', 'wrong', 'not needed', 'not reached', 'none', 'elsewhere'],
)
async def test_only_key_parameter_is_redacted_from_query(auth: Any, key: str, status: int, left: bytes) -> None:
    async with serving(Agent('test'), auth=auth) as client:
        body = rpc('GetTask', {'id': 'no-such-task'})
        exchange = Exchange(client.app, 'POST', f'/?x=%C3%A9&{key}&empty=', bearer(ANN) | JSON, body)
        assert (await exchange.answer()).status == status
    assert exchange.scope['query_string'] == b'x=%C3%A9&' + left + b'&empty='


JWT = 'eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJl'


def no_caller(_: Request) -> None:
    return None


IN_HEADER: dict[str, SecurityScheme] = {
    'key': {'api_key_security_scheme': {'name': 'X-Portal-Key', 'location': 'header'}},
    'user': {'http_auth_security_scheme': {'scheme': 'Bearer'}},
}


UNRECOGNIZED = [
    f'KEY={BOB}',
    f'%256Bey={BOB}',
    f'key%3D{BOB}',
    f'key[]={BOB}',
    f'a=1;key={BOB}',
    f'token={BOB}',
    BOB,
    f'a=1%26key%3D{BOB}',
]
"""Keys in forms that no server accepts."""


@pytest.mark.parametrize(
    ('options', 'query'),
    [
        ({'auth': BearerAuth({BOB: 'bob'})}, f'access_token={BOB}'),
        ({'auth': BearerAuth({BOB: 'bob'})}, f'ACCESS%5FTOKEN={BOB}'),
        ({'auth': BearerAuth({BOB: 'bob'})}, f't={BOB}'),
        ({'auth': [APIKeyAuth({BOB: 'bob'}), BearerAuth({'another-token-1234': 'ann'})]}, f'access_token={BOB}'),
        ({'auth': AllOf(APIKeyAuth({'another-key-1234': 'bob'}), BearerAuth({BOB: 'bob'}))}, f't={BOB}'),
        ({'auth': no_caller, 'security_schemes': IN_HEADER}, f'x-portal-key={BOB}'),
        ({'auth': no_caller, 'security_schemes': IN_HEADER}, f'access_token={BOB}'),
        ({'auth': no_caller}, f'session={JWT}'),
        ({}, f'access_token={BOB}'),
        *product([{'auth': AUTH}, {'auth': APIKeyAuth({BOB: 'bob'}, header='Key')}], UNRECOGNIZED),
    ],
)
async def test_credentials_of_every_scheme_are_redacted_from_query(options: dict[str, Any], query: str) -> None:
    async with serving(Agent('test'), **options) as client:
        exchange = Exchange(client.app, 'GET', f'/tasks?{query}&x=1', {'A2A-Version': '1.0'}, b'')
        assert (await exchange.next())['status'] == (401 if 'auth' in options else 200)
        assert (BOB in repr(exchange.scope), JWT in repr(exchange.scope)) == (False, False)
        assert exchange.scope['query_string'].endswith(b'redacted&x=1')
        await exchange.next()


async def test_unknown_query_token_is_redacted_in_capitals() -> None:
    async with serving(Agent('test'), auth=TOKENS) as client:
        for name in ('access_token', 'ACCESS_TOKEN', 'Access-Token-X'):
            exchange = Exchange(client.app, 'GET', f'/tasks?{name}=an-expired-token&x=1', {}, b'')
            assert (await exchange.answer()).status == 401
            redacted = b'an-expired-token' not in exchange.scope['query_string']
            assert redacted is (name.lower() == 'access_token')


class Recording:
    """Middleware that notes what it sees of requests."""

    def __init__(self, app: ASGIApp, seen: list[str]) -> None:
        self.app = app
        self._seen = seen

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._seen.append(repr(scope))
        await self.app(scope, receive, send)


async def test_middleware_never_sees_key_of_authenticated_caller() -> None:
    seen: list[str] = []
    async with serving(Agent('test'), auth=AUTH, middleware=[Middleware(Recording, seen=seen)]) as client:
        answer = await Exchange(client.app, 'GET', f'/tasks?key={BOB}', {}, b'').answer()
    assert answer.status == 200
    assert [BOB in each for each in seen if "'http'" in each] == [False]


async def greet(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.close()


async def test_key_is_redacted_from_a_websocket_query() -> None:
    app = to_a2a(Agent('test'), auth=AUTH, routes=[WebSocketRoute('/ws', greet)])
    scope: dict[str, Any] = {
        'type': 'websocket',
        'path': '/ws',
        'query_string': f'key={BOB}'.encode(),
        'headers': [],
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {'type': 'websocket.connect'}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    assert [each['type'] for each in sent] == ['websocket.accept', 'websocket.close']
    assert scope['query_string'] == b'key=redacted'


@pytest.mark.parametrize(
    ('path', 'host', 'status'),
    [
        ('/agent', '127.0.0.1', 200),
        (f'/agent{CARD}', '127.0.0.1', 200),
        (f'/agent{CARD}', 'evil.example', 421),
        ('/elsewhere', 'evil.example', 421),
    ],
)
def test_access_log_has_no_key(path: str, host: str, status: int, caplog: pytest.LogCaptureFixture) -> None:
    parent = Starlette()
    mount(parent, '/agent', to_a2a(Agent('test'), auth=AUTH))
    with caplog.at_level(logging.INFO), serve(parent, log_config=None, log_level='info') as server:
        url = f'{server.url.rstrip("/")}{path}?key={BOB}'
        assert httpx.get(url, headers={'Host': host}, timeout=LIMIT).status_code == status
    lines = [each.getMessage() for each in caplog.records if each.name == 'uvicorn.access']
    assert [('key=redacted' in line, BOB in line) for line in lines] == [(True, False)]
