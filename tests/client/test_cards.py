"""Cards of remote agents: found, checked, kept, and never a way to another origin."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

import httpx2
import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from pydantic_ai_a2a import A2A, A2AClient, A2AToolset, CardRefused, Push, RemoteAgent, RemoteUnavailable, to_a2a
from pydantic_ai_a2a.client import cards
from pydantic_ai_a2a.client.doctor.card_steps import interfaces
from pydantic_ai_a2a.client.http_connections import NotConnected
from pydantic_ai_a2a.client.interfaces import Interface
from pydantic_ai_a2a.errors import RemoteProtocolError, TaskNotCancelableError, UnsupportedOperationError
from pydantic_ai_a2a.wire.protocol import lenient_reading
from pydantic_ai_a2a.wire.protocol.received_cards import read_card

from ..bounds import LIMIT
from ..cases import each_case
from .canned_agent import CARD, TASK, CannedAgent, client_at_url, result_response, serve_canned


def with_interfaces(*interfaces: tuple[str, str, str]) -> dict[str, Any]:
    listed = [
        {'protocolBinding': binding, 'url': url, 'protocolVersion': version} for binding, url, version in interfaces
    ]
    return {**CARD, 'supportedInterfaces': listed}


async def test_card_is_fetched_from_agent_or_card_url() -> None:
    canned = CannedAgent(result_response(TASK))
    async with client_at_url(canned.app, 'http://agent.example/a') as client:
        assert (await client.card())['name'] == 'canned'
    async with client_at_url(canned.app, 'http://agent.example/cards/one.agent.json') as client:
        await client.card()
    paths = [path for _, path, _, _ in canned.requests]
    assert paths == ['/a/.well-known/agent-card.json', '/cards/one.agent.json']


async def test_card_url_may_end_with_slash() -> None:
    canned = CannedAgent(result_response(TASK))
    async with client_at_url(canned.app, 'http://agent.example/.well-known/agent-card.json/?key=1') as client:
        assert (await client.card())['name'] == 'canned'
    assert [path for _, path, _, _ in canned.requests] == ['/.well-known/agent-card.json']


async def test_card_at_url_with_slash_is_found() -> None:
    async def card(_: Request) -> Response:
        return JSONResponse(CARD)

    app = Starlette(routes=[Route('/cards/one.json/', card)])
    app.router.redirect_slashes = False
    async with client_at_url(app, 'http://agent.example/cards/one.json/') as client:
        assert (await client.card())['name'] == 'canned'


async def test_older_card_path_is_tried_after_404() -> None:
    served = to_a2a(Agent(TestModel(), name='second'))

    async def only_older(scope: Any, receive: Any, send: Any) -> None:
        if scope['path'].endswith('agent-card.json'):
            await Response(status_code=404)(scope, receive, send)
        elif scope['path'].endswith('agent.json'):
            await served({**scope, 'path': '/.well-known/agent-card.json'}, receive, send)

    async with client_at_url(only_older, 'http://agent.example') as client:
        assert (await client.card())['name'] == 'second'


async def test_older_card_path_is_tried_after_oversized_answer() -> None:
    canned = CannedAgent(result_response(TASK))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        newer = scope['path'].endswith('agent-card.json')
        await (Response(' ' * 1_000_001) if newer else canned.app)(scope, receive, send)

    async with client_at_url(app, 'http://agent.example') as client:
        assert (await client.card())['name'] == 'canned'


def app_with_card_at(path: str, card: Any, canned: CannedAgent) -> ASGIApp:
    """The card at one path, and the canned answers at the others."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope['path'] == path and scope['method'] == 'GET':
            await Response(json.dumps(card), media_type='application/json')(scope, receive, send)
        elif scope['method'] == 'GET':
            await Response(status_code=404)(scope, receive, send)
        else:
            await canned.app(scope, receive, send)

    return app


async def test_target_or_card_url_may_serve_card_itself() -> None:
    app = app_with_card_at('/v1/card', CARD, CannedAgent(result_response({'task': TASK})))
    for target, options in (
        ('http://agent.example/v1/card', {}),
        ('http://agent.example/', {'card_url': 'v1/card'}),
        ('http://agent.example/a2a', {'card_url': 'http://agent.example/v1/card'}),
    ):
        async with client_at_url(app, target, **options) as client:
            assert (await client.card())['name'] == 'canned'
            await client.send('hello')
    async with client_at_url(app, 'http://agent.example/v2/card') as client:
        with pytest.raises(CardRefused, match=r'/v2/card/.well-known/agent-card.json has no agent card: HTTP 404'):
            await client.card()


