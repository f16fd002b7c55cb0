"""Several agents in one app: each at its path, with one list, and only what each shows by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from pydantic_ai_a2a import Access, BearerAuth, catalogue, mount, to_a2a

from ...app_client import Client, lifespan, message, rpc
from ...bounds import LIMIT

CATALOGUE = '/.well-known/api-catalog'
KEY = 'the-token-of-ann-1234'


def agent(name: str, description: str | None = None, **options: Any) -> Any:
    return to_a2a(Agent('test', name=name, description=description), **options)


class KeyMiddleware:
    """Middleware that asks for a header at every path."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope['type'] == 'http' and (b'x-key', b'secret') not in scope['headers']:
            await receive()  # as middleware does that reads bodies
            await PlainTextResponse('No.', 401)(scope, receive, send)
        else:
            await self.app(scope, receive, send)


class ChunkingMiddleware:
    """Middleware that answers in pieces, and watches for the end of the connection meanwhile."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope['type'] != 'http':
            return await self.app(scope, receive, send)

        async def pieces() -> AsyncIterator[str]:
            for piece in ('{"name": ', '"streamed"}'):
                await asyncio.sleep(0)
                yield piece

        await StreamingResponse(pieces())({**scope, 'asgi': {'spec_version': '2.3'}}, receive, send)
        while (await receive())['type'] != 'http.disconnect':
            pass


class FailingMiddleware:
    """Middleware that fails."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope['type'] == 'http':
            raise RuntimeError('broken')
        await self.app(scope, receive, send)


async def test_agents_are_listed_as_an_api_catalog() -> None:
    app = catalogue([agent('Translator 2'), agent('übersetzer', docs_url=None)])
    answer = await Client(app).get(CATALOGUE)
    assert (answer.status, answer.json) == snapshot(
        (
            200,
            {
                'linkset': [
                    {
                        'anchor': 'http://testserver/.well-known/api-catalog',
                        'item': [
                            {'href': 'http://testserver/translator-2/', 'title': 'Translator 2'},
                            {'href': 'http://testserver/%C3%BCbersetzer/', 'title': 'übersetzer'},
                        ],
                    },
                    {
                        'anchor': 'http://testserver/translator-2/',
                        'service-desc': [
                            {
                                'href': 'http://testserver/translator-2/.well-known/agent-card.json',
                                'type': 'application/json',
                            }
                        ],
                        'status': [{'href': 'http://testserver/translator-2/health/ready', 'type': 'application/json'}],
                        'service-doc': [{'href': 'http://testserver/translator-2/docs', 'type': 'text/html'}],
                    },
                    {
                        'anchor': 'http://testserver/%C3%BCbersetzer/',
                        'service-desc': [
                            {
                                'href': 'http://testserver/%C3%BCbersetzer/.well-known/agent-card.json',
                                'type': 'application/json',
                            }
                        ],
                        'status': [
                            {'href': 'http://testserver/%C3%BCbersetzer/health/ready', 'type': 'application/json'}
                        ],
                    },
                ]
            },
        )
    )
    assert answer.headers['content-type'].startswith('application/linkset+json; profile=')
    assert answer.headers['link'] == '<http://testserver/.well-known/api-catalog>; rel="api-catalog"'
    head = await Client(app).get(CATALOGUE, method='HEAD')
    again = await Client(app).get(CATALOGUE, {'If-None-Match': answer.headers['etag']})
    assert (head.status, head.body, head.headers['link']) == (200, b'', answer.headers['link'])
    assert (again.status, again.body) == (304, b'')


async def test_each_listed_agent_can_be_called() -> None:
    app = catalogue([agent('translator'), agent('summarizer')])
    async with lifespan(app):
        for entry in (await Client(app).get(CATALOGUE)).json['linkset'][1:]:
            path = entry['anchor'].removeprefix('http://testserver')
            card = (await Client(app).get(entry['service-desc'][0]['href'].removeprefix('http://testserver'))).json
            assert f'/{card["name"]}/' == path
            assert [each['url'] for each in card['supportedInterfaces']] == [entry['anchor']] * 3
            task = await Client(app, path=path).send('hello')
            assert task['status']['state'] == 'TASK_STATE_COMPLETED'


async def test_html_page_lists_agents_with_escaped_text() -> None:
    app = catalogue([agent('<script>', '<img src=x onerror=alert(1)>'), agent('summarizer', docs_url=None)])
    answer = await Client(app).get('/')
    assert answer.headers['content-type'] == 'text/html; charset=utf-8'
    assert "default-src 'none'" in answer.headers['content-security-policy']
    page = answer.body.decode()
    assert '<h2><a href="http://testserver/script/docs">&lt;script&gt;</a></h2>' in page
    assert '&lt;img src=x onerror=alert(1)&gt;' in page
    assert '<h2>summarizer</h2>' in page
    assert (await Client(app).get('/docs')).body == answer.body
    assert (await Client(catalogue([agent('a')], docs_url=None)).get('/docs')).status == 404
    assert (await Client(catalogue([agent('a')], docs_url='/list')).get('/list')).status == 200


