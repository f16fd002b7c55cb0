"""Paths beside the operations: the card's older path, doubled slashes, the agent's own URL, and unknown paths."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from pydantic_ai import Agent
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from pydantic_ai_a2a import Access, APIKeyAuth, mount, to_a2a

from ...app_client import Answer, Client, Exchange, lifespan, message, rpc, state_of
from ...dialects import in_no_version
from ...serving import serving

pytestmark = in_no_version('it is about paths')
CARD, OLDER = '/.well-known/agent-card.json', '/.well-known/agent.json'
KEY = 'the-key-of-ann-1234'
AUTH = APIKeyAuth({KEY: 'ann'})


def user_endpoint(text: str) -> Any:
    def told(request: Request) -> PlainTextResponse:
        return PlainTextResponse(f'{text} {request.method}')

    return told


async def ask(app: Any, verb: str, path: str, **body: Any) -> Answer:
    sent = json.dumps(body).encode() if body else b''
    return await Exchange(app, verb, path, {'Content-Type': 'application/json'}, sent).answer()


# Paths that a proxy takes away: some servers pass them on in `path`, others only in `root_path`.


@pytest.mark.parametrize(('root_path', 'path'), [('/proxy', '/proxy/'), ('/proxy', '/'), ('/', '/'), ('', '/')])
async def test_requests_with_root_path_of_proxy_are_served(root_path: str, path: str) -> None:
    async with serving(Agent('test')) as client:
        body = json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': 'SendMessage', 'params': {'message': message()}})
        exchange = Exchange(client.app, 'POST', path, {'Content-Type': 'application/json'}, body.encode())
        exchange.scope['root_path'] = root_path
        assert state_of((await exchange.answer()).json['result']['task']) == 'COMPLETED'
        card = Exchange(client.app, 'GET', f'{path[:-1]}{CARD}', {}, b'')
        card.scope['root_path'] = root_path
        assert (await card.answer()).status == 200


# Interface URLs that end in a slash.


@pytest.mark.parametrize('slashes', ['//', '///'])
@pytest.mark.parametrize('prefix', ['', '/agents/joker'])
async def test_repeated_slashes_after_agent_url_are_accepted(slashes: str, prefix: str) -> None:
    agent: Any = to_a2a(Agent('test'), access=Access(tenants=['acme']))
    app: Any = agent
    if prefix:
        app = Starlette()
        mount(app, prefix, agent)
    async with lifespan(app):
        url = (await Client(app).get(f'{prefix}{CARD}')).json['supportedInterfaces'][1]['url']
        assert url.endswith('/')
        sent = await ask(app, 'POST', f'{prefix}{slashes}message:send', message=message())
        task_id = sent.json['task']['id']
        got = await ask(app, 'GET', f'{prefix}{slashes}tasks/{task_id}')
        encoded = await ask(app, 'GET', f'{prefix}{slashes}tasks/a%2Fb')
        below_tenant = await ask(app, 'POST', f'{prefix}{slashes}acme/message:send', message=message())
        framed = await Client(app, path=f'{prefix}{slashes}').post(rpc('GetTask', {'id': task_id}))
        card = await ask(app, 'GET', f'{prefix}{slashes}.well-known/agent-card.json')
        inside = await ask(app, 'GET', f'{prefix}/tasks//{task_id}')
    assert (got.json['id'], framed.json['result']['id'], card.status) == (task_id, task_id, 200)
    assert (encoded.status, below_tenant.status, inside.status) == (404, 200, 404)
    assert encoded.json['error']['details'][0]['reason'] == 'TASK_NOT_FOUND'


# The card's older path.


@pytest.mark.parametrize('below', ['', '/acme'])
async def test_card_is_served_at_older_path(below: str) -> None:
    async with serving(Agent('test'), auth=AUTH, access=Access(tenants=['acme'])) as client:
        card, older = [await client.get(below + path) for path in (CARD, OLDER)]
        heads = [await client.get(below + path, method='HEAD') for path in (CARD, OLDER)]
        known = {'If-None-Match': card.headers['etag']}
        unchanged = [await client.get(below + path, known) for path in (CARD, OLDER)]
    assert (older, heads[1], unchanged[1]) == (card, heads[0], unchanged[0])
    assert (card.status, heads[0].body, unchanged[0].status) == (200, b'', 304)


# The agent's own URL, and unknown paths.


@pytest.mark.parametrize('prefix', ['', '/agents/joker'])
@pytest.mark.parametrize(
    'options', [{}, {'auth': AUTH}, {'url': 'https://example.com/joker'}], ids=['plain', 'auth', 'url']
)
async def test_agent_url_describes_agent_with_card_fields_only(prefix: str, options: dict[str, Any]) -> None:
    agent: Any = to_a2a(Agent('test', name='joker', instructions='Secret.'), **options)
    app: Any = agent
    if prefix:
        app = Starlette()
        mount(app, prefix, agent)
    async with lifespan(app):
        card = (await Client(app).get(f'{prefix}{CARD}')).json
        answers = [await ask(app, 'GET', path) for path in (f'{prefix}/', *([prefix] if prefix else []))]
        head = await ask(app, 'HEAD', f'{prefix}/')
    public = {name: card[name] for name in ('name', 'description', 'version', 'supportedInterfaces')}
    url = options.get('url', f'http://testserver{prefix}')
    for answer in answers:
        assert (answer.status, answer.headers['content-type']) == (200, 'application/json')
        assert answer.json == {**public, 'agentCard': f'{url}{CARD}'}
        assert answer.headers['x-correlation-id']
    assert (head.status, head.body) == (200, b'')


@pytest.mark.parametrize('prefix', ['', '/agents/joker'])
@pytest.mark.parametrize(
    ('accept', 'docs_url', 'target'),
    [
        ('text/html,application/xhtml+xml,*/*;q=0.8', '/docs', '/docs'),
        ('text/html', '/play', '/play'),
        ('text/html', None, None),
        ('*/*', '/docs', None),
    ],
)
async def test_agent_url_redirects_browser_to_playground(
    accept: str, docs_url: str | None, target: str | None, prefix: str
) -> None:
    app: Any = Starlette()
    mount(app, prefix or '/', to_a2a(Agent('test'), docs_url=docs_url))
    async with lifespan(app):
        answer = await Exchange(app, 'GET', f'{prefix}/', {'Accept': accept}, b'').answer()
        unknown = await Exchange(app, 'GET', f'{prefix}/nothing', {'Accept': accept}, b'').answer()
    assert (answer.status, answer.headers.get('location')) == ((307, prefix + target) if target else (200, None))
    assert unknown.status == 404


UNKNOWN_PATHS = ['/nothing', '/nothing/below', '/.well-known/other', '/acme', '/v2/card']


async def test_unknown_path_is_404_with_agent_description(subtests: pytest.Subtests) -> None:
    async with serving(Agent('test'), auth=AUTH) as client:
        for verb, path in product(['GET', 'POST', 'DELETE', 'HEAD', 'OPTIONS'], UNKNOWN_PATHS):
            with subtests.test(f'{verb} {path}'):
                answer = await ask(client.app, verb, path)
                described = (await client.get('/')).json
                assert (answer.status, answer.headers['content-type']) == (404, 'application/json')
                if verb == 'HEAD':
                    assert answer.body == b''
                    continue
                told = answer.json
                error = told.pop('error')
                assert told == described
                assert (error['code'], error['status']) == (404, 'NOT_FOUND')
                assert error['details'][0]['reason'] == 'METHOD_NOT_FOUND'
                assert error['details'][0]['metadata'] == {'correlationId': answer.headers['x-correlation-id']}


@pytest.mark.parametrize('path', ['/tasks/t/nothing', '/message:nothing', '/acme/tasks/t/nothing', '/v1/card'])
@pytest.mark.parametrize('url', [None, 'https://example.com/joker/'])
async def test_refused_operation_path_names_card_url(path: str, url: str | None) -> None:
    async with serving(Agent('test'), access=Access(tenants=True), url=url) as client:
        answer = await ask(client.app, 'GET', path)
    assert answer.status == (400 if path == '/v1/card' else 404)
    metadata = answer.json['error']['details'][0]['metadata']
    assert metadata['agentCard'] == f'{(url or "http://testserver").removesuffix("/")}{CARD}'


NEAR_PATHS = {
    '/message/send': '/message:send',
    '/message:sned': '/message:send',
    '/SendMessage': '/message:send',
    '/v2/message/stream': '/message:stream',
    '/tasks/0198-a1b2-c3d4-e5f6/cancel': '/tasks/{id}:cancel',
    '/task/0198-a1b2-c3d4-e5f6': '/tasks/{id}',
    '/tasks/t/pushNotificationConfig/mine': '/tasks/{id}/pushNotificationConfigs/{configId}',
    '/acme/tasks/t/cancel': '/tasks/{id}:cancel',
    '/extended-agent-card': '/extendedAgentCard',
    '/robots.txt': '',
    f'/message:{"send" * 100}': '',
}


@pytest.mark.parametrize(('access', 'is_served'), [(Access(), True), (Access(versions=['0.3']), False)])
async def test_misspelt_path_error_suggests_correct_path(access: Access, is_served: bool) -> None:
    async with serving(Agent('test'), access=access) as client:
        texts = [(await ask(client.app, 'POST', path)).json['error']['message'] for path in NEAR_PATHS]
    assert texts == [
        f'The path does not exist.{f" Did you mean {near}?" if near and is_served else ""} '
        'The agent card lists the URLs of the agent.'
        for near in NEAR_PATHS.values()
    ]


async def test_misspelt_path_below_mount_suggests_correct_path() -> None:
    app = Starlette(routes=[Mount('/agents/of/the/whole/company', to_a2a(Agent('test')))])
    answer = await ask(app, 'GET', '/agents/of/the/whole/company/task/0198-a1b2-c3d4-e5f6')
    assert 'Did you mean /tasks/{id}?' in answer.json['error']['message']


@pytest.mark.parametrize('verb', ['PUT', 'DELETE', 'PATCH'])
async def test_agent_url_allows_get_head_and_post_only(verb: str) -> None:
    async with serving(Agent('test')) as client:
        answer = await ask(client.app, verb, '/')
    assert (answer.status, answer.headers['allow']) == (405, 'GET, HEAD, POST')
    assert answer.json['agentCard'] == f'http://testserver{CARD}'


async def test_user_routes_take_precedence_over_default_answers() -> None:
    routes = [
        Route('/', user_endpoint('root')),
        Route('/mine', user_endpoint('mine')),
        Route(OLDER, user_endpoint('card')),
        Mount('/app', Route('/{rest:path}', user_endpoint('app'))),
    ]
    async with serving(Agent('test'), routes=routes) as client:
        bodies = [(await client.get(path)).body for path in ('/', '/mine', OLDER, '/app/nothing')]
        card = await client.get(CARD)
        wrong_verb = await ask(client.app, 'DELETE', '/mine')
        unknown = await client.get('/other')
        assert state_of(await client.send()) == 'COMPLETED'
    assert bodies == [b'root GET', b'mine GET', b'card GET', b'app GET']
    assert (card.status, card.json['url']) == (200, 'http://testserver/')
    assert (wrong_verb.status, wrong_verb.body) == (405, b'Method Not Allowed')
    assert unknown.json['error']['code'] == 404


async def test_routes_added_later_take_precedence_over_default_answers() -> None:
    app = to_a2a(Agent('test'))
    app.add_route('/', user_endpoint('root'), methods=['GET'])
    app.add_route(OLDER, user_endpoint('card'), methods=['GET'])
    app.mount('/app', Starlette(routes=[Route('/tasks', user_endpoint('app'))]))
    async with lifespan(app):
        bodies = [(await ask(app, 'GET', path)).body for path in ('/', OLDER, '/app/tasks')]
        assert state_of(await Client(app).send()) == 'COMPLETED'
    assert bodies == [b'root GET', b'card GET', b'app GET']


@pytest.mark.parametrize('key', [404, HTTPException])
async def test_user_exception_handler_answers_unknown_paths(key: Any) -> None:
    def handler(request: Request, exc: Exception) -> PlainTextResponse:
        return PlainTextResponse('my own', status_code=404)

    async with serving(Agent('test'), exception_handlers={key: handler}) as client:
        assert (await client.get('/nothing')).body == b'my own'


async def test_playground_may_be_at_agent_url() -> None:
    async with serving(Agent('test'), docs_url='/') as client:
        assert (await client.get('/')).headers['content-type'].startswith('text/html')


def test_websocket_connection_is_closed() -> None:
    with TestClient(to_a2a(Agent('test'))) as client:
        for path in ('/', '/nothing', '//nothing'):
            with pytest.raises(WebSocketDisconnect), client.websocket_connect(path):
                pass