async def test_relative_interface_urls_resolve_against_card_url() -> None:
    canned = CannedAgent(result_response({'task': TASK}))
    for url, path in (('rpc', '/v1/rpc'), ('/rpc', '/rpc'), ('../a/b', '/a/b')):
        app = app_with_card_at('/v1/card', with_interfaces(('JSONRPC', url, '1.0')), canned)
        async with client_at_url(app, 'http://agent.example/v1/card') as client:
            await client.send('hello')
            assert canned.requests[-1][1] == path
            assert (await client.card()).get('supported_interfaces', [])[0]['url'] == f'http://agent.example{path}'
    async with client_at_url(
        CannedAgent(card=with_interfaces(('JSONRPC', '/\n', '1.0'))).app, 'http://agent.example'
    ) as client:
        with pytest.raises(CardRefused, match='another origin'):
            await client.send('hello')


@each_case(
    'declared, options',
    [('0.2.6', {}), ('0.2.6', {'version': '0.3'}), ('0.1.0', {'version': '0.3'}), (None, {'version': '0.3'})],
)
async def test_agent_before_0_3_is_called_with_0_3(declared: str | None, options: Any) -> None:
    card = {'name': 'older', 'url': 'http://agent.example/rpc', 'protocolVersion': declared}
    canned = CannedAgent(result_response({**TASK, 'kind': 'task'}), card=card)
    async with client_at_url(canned.app, 'http://agent.example', **options) as client:
        await client.send('hello')
    assert canned.methods == ['message/send']
    [chosen] = interfaces(read_card({**card, 'protocolVersion': '0.2.6'}), 'http://agent.example/')
    assert chosen == Interface('http://agent.example/rpc', 'JSONRPC', '0.3', agent='older')


RPC_1_0, RPC_0_3, REST_1_0 = ('SendMessage', '1.0'), ('message/send', '0.3'), (None, '1.0')


@each_case(
    ('declared', 'options', 'called'),
    [
        ([('JSONRPC', '0.3')], {'version': '1.0'}, RPC_1_0),
        ([('JSONRPC', '1.0')], {'version': '0.3'}, RPC_0_3),
        ([('JSONRPC', '2.0')], {'version': '1.0'}, RPC_1_0),
        ([('HTTP+JSON', '0.3')], {'version': '1.0'}, REST_1_0),
        ([('JSONRPC', '0.3'), ('HTTP+JSON', '1.0')], {'version': '1.0'}, REST_1_0),
        ([('JSONRPC', '0.3'), ('HTTP+JSON', '1.0')], {'version': '1.0', 'binding': 'JSONRPC'}, RPC_1_0),
    ],
)
async def test_version_option_overrides_versions_of_card(declared: Any, options: Any, called: Any) -> None:
    card = with_interfaces(*((binding, 'http://agent.example/rpc', version) for binding, version in declared))
    task = {'task': TASK} if called[1] == '1.0' else {**TASK, 'kind': 'task'}
    answer = result_response(task) if called[0] else Response(json.dumps(task), media_type='application/json')
    canned = CannedAgent(answer, card={**card, 'capabilities': {}})
    async with client_at_url(canned.app, 'http://agent.example', **options) as client:
        await client.send('hello')
    _, _, headers, body = canned.requests[-1]
    assert (body.get('method'), headers['a2a-version']) == called


async def test_version_unsupported_by_binding_is_refused() -> None:
    canned = CannedAgent(card=with_interfaces(('HTTP+JSON', 'http://agent.example/rpc', '1.0')))
    async with client_at_url(canned.app, 'http://agent.example', version='0.3') as client:
        with pytest.raises(CardRefused, match=r'names no interface that can be called. It names: HTTP\+JSON 1.0'):
            await client.send('hello')


async def test_card_json_is_accepted_as_target() -> None:
    canned = CannedAgent(result_response({'kind': 'task', **TASK}))
    older = {'name': 'older', 'url': 'http://agent.example/rpc', 'protocolVersion': '0.3.0'}
    for card in (CARD, older):
        async with client_at_url(canned.app, card) as client:
            assert (await client.card())['name'] == card['name']
            await client.send('hello')
    with pytest.raises(ValueError, match='The target is not an agent card: name: an agent card needs the name'):
        A2AClient(cast('Any', {'description': 'x'}))
    with pytest.raises(TypeError, match='card_url needs a target that is a URL'):
        A2AClient(cast('Any', CARD), card_url='http://agent.example/card')