async def test_catalogue_keeps_auth_and_hides_protected_cards() -> None:
    app = catalogue(
        {
            '/open': agent('translator'),
            '/team/closed': agent('closed', auth=BearerAuth({KEY: 'ann'})),
            '/team': agent('secret', 'Top secret.', middleware=[Middleware(KeyMiddleware)]),
        }
    )
    async with lifespan(app):
        assert (await Client(app, path='/open/').post(rpc('SendMessage', {'message': message()}))).status == 200
        closed = Client(app, path='/team/closed/')
        assert (await closed.post(rpc('SendMessage', {'message': message()}))).status == 401
        allowed = await closed.post(rpc('SendMessage', {'message': message()}), {'Authorization': f'Bearer {KEY}'})
        assert allowed.status == 200
    for path in (CATALOGUE, '/'):
        answer = await Client(app).get(path, {'X-Key': 'secret', 'Authorization': f'Bearer {KEY}'})
        assert b'http://testserver/team/' in answer.body
        assert b'ecret' not in answer.body
    [items] = [entry['item'] for entry in (await Client(app).get(CATALOGUE)).json['linkset'] if 'item' in entry]
    assert [item.get('title') for item in items] == ['translator', 'closed', None]


async def test_catalogue_is_ready_only_if_every_agent_is_ready() -> None:
    summarizer = agent('summarizer')
    app = catalogue([agent('translator'), summarizer])
    async with lifespan(app):
        ready = await Client(app).get('/health/ready')
        live = await Client(app).get('/health/live')
        summarizer.hosting.drain(asyncio.get_running_loop())
        draining = await Client(app).get('/health/ready')
    assert (ready.status, ready.json['ready'], {*ready.json['agents']}) == (200, True, {'/translator', '/summarizer'})
    assert ready.json['agents']['/translator']['components']['backend'] == 'ok'
    assert (live.status, live.json) == (200, {'live': True})
    assert (draining.status, draining.json['ready']) == (503, False)
    assert {path: health['ready'] for path, health in draining.json['agents'].items()} == {
        '/translator': True,
        '/summarizer': False,
    }


@pytest.mark.parametrize('middleware', [FailingMiddleware, KeyMiddleware], ids=['failing', 'protected'])
async def test_failing_or_protected_agent_is_not_ready_but_listed(
    middleware: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = catalogue([agent('translator'), agent('broken', middleware=[Middleware(middleware)])])
    async with lifespan(app):
        ready = await Client(app).get('/health/ready')
        listed = await Client(app).get(CATALOGUE)
    assert (ready.status, ready.json['ready'], ready.json['agents']['/broken']) == (503, False, None)
    assert [item.get('title') for item in listed.json['linkset'][0]['item']] == ['translator', None]
    failed = 'The agent at /broken has failed a request for /health/ready.' in caplog.messages
    assert failed is (middleware is FailingMiddleware)


async def test_card_sent_in_chunks_is_listed() -> None:
    app = catalogue([agent('translator', middleware=[Middleware(ChunkingMiddleware)])])
    async with lifespan(app), asyncio.timeout(LIMIT):
        listed = await Client(app).get(CATALOGUE)
    assert [item['title'] for item in listed.json['linkset'][0]['item']] == ['streamed']


async def test_mounted_catalogue_lists_agents_below_its_mount_path() -> None:
    inner = catalogue([agent('translator', url='https://public.example.com/t/', access=Access(versions=['1.0']))])
    parent = Starlette()
    mount(parent, '/agents', inner)
    async with lifespan(parent):
        linkset = (await Client(parent).get(f'/agents{CATALOGUE}')).json['linkset']
        ready = await Client(parent).get('/agents/health/ready')
    assert linkset[0]['anchor'] == f'http://testserver/agents{CATALOGUE}'
    assert linkset[0]['item'] == [{'href': 'http://testserver/agents/translator/', 'title': 'translator'}]
    assert ready.status == 200


async def test_routes_can_be_added_to_the_catalogue() -> None:
    app = catalogue([agent('translator')])
    app.router.routes.append(Route('/about', PlainTextResponse('About.')))
    assert (await Client(app).get('/about')).body == b'About.'


@pytest.mark.parametrize(
    ('apps', 'text'),
    [
        (list, 'needs at least one app'),
        (lambda: [agent('a'), agent('A')], 'two agents have the path /a. Give the agents different names'),
        (lambda: {'a': agent('a')}, "takes paths such as /translator, not 'a'"),
        (lambda: {'/': agent('a')}, "takes paths such as /translator, not '/'"),
        (lambda: {'/a/': agent('a')}, "takes paths such as /translator, not '/a/'"),
        (lambda: {'/{a}': agent('a')}, 'takes paths such as /translator'),
        (lambda: [agent('docs')], 'the path /docs is used by the list or the health of all agents'),
        (lambda: {'/health': agent('a')}, 'the path /health is used'),
        (lambda: {'/.well-known': agent('a')}, 'the path /.well-known is used'),
    ],
)
def test_unusable_agent_paths_are_refused(apps: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text.replace('.', r'\.').replace('{', r'\{')):
        catalogue(apps())


def test_invalid_catalogue_arguments_are_refused() -> None:
    other: Any = Starlette()
    with pytest.raises(TypeError, match=r'apps\[0\] takes an A2AApp, not a Starlette'):
        catalogue([other])
    with pytest.raises(ValueError, match="docs_url takes a path that begins with a slash, such as /docs, not 'docs'"):
        catalogue([agent('a')], docs_url='docs')
