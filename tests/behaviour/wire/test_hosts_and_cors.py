"""What web pages can do with an agent: nothing, under no name and from no origin that was not allowed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from pydantic_ai import Agent
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from pydantic_ai_a2a import Access, Caller, serve, to_a2a

from ...app_client import LIMIT, Answer, Client, Exchange, message, rpc
from ...dialects import current_dialect, in_no_version, json_rpc
from ...serving import serving
from ..promised_behaviours import covers
from ..refusals import error_of_answer, send_body, serving_without_runs

CARD = '/.well-known/agent-card.json'
READY = '/health/ready'
OURS = ['agent.example.com', '*.Agents.example.org.']
APP = 'https://app.example.com'


async def ask(app: ASGIApp, host: str | None, method: str = 'POST', path: str = '/') -> Answer:
    """A request with this and no other `Host`."""
    headers = {'Content-Type': 'application/json', 'A2A-Version': current_dialect().version}
    exchange = Exchange(app, method, path, headers, rpc('GetTask', {'id': 'no-such-task'}))
    exchange.scope['headers'][0] = (b'x-none', b'') if host is None else (b'host', host.encode('latin-1'))
    return await exchange.answer()


GOOD_HOSTS: list[str | None] = [
    'agent.example.com',
    'AGENT.example.com:8443',
    'agent.example.com.',
    'joker.agents.example.org',
    'a.b.agents.example.org',
    'localhost',
    'localhost:8000',
    'joker.localhost:8000',
    '127.0.0.1:8000',
    '10.1.2.3',
    '[::1]',
    '[::1]:8000',
    None,
]


@covers('`text/plain` from a foreign Origin')
@json_rpc('what the other one answers is in test_http_json')
async def test_allowed_hosts_and_ip_addresses_are_served(subtests: pytest.Subtests) -> None:
    async with serving_without_runs(access=Access(allowed_hosts=OURS)) as client:
        for host in GOOD_HOSTS:
            with subtests.test(host=host):
                assert (await ask(client.app, host)).json['error']['code'] == -32001


BAD_HOSTS = [
    'evil.example',
    'evil.example:8000',
    'example.com',
    'agents.example.org',
    'agent.example.com.evil.example',
    'evilagents.example.org',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    'notlocalhost',
    'agent.example.com@evil.example',
    'evil.example:@agent.example.com',
    'agent.example.com:port',
    'agent.example.com/',
    'agent.example.com,evil.example',
    'evil.example,agent.localhost',
    '[evil]',
    '[::1',
    '[1::2::3]',
    '*.agents.example.org',
    'agent.example.com evil.example',
    '\xff',
    '',
]


@covers('`text/plain` from a foreign Origin')
@json_rpc('what the other one answers is in test_http_json')
async def test_foreign_host_header_is_refused_with_421(
    subtests: pytest.Subtests,
) -> None:
    async with serving_without_runs(access=Access(allowed_hosts=OURS)) as client:
        for host in BAD_HOSTS:
            with subtests.test(host=host):
                answer = await ask(client.app, host)
                error = error_of_answer(answer, status=421, id=None)
                assert error.code == -32600
                assert b'evil' not in answer.body


@in_no_version('no operation is called')
@pytest.mark.parametrize(('method', 'path'), [('GET', CARD), ('HEAD', CARD), ('GET', READY), ('GET', '/docs')])
async def test_card_health_and_docs_refuse_foreign_hosts(method: str, path: str) -> None:
    async with serving_without_runs(access=Access(allowed_hosts=[]), docs_url='/docs') as client:
        mine = await ask(client.app, 'localhost', method, path)
        foreign = await ask(client.app, 'agent.example.com', method, path)
        parent = Starlette(routes=[Mount('/joker', client.app)])
        mounted = await ask(parent, 'agent.example.com', method, f'/joker{path}')
    assert (mine.status, foreign.status, mounted.status) == (200, 421, 421)
    assert (foreign.body == b'') == (method == 'HEAD')


@in_no_version('no operation is called')
@pytest.mark.parametrize('allowed', [None, ['*']])
async def test_every_host_is_served_by_default_or_wildcard(allowed: list[str] | None) -> None:
    async with serving_without_runs(access=Access(allowed_hosts=allowed)) as client:
        assert (await ask(client.app, 'agent.example.com', 'GET', CARD)).status == 200


@in_no_version('no operation is called')
async def test_user_websocket_route_refuses_foreign_hosts() -> None:
    async def greet(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.close()

    app = to_a2a(Agent('test'), access=Access(allowed_hosts=[]), routes=[WebSocketRoute('/ws', greet)])

    async def knock(host: bytes) -> list[str]:
        sent: list[str] = []

        async def receive() -> dict[str, Any]:
            return {'type': 'websocket.connect'}

        async def keep(message: Any) -> None:
            sent.append(message['type'])

        headers = [(b'host', host)]
        await app({'type': 'websocket', 'path': '/ws', 'query_string': b'', 'headers': headers}, receive, keep)
        return sent

    assert await knock(b'localhost') == ['websocket.accept', 'websocket.close']
    assert await knock(b'evil.example') == ['websocket.close']


@in_no_version('nothing is sent')
@pytest.mark.parametrize('hosts', [['https://agent.example.com'], ['a:80'], ['a*'], ['']])
def test_invalid_allowed_host_is_refused_at_startup(hosts: Any) -> None:
    with pytest.raises(ValueError, match=r'allowed_hosts= takes names such as agent\.example\.com'):
        to_a2a(Agent('test'), access=Access(allowed_hosts=hosts))


@in_no_version('nothing is sent')
@pytest.mark.parametrize('options', [{'allowed_hosts': APP}, {'cors': APP}])
def test_hosts_and_origins_given_as_string_are_refused(options: Any) -> None:
    with pytest.raises(TypeError, match=r'(allowed_hosts|cors) takes a list or a set of strings.*, not a string'):
        Access(**options)


# CORS.


def preflight(origin: str, headers: str = 'content-type') -> dict[str, str]:
    return {
        'Origin': origin,
        'Access-Control-Request-Method': 'POST',
        'Access-Control-Request-Headers': headers,
    }


@in_no_version('no operation is called')
async def test_preflight_of_allowed_origin_permits_client_headers() -> None:
    asked = 'a2a-extensions,a2a-version,authorization,content-type,last-event-id,traceparent,x-api-key'
    async with serving_without_runs(access=Access(cors=[APP])) as client:
        answer = await client.get('/', preflight(APP, asked), method='OPTIONS')
        foreign = await client.get('/', preflight('https://evil.example'), method='OPTIONS')
    assert answer.status == 200
    assert answer.headers['access-control-allow-origin'] == APP
    assert answer.headers['access-control-allow-methods'] == 'GET, POST, DELETE'
    assert answer.headers['access-control-allow-headers'] == asked
    assert 'access-control-allow-credentials' not in answer.headers
    assert foreign.status == 400
    assert 'access-control-allow-origin' not in foreign.headers


@pytest.mark.parametrize('method', ['SendMessage', 'SendStreamingMessage'])
async def test_allowed_origin_may_read_response_and_headers(method: str) -> None:
    async with serving(Agent('test'), access=Access(cors=[APP])) as client:
        body = rpc(method, {'message': message()})
        mine = await client.post(body, {'Origin': APP})
        foreign = await client.post(body, {'Origin': 'https://evil.example'})
    assert mine.headers['access-control-allow-origin'] == APP
    exposed = mine.headers['access-control-expose-headers'].lower().split(', ')
    assert {'x-correlation-id', 'a2a-extensions', 'x-a2a-extensions', 'retry-after'} <= {*exposed}
    assert 'access-control-allow-origin' not in foreign.headers


@in_no_version('no operation is called')
async def test_wildcard_cors_allows_every_origin() -> None:
    async with serving_without_runs(access=Access(cors=['*'])) as client:
        answer = await client.get(CARD, {'Origin': 'https://any.example'})
    assert (answer.status, answer.headers['access-control-allow-origin']) == (200, '*')


class Forbidding:
    """A user's own middleware, which answers by itself."""

    def __init__(self, app: ASGIApp) -> None:
        pass

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({'type': 'http.response.start', 'status': 403, 'headers': []})
        await send({'type': 'http.response.body', 'body': b''})