async def test_malformed_card_fields_are_dropped_with_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lenient_reading.warn_once.cache_clear()
    skill = {'id': 's', 'name': 'S', 'description': 'D', 'tags': ['t']}
    card = {
        **CARD,
        'provider': {'organization': 'o'},
        'documentationUrl': 5,
        'defaultInputModes': 'text',
        'capabilities': {'streaming': True, 'pushNotifications': 'perhaps', 'extensions': [{'uri': 'u'}, {}]},
        'skills': [3, {**skill, 'examples': ['e', 4]}, {'name': 'no id'}, {**skill, 'tags': 'cooking'}],
        'securitySchemes': {'odd': {'type': 'odd'}, 'key': 'none', 'b': {'type': 'http', 'scheme': 'Bearer'}},
        'securityRequirements': [{'schemes': ['b']}],
        'supportedInterfaces': [
            {'url': 'http://agent.example/'},
            {'protocolBinding': 1, 'url': 'x'},
            *CARD['supportedInterfaces'],
        ],
        'signatures': {},
    }
    with caplog.at_level(logging.WARNING, 'pydantic_ai_a2a'):
        async with client_at_url(
            CannedAgent(result_response({'task': TASK}), card=card).app, 'http://agent.example'
        ) as client:
            read = await client.card()
            await client.send('hello')
    assert read['capabilities'] == {'streaming': True, 'extensions': [{'uri': 'u'}]}
    assert [(skill['id'], skill['tags'], skill.get('examples')) for skill in read['skills']] == [
        ('s', ['t'], ['e']),
        ('s', [], None),
    ]
    assert read['default_input_modes'] == []
    assert {*read.get('security_schemes', ())} == {'b'}
    assert not {'provider', 'documentation_url', 'signatures'} & {*read}
    warnings = [message.partition(' that cannot be read, and that is left out: ') for message in caplog.messages]
    assert {agent for agent, _, _ in warnings} == {'http://agent.example/.well-known/agent-card.json has sent a value'}
    assert [fault.partition(':')[0] for _, _, fault in warnings] == [
        'securitySchemes.odd',
        'securitySchemes.key',
        'schemes',
        'skills',
        'provider.url',
    ]


class CardClock:
    """The clock of cards, which tests set."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> CardClock:
    clock = CardClock()
    monkeypatch.setattr(cards, 'time', clock)
    return clock


async def test_extended_card_is_kept_until_card_version_changes(clock: CardClock) -> None:
    offered = {**CARD, 'version': '1', 'capabilities': {'extendedAgentCard': True}}
    canned = CannedAgent(result_response({**offered, 'description': 'More.'}), card=offered)
    async with client_at_url(canned.app, 'http://agent.example') as client:
        await client.extended_card()
        assert (await client.card())['description'] == 'More.'
        clock.now += 301
        assert (await client.card())['description'] == 'More.'
        clock.now += 301
        canned.card = {**offered, 'version': '2'}
        assert (await client.card())['description'] == ''
    async with client_at_url(canned.app, offered) as client:
        await client.extended_card()
        assert (await client.card())['description'] == 'More.'
    asked = CannedAgent(result_response(offered))
    async with client_at_url(asked.app, 'http://agent.example') as client:
        with pytest.raises(UnsupportedOperationError, match='The agent canned offers no extended card'):
            await client.extended_card()
    assert asked.methods == []


@each_case('cuts, requests, patient', [(2, 3, True), (2, 3, False), (9, 6, True), (9, 6, False)])
async def test_cut_card_request_is_retried_a_few_times(cuts: int, requests: int, patient: bool) -> None:
    begun = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal begun
        begun += 1
        await reader.readuntil(b'\r\n\r\n')
        body = json.dumps(CARD).encode()
        head = f'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n'
        writer.write(head.encode() + (body[:9] if begun <= cuts else body))
        writer.close()

    server = await asyncio.start_server(serve, '127.0.0.1', 0)
    url = f'http://127.0.0.1:{server.sockets[0].getsockname()[1]}'
    trusted = ['http://agent.example']
    async with server, asyncio.timeout(LIMIT), A2AClient(url, timeout=LIMIT, trusted_origins=trusted) as client:
        if cuts < requests:
            card, _ = await client.find(patient=patient)
            assert card['name'] == 'canned'
        else:
            with pytest.raises(RemoteUnavailable, match='has cut the connection'):
                await client.find(patient=patient)
    assert begun == requests


@each_case(
    'control, seconds',
    [
        ('no-store', 0),
        ('No-Store, max-age=60', 0),
        ('max-age=0', 0),
        ('private, Max-Age=60', 60),
        ('max-age=99999999999999999999', 86_400),
        ('max-age=soon', 300),
        ('', 300),
    ],
)
async def test_cache_control_decides_freshness_of_card(control: str, seconds: int, clock: CardClock) -> None:
    headers = {'cache-control': control, 'etag': '"1"'}
    canned = CannedAgent(card=Response('{"name": "one"}', headers=headers))
    async with client_at_url(canned.app, 'http://agent.example') as client:
        await client.card()
        canned.card = Response(status_code=304, headers=headers)  # is as fresh as a new card
        for requests in (2, 3):
            if seconds:
                clock.now += seconds - 1
                await client.card()
                assert len(canned.requests) == requests - 1
                clock.now += 2
            await client.card()
            assert len(canned.requests) == requests


async def test_card_keeps_etag_over_answer_without_etag() -> None:
    canned = CannedAgent(result_response(TASK))
    async with client_at_url(canned.app, 'http://agent.example') as client:
        canned.card = Response('{"name": "one"}', headers={'cache-control': 'no-cache', 'etag': '"1"'})
        await client.card()
        canned.card = Response(status_code=304, headers={'cache-control': 'no-cache'})
        for _ in range(2):
            assert (await client.card())['name'] == 'one'
        canned.card = Response('{"name": "two"}')
        assert (await client.card())['name'] == 'two'
    assert [headers.get('if-none-match') for _, _, headers, _ in canned.requests] == [None, '"1"', '"1"', '"1"']


async def test_refused_card_is_not_cached() -> None:
    canned = CannedAgent(result_response(TASK), card=Response('{"name": 3}'))
    async with client_at_url(canned.app, 'http://agent.example') as client:
        with pytest.raises(CardRefused, match='name: an agent card needs the name'):
            await client.card()
        canned.card = CARD
        assert (await client.card())['name'] == 'canned'


@pytest.mark.parametrize(
    ('card', 'text'),
    [
        (Response(status_code=404), 'has no agent card: HTTP 404.'),
        (Response(status_code=401), 'asks for credentials'),
        (RedirectResponse('http://elsewhere.example/a?secret'), 'to which it leads, http://elsewhere.example/a.'),
        (RedirectResponse('/card'), 'the URL to which it leads, http://agent.example/card.'),
        (Response(status_code=302), 'the URL to which it leads.'),
        (Response(status_code=400), 'HTTP 400. If the port takes only TLS, write https:// in the place of http://.'),
        (Response('<html>', media_type='text/html'), 'not JSON but text/html. Is this the URL of an A2A agent?'),
        (Response('[]'), 'is not an agent card'),
        (Response(' ' * 1_000_001), 'more than 1000000 bytes'),
        (Response('no gzip', headers={'content-encoding': 'gzip'}), 'cannot be read'),
        (Response('{"name": "a", "skills": [{}]}'), 'names no interface that can be called. It names: none.'),
        (with_interfaces(), 'names no interface that can be called. It names: none.'),
        (with_interfaces(('GRPC', 'http://agent.example', '0.3')), 'It names: GRPC 0.3.'),
        (with_interfaces(('JSONRPC', 'http://agent.example', '9.0')), 'It names: JSONRPC 9.0.'),
        (with_interfaces(('JSONRPC', 'http://agent.example', 'new')), 'It names: JSONRPC new.'),
        (with_interfaces(('HTTP+JSON', 'http://agent.example', '0.3')), r'It names: HTTP\+JSON 0.3.'),
        (with_interfaces(('JSONRPC', 'http://evil.example', '1.0')), 'another origin, http://evil.example:80'),
        (with_interfaces(('JSONRPC', 'https://agent.example', '1.0')), 'place of http:// for the card'),
        (with_interfaces(('JSONRPC', 'ftp://agent.example/x', '1.0')), 'another origin, ftp://agent.example/x'),
        (with_interfaces(('JSONRPC', 'http://agent.example:port', '1.0')), 'another origin, The target'),
    ],
)
async def test_unusable_card_is_refused_with_reason(card: Any, text: str) -> None:
    async with client_at_url(
        CannedAgent(result_response({'task': TASK}), card=card).app, 'http://user:secret@agent.example/'
    ) as client:
        with pytest.raises(CardRefused, match=text) as refused:
            await client.send('hello')
    assert 'http://agent.example/' in str(refused.value)
    assert 'secret' not in str(refused.value)


def record_versions(app: ASGIApp, versions: list[bytes | None]) -> ASGIApp:
    """The app, which notes the version of each request that is not for its card."""

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        if scope['type'] == 'http' and not scope['path'].endswith('.json'):
            versions.append(dict(scope['headers']).get(b'a2a-version'))
        await app(scope, receive, send)

    return noting


@pytest.mark.parametrize(
    ('options', 'version'),
    [({'binding': 'JSONRPC'}, '1.0'), ({'binding': 'HTTP+JSON'}, '1.0'), ({'version': '0.3'}, '0.3')],
)
async def test_each_request_has_a2a_version_header(options: Any, version: str) -> None:
    versions: list[bytes | None] = []
    app = record_versions(to_a2a(Agent(TestModel()), push=Push(private_hosts=['hook.invalid'])), versions)
    hook: Any = {'id': 'hook', 'url': 'http://hook.invalid/'}
    async with asyncio.timeout(LIMIT), A2AClient(app, **options) as client:
        task: Any = (await client.send('hello')).outcome
        assert [update async for update in client.stream('hello')]
        await client.get(task['id'])
        with pytest.raises(TaskNotCancelableError):
            await client.cancel(task['id'])
        assert await client.create_push_config(task['id'], hook)
        assert await client.get_push_config(task['id'], 'hook')
        assert await client.list_push_configs(task['id'])
        await client.delete_push_config(task['id'], 'hook')
    assert versions == [version.encode()] * 8


async def test_first_supported_interface_is_called_at_its_url() -> None:
    card = with_interfaces(
        ('CARRIER-PIGEON', 'http://agent.example/pigeon', '1.0'),
        ('HTTP+JSON', 'http://agent.example/rest', '1.0'),
        ('JSONRPC', 'http://agent.example/old', '0.3'),
        ('JSONRPC', 'http://agent.example/rpc', '1.0'),
    )
    canned = CannedAgent(Response(json.dumps({'task': TASK}), media_type='application/json'), card=card)
    async with client_at_url(canned.app, 'http://agent.example') as client:
        await client.send('hello', return_immediately=True)
    canned.answers = [result_response({'task': TASK})]
    async with client_at_url(canned.app, 'http://agent.example', binding='JSONRPC', version='1.0') as client:
        await client.send('hello', return_immediately=True)
    assert [path for method, path, _, _ in canned.requests if method == 'POST'] == ['/rest/message:send', '/rpc']


async def test_card_request_answered_with_503_is_remote_unavailable() -> None:
    canned = CannedAgent(result_response(TASK), card=Response(status_code=503))
    async with client_at_url(canned.app, 'http://agent.example', timeout=0.2) as client:
        with pytest.raises(RemoteUnavailable, match='HTTP 503'):
            await client.card()


@each_case('status', [429, 502, 503, 504])
async def test_retry_after_of_card_request_is_kept(status: int, clock: CardClock) -> None:
    clock.now = 0.0
    busy = Response(status_code=status, headers={'retry-after': '3600'})
    canned = CannedAgent(result_response(TASK), card=busy)
    async with client_at_url(canned.app, 'http://agent.example') as client:
        with pytest.raises(RemoteUnavailable, match=f'HTTP {status}') as refused:
            await client.card()
        assert (refused.value.retry_after, len(canned.requests)) == (3600, 1)
        canned.card = CARD
        await client.card()
        canned.card = busy
        for clock.now in (301.0, 3900.0):
            await client.card()
        assert len(canned.requests) == 3
        clock.now = 3901.0
        await client.card()
        assert len(canned.requests) == 4


async def test_first_card_request_is_repeated_after_503() -> None:
    class Starting(CannedAgent):
        """An agent behind a gateway, that has started when its card is asked for once more."""

        async def _serve(self, request: Request) -> Response:
            self.card = CARD if self.requests else Response(status_code=503)
            return await super()._serve(request)

    canned = Starting(result_response(TASK))
    async with client_at_url(canned.app, 'http://agent.example') as client:
        assert (await client.card())['name'] == 'canned'
    assert len(canned.requests) == 2


async def test_first_card_request_is_repeated_until_agent_listens() -> None:
    port = socket.socket()
    port.bind(('127.0.0.1', 0))  # refuses connections until it listens
    attempts = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b'\r\n\r\n')
        body = json.dumps(CARD).encode()
        writer.write(f'HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n'.encode() + body)
        writer.close()

    class StartsAgent(httpx2.Auth):
        async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            nonlocal attempts
            attempts += 1
            if attempts == 2:
                servers.append(await asyncio.start_server(serve, sock=port))
            yield request

    servers: list[asyncio.Server] = []
    url = f'http://127.0.0.1:{port.getsockname()[1]}'
    async with asyncio.timeout(LIMIT), A2AClient(url, auth=StartsAgent(), timeout=LIMIT) as client:
        assert (await client.card())['name'] == 'canned'
        servers[0].close()
    assert attempts == 2


@each_case(
    'outage',
    [
        Response(status_code=503),
        Response(status_code=404),
        Response(status_code=500),
        Response('<html>', media_type='text/html'),
        Response(' ' * 1_000_001),
    ],
    ids=['503', '404', '500', 'html', 'too long'],
)
async def test_known_card_outlives_outage_by_a_day(
    outage: Response, clock: CardClock, caplog: pytest.LogCaptureFixture
) -> None:
    clock.now = 0.0
    caplog.clear()
    canned = CannedAgent(result_response(TASK))
    async with client_at_url(canned.app, 'http://agent.example') as client:
        await client.card()
        canned.card = outage
        for clock.now in (301.0, 302.0, 400.0):
            assert (await client.card())['name'] == 'canned'
        assert len(canned.requests) == 3  # not at each call
        assert caplog.text.count('An agent card cannot be fetched again') == 1
        clock.now = 86_400.0
        with pytest.raises((CardRefused, RemoteUnavailable)):
            await client.card()
        canned.card = {**CARD, 'name': 'restarted'}
        assert (await client.card())['name'] == 'restarted'


async def test_unchanged_card_outlives_outage_by_another_day(clock: CardClock) -> None:
    canned = CannedAgent(card=Response('{"name": "one"}', headers={'etag': '"1"'}))
    async with client_at_url(canned.app, 'http://agent.example') as client:
        await client.card()
        canned.card, clock.now = Response(status_code=304), 80_000.0
        await client.card()
        canned.card, clock.now = Response(status_code=503), 90_000.0
        assert (await client.card())['name'] == 'one'


async def test_each_outage_of_card_is_logged_once(clock: CardClock, caplog: pytest.LogCaptureFixture) -> None:
    canned = CannedAgent(card=CARD)
    async with client_at_url(canned.app, 'http://agent.example') as client:
        await client.card()
        for outage in (1, 2):
            canned.card = Response(status_code=503)
            for _ in range(2):
                clock.now += 301
                await client.card()
            assert caplog.text.count('An agent card cannot be fetched again') == outage
            canned.card, clock.now = CARD, clock.now + 301
            await client.card()


@each_case('status', [401, 403])
async def test_cached_card_is_unused_after_401_or_403(status: int, clock: CardClock) -> None:
    canned = CannedAgent(result_response(TASK))
    async with client_at_url(canned.app, 'http://agent.example') as client:
        await client.card()
        canned.card = Response(status_code=status)
        clock.now += 301.0
        with pytest.raises(CardRefused, match='asks for credentials'):
            await client.card()


async def test_path_of_operation_stands_before_query_of_interface() -> None:
    interface = {
        'protocolBinding': 'HTTP+JSON',
        'url': 'http://agent.example/rest/?key=1&v=2',
        'protocolVersion': '1.0',
    }
    asked: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        asked.append(f'{scope["path"]}?{scope["query_string"].decode()}')
        await Response(json.dumps(TASK), media_type='application/json')(scope, receive, send)

    async with client_at_url(app, read_card({**CARD, 'supportedInterfaces': [interface]})) as client:
        await client.get('t')
        await client.get('t', history_length=3)
    assert asked == ['/rest/tasks/t?key=1&v=2', '/rest/tasks/t?key=1&v=2&historyLength=3']


async def test_trusted_origin_gets_requests_with_credentials() -> None:
    canned = CannedAgent(result_response(TASK), card=with_interfaces(('JSONRPC', 'https://api.example/rpc', '1.0')))
    trusted = {'trusted_origins': ['https://api.example'], 'headers': {'authorization': 'Bearer x'}}
    async with client_at_url(canned.app, 'http://agent.example', **trusted) as client:
        assert (await client.get('t')).task_id == 't'
    assert canned.requests[-1][2]['authorization'] == 'Bearer x'


@pytest.mark.parametrize('host', ['localhost:8000', '127.0.0.1:8000', '0.0.0.0:8000', '[::1]:8000', 'a.localhost'])
async def test_loopback_url_on_remote_card_becomes_card_origin(host: str, caplog: pytest.LogCaptureFixture) -> None:
    canned = CannedAgent(result_response(TASK), card=with_interfaces(('JSONRPC', f'http://{host}/rpc', '1.0')))
    with caplog.at_level(logging.WARNING):
        async with client_at_url(canned.app, 'https://agent.example:8443/') as client:
            await client.get('t')
    assert canned.requests[-1][2]['host'] == 'agent.example:8443'
    assert canned.requests[-1][1] == '/rpc'
    assert 'which only its own machine can reach' in caplog.text


@each_case('card_host', ['localhost', '127.0.0.1', '0.0.0.0', '[::1]', 'a.localhost'])
async def test_loopback_host_names_are_the_same_origin(card_host: str) -> None:
    canned = CannedAgent(
        result_response(TASK), card=with_interfaces(('JSONRPC', f'http://{card_host}:8000/rpc', '1.0'))
    )
    for host in ('localhost:8000', '127.0.0.1:8000', '[::1]:8000'):
        async with client_at_url(canned.app, f'http://{host}/', headers={'authorization': 'Bearer x'}) as client:
            await client.get('t')
        assert (canned.requests[-1][1], canned.requests[-1][2]['host']) == ('/rpc', host)


@each_case(
    'url',
    ['http://127.0.0.1:9/rpc', 'https://127.0.0.1:8000/rpc', 'http://192.168.0.1:8000/rpc', 'http://machine:8000/rpc'],
)
async def test_interface_at_another_port_scheme_or_host_is_refused(url: str) -> None:
    canned = CannedAgent(result_response(TASK), card=with_interfaces(('JSONRPC', url, '1.0')))
    async with client_at_url(canned.app, 'http://localhost:8000/') as client:
        with pytest.raises(CardRefused, match='another origin'):
            await client.get('t')


async def test_card_given_as_target_may_name_any_url() -> None:
    canned = CannedAgent(result_response(TASK))
    async with client_at_url(canned.app, read_card(CARD)) as client:
        await client.get('t')
    assert [path for _, path, _, _ in canned.requests] == ['/rpc']


async def test_unreachable_agent_error_names_url_without_secret() -> None:
    async with asyncio.timeout(LIMIT), A2AClient('http://127.0.0.1:9/?key=secret', timeout=0.2) as client:
        with pytest.raises(NotConnected, match=re.escape('http://127.0.0.1:9/')) as refused:
            await client.card()
    assert 'secret' not in str(refused.value)


@each_case(('number', 'patience'), [(socket.EAI_NONAME, LIMIT), (socket.EAI_AGAIN, 0.2)], ids=['unknown', 'later'])
async def test_error_says_host_name_does_not_resolve(
    number: int, patience: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(number, 'Name or service not known')

    monkeypatch.setattr(socket, 'getaddrinfo', unknown)
    async with asyncio.timeout(LIMIT), A2AClient('http://agent.invalid', timeout=patience) as client:
        with pytest.raises(NotConnected, match='cannot be reached: the name of its host does not resolve'):
            await client.card()


async def test_host_name_is_resolved_again_after_temporary_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve, failures = socket.getaddrinfo, [socket.gaierror(socket.EAI_AGAIN, 'Try again')]

    def resolve_later(host: Any, *arguments: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return resolve('127.0.0.1', *arguments, **options)

    with serve_canned(CannedAgent()) as server:
        monkeypatch.setattr(socket, 'getaddrinfo', resolve_later)
        url = server.url.replace('127.0.0.1', 'localhost')
        async with asyncio.timeout(LIMIT), A2AClient(url, timeout=LIMIT) as client:
            assert (await client.card())['name'] == 'canned'


@each_case('make', [A2A, A2AToolset, A2AClient, RemoteAgent], ids=lambda make: make.__name__)
def test_non_http_target_is_refused_at_construction(make: Callable[[str], object], subtests: pytest.Subtests) -> None:
    begins = 'It has to begin with http:// or https://, and name a host.'
    for target, text in (
        ('localhost:8000', "'localhost:8000' is not a URL of HTTP. Write http://localhost:8000."),
        ('agents.example/a', "'agents.example/a' is not a URL of HTTP. Write http://agents.example/a."),
        ('', f"'' is not a URL of HTTP. {begins}"),
        ('/agent', f"'/agent' is not a URL of HTTP. {begins}"),
        ('ftp://agent.example', f"'ftp://agent.example' is not a URL of HTTP. {begins}"),
        ('grpc://agent.example:50051', f"'grpc://agent.example:50051' is not a URL of HTTP. {begins}"),
        ('https://', f"'https://' is not a URL of HTTP. {begins}"),
        ('http://agent.example:port', f"'http://agent.example:port' is not a URL of HTTP. {begins}"),
        ('ann:secret@agent.example', f'The target is not a URL of HTTP. {begins}'),
        ('agent.example?key=secret', f'The target is not a URL of HTTP. {begins}'),
    ):
        with subtests.test(target), pytest.raises(ValueError, match=f'^{re.escape(text)}$'):
            make(target)


def test_invalid_card_url_or_trusted_origin_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^'ftp://agent\.example/card' is not a URL of HTTP\."):
        A2AClient('http://agent.example', card_url='ftp://agent.example/card')
    with pytest.raises(
        ValueError, match=r"^'api\.example\.com' is not a URL of HTTP\. Write http://api\.example\.com\.$"
    ):
        A2AClient('http://agent.example', trusted_origins=['api.example.com'])
    A2AClient('http://agent.example', card_url='card', trusted_origins=['grpcs://agent.example:50051'])


async def test_given_card_with_non_http_interface_is_protocol_error() -> None:
    async with A2AClient(read_card(with_interfaces(('JSONRPC', 'ftp://agent.example', '1.0')))) as client:
        with pytest.raises(RemoteProtocolError, match='is not a URL of HTTP'):
            await client.send('hello')


OLDER: dict[str, Any] = {
    'name': 'older',
    'description': 'An agent of A2A 0.3.',
    'url': 'http://agent.example/rpc',
    'protocolVersion': '0.3.0',
    'preferredTransport': 'GRPC',
    'additionalInterfaces': [{'url': 'http://agent.example/rpc', 'transport': 'JSONRPC'}],
    'supportsAuthenticatedExtendedCard': True,
    'version': '2',
    'capabilities': {'streaming': True, 'pushNotifications': None},
    'securitySchemes': {
        'key': {'type': 'apiKey', 'in': 'header', 'name': 'X-Key'},
        'odd': {'type': 'magic'},
    },
    'security': [{'key': []}],
    'skills': [{'id': 's', 'name': 'S', 'inputSchema': {'type': 'object'}, 'examples': None}],
}


def test_card_of_0_3_is_converted_to_1_0() -> None:
    card: Any = read_card(OLDER)
    assert [interface['protocol_binding'] for interface in card['supported_interfaces']] == ['GRPC', 'JSONRPC']
    assert card['capabilities'] == {'extended_agent_card': True, 'streaming': True}
    assert card['security_schemes'] == {'key': {'api_key_security_scheme': {'location': 'header', 'name': 'X-Key'}}}
    assert card['security_requirements'] == [{'schemes': {'key': []}}]
    assert card['skills'][0]['input_modes'] == []
    assert card['default_input_modes'] == []


def test_security_scopes_are_read_in_both_json_forms() -> None:
    scopes: Any = {
        **CARD,
        'securitySchemes': {'bearer': {'httpAuthSecurityScheme': {'scheme': 'Bearer'}, 'type': 'http'}},
        'securityRequirements': [{'schemes': {'bearer': {'list': ['read']}}}, {'schemes': {'bearer': ['write']}}, {}],
    }
    card: Any = read_card(scopes)
    assert card['security_schemes'] == {'bearer': {'http_auth_security_scheme': {'scheme': 'Bearer'}}}
    assert [requirement['schemes'] for requirement in card['security_requirements']] == [
        {'bearer': ['read']},
        {'bearer': ['write']},
        {},
    ]