async def test_allowed_origin_may_read_error_responses() -> None:
    async with serving_without_runs(access=Access(cors=[APP]), auth=_nobody) as client:
        answer = await client.post(send_body(), {'Origin': APP})
    error_of_answer(answer, status=401, id=None)
    app = to_a2a(Agent('test'), access=Access(cors=[APP]), middleware=[Middleware(Forbidding)])
    forbidden = await Client(app).post(send_body(), {'Origin': APP})
    assert forbidden.status == 403
    assert [each.headers['access-control-allow-origin'] for each in (answer, forbidden)] == [APP, APP]


def _nobody(_: object) -> Caller | None:
    return None


@in_no_version('nothing is sent')
@pytest.mark.parametrize('origin', ['app.example.com', 'https://app.example.com/', 'https://*.example.com', 'null', ''])
def test_invalid_cors_origin_is_refused_at_startup(origin: str) -> None:
    with pytest.raises(ValueError, match=r'cors= takes origins such as https://app\.example\.com'):
        to_a2a(Agent('test'), access=Access(cors=[origin]))


# What browsers make of answers.


@json_rpc('its media types are in test_http_json')
async def test_responses_are_json_or_event_streams_with_nosniff() -> None:
    async with serving(Agent('test')) as client:
        answers = [
            await client.post(send_body(parts=[{'text': '<script>alert(1)</script>'}])),
            await client.post(rpc('SendStreamingMessage', {'message': message('<script>alert(1)</script>')})),
            await client.post(b'<script>alert(1)</script>'),
            await client.post(send_body(), {'Content-Type': 'text/html'}),
            await client.post(send_body(), {'Accept': 'text/html'}),
            await client.get(CARD, {'Accept': 'text/html'}),
            await client.get(READY),
        ]
    assert {answer.headers['x-content-type-options'] for answer in answers} == {'nosniff'}
    assert {answer.headers['content-type'] for answer in answers} == {'application/json', 'text/event-stream'}


# Real servers.


@asynccontextmanager
async def served(app: ASGIApp, **options: Any) -> AsyncGenerator[httpx.AsyncClient]:
    """A client of a server on this machine, which names the hosts that it asks itself."""
    server = await asyncio.to_thread(serve, app, **options)
    try:
        async with httpx.AsyncClient(base_url=server.url, timeout=LIMIT, trust_env=False) as client:
            yield client
    finally:
        await asyncio.to_thread(server.close)


async def statuses(client: httpx.AsyncClient, *hosts: str, path: str = CARD) -> list[int]:
    return [(await client.get(path, headers={'Host': host})).status_code for host in hosts]


@in_no_version('no operation is called')
@covers('`text/plain` from a foreign Origin')
async def test_serve_on_localhost_refuses_foreign_hosts() -> None:
    async with served(to_a2a(Agent('test'))) as client:
        assert await statuses(client, 'evil.example', 'localhost', '127.0.0.1:8000') == [421, 200, 200]
        assert await statuses(client, 'evil.example', path=READY) == [421]
        refused = await client.post('/', json={}, headers={'Host': 'evil.example'})
    assert refused.status_code == 421


@in_no_version('no operation is called')
@pytest.mark.parametrize('mounted', [False, True])
async def test_serve_accepts_allowed_hosts_of_app_and_argument(mounted: bool) -> None:
    app = to_a2a(Agent('test'), access=Access(allowed_hosts=['agent.example.com']))
    parent = Starlette(routes=[Mount('/joker', app)])
    path = f'/joker{CARD}' if mounted else CARD
    async with served(parent if mounted else app, anonymous=True) as client:
        assert await statuses(client, 'agent.example.com', 'evil.example', path=path) == [200, 421]
    async with served(to_a2a(Agent('test')), allowed_hosts=['proxy.example'], anonymous=True) as client:
        assert await statuses(client, 'proxy.example', 'evil.example') == [200, 421]


@in_no_version('no operation is called')
async def test_serve_on_public_address_accepts_every_host() -> None:
    async with served(to_a2a(Agent('test')), host='0.0.0.0', anonymous=True) as client:
        assert await statuses(client, 'agent.example.com') == [200]


@in_no_version('nothing is sent')
def test_serve_refuses_invalid_allowed_host_before_listening() -> None:
    with pytest.raises(ValueError, match='allowed_hosts='):
        serve(to_a2a(Agent('test')), allowed_hosts=['https://agent.example.com'])
