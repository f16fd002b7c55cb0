"""The app inside larger ones, with and without their lifespan, and with the user's own routes beside it."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.models.test import TestModel
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Host, Mount, Route
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

from pydantic_ai_a2a import A2AApp, A2AClient, catalogue, mount, serve, to_a2a

from ...app_client import LIMIT, Client, lifespan, message, rpc, state_of, texts
from ...dialects import current_dialect, in_no_version, json_rpc
from ..promised_behaviours import covers

CARD = '.well-known/agent-card.json'
NO_CALL = in_no_version('no operation is called')
BOTH = pytest.mark.parametrize('parent', [Starlette, FastAPI])
Parent = Callable[..., Starlette]


class EntryLog(FunctionToolset[object]):
    """Writes down when the agent is entered and left; its runs enter it too, and leave it before that."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log
        self.inside = 0

    async def __aenter__(self) -> EntryLog:
        self.inside += 1
        if self.inside == 1:
            self.log.append('agent entered')
        return self

    async def __aexit__(self, *args: object) -> None:
        self.inside -= 1
        if self.inside == 0:
            self.log.append('agent left')


def agent_answering(text: str, log: list[str] | None = None) -> Agent[object, str]:
    return Agent(TestModel(custom_output_text=text), toolsets=[] if log is None else [EntryLog(log)])


def send(client: TestClient, path: str = '/') -> Any:
    """SendMessage over a test client; the task."""
    return call(client, path, 'SendMessage', {'message': message()})['task']


def call(client: TestClient, path: str, method: str, params: Any) -> Any:
    headers = {'Content-Type': 'application/json', 'A2A-Version': current_dialect().version}
    answer = client.post(path, content=rpc(method, params), headers=headers)
    assert answer.status_code == 200
    return current_dialect().result(method, answer.json())


# In a parent.


@covers('mounted under FastAPI / Starlette')
@BOTH
async def test_mounted_app_starts_and_stops_with_parent(parent: Parent) -> None:
    log: list[str] = []

    @asynccontextmanager
    async def parents(_: Any) -> AsyncGenerator[dict[str, int]]:
        log.append('parent starts')
        yield {'from': 1}
        log.append('parent stops')

    app = parent(lifespan=parents)
    mount(app, '/agent', to_a2a(agent_answering('hi', log)))
    async with lifespan(app):
        assert log == ['parent starts', 'agent entered']
        assert texts(await Client(app, path='/agent/').send()) == ['hi']
    assert log == ['parent starts', 'agent entered', 'agent left', 'parent stops']


@covers('mounted under FastAPI / Starlette')
@BOTH
async def test_app_under_plain_mount_starts_with_first_operation(parent: Parent) -> None:
    log: list[str] = []
    app = parent()
    app.mount('/agent', to_a2a(agent_answering('hi', log)))
    async with lifespan(app):
        assert log == []
        assert (await Client(app).get(f'/agent/{CARD}')).status == 200
        assert log == []
        assert texts(await Client(app, path='/agent/').send()) == ['hi']
        assert log == ['agent entered']


@covers('mounted under FastAPI / Starlette')
@BOTH
@pytest.mark.parametrize('how', ['mount()', 'plainly'])
async def test_agents_in_same_parent_keep_tasks_apart(parent: Parent, how: str) -> None:
    app, agents = parent(), {name: to_a2a(agent_answering(f'I am {name}'), name=name) for name in ('ann', 'bob')}
    for name, agent in agents.items():
        if how == 'plainly':
            app.mount(f'/{name}', agent)
        else:
            mount(app, f'/{name}', agent)
    async with lifespan(app):
        for name, agent in agents.items():
            client = Client(app, path=f'/{name}/')
            task = await client.send(message(contextId='shared'))
            assert texts(task) == [f'I am {name}']
            assert (await client.get(f'/{name}/{CARD}')).json['name'] == name
            assert [each['id'] for each in await agent.list_tasks()] == [task['id']]


@covers('mounted under FastAPI / Starlette')
async def test_app_works_below_nested_mounts() -> None:
    log: list[str] = []
    inner = Starlette()
    mount(inner, '/agent', to_a2a(agent_answering('hi', log)))
    outer = Starlette()
    mount(outer, '/inner', inner)
    async with lifespan(outer):
        assert log == ['agent entered']
        client = Client(outer, path='/inner/agent')
        assert texts(await client.send()) == ['hi']
        assert url_of(await client.get(f'/inner/agent/{CARD}')) == 'http://testserver/inner/agent/'
    assert log == ['agent entered', 'agent left']


def url_of(card: Any) -> str:
    return card.json['supportedInterfaces'][0]['url']


@covers('POST to the mount without trailing slash')
@BOTH
@pytest.mark.parametrize('path', ['/agent', '/agent/'])
async def test_mounted_app_answers_with_and_without_trailing_slash(parent: Parent, path: str) -> None:
    app = parent()
    mount(app, '/agent', to_a2a(agent_answering('hi')))
    async with lifespan(app):
        client = Client(app, path=path)
        assert texts(await client.send()) == ['hi']
        async with client.send_streaming() as stream:
            assert (await stream.rest())[-1].result['statusUpdate']['status']['state'] == 'TASK_STATE_COMPLETED'


@BOTH
async def test_agent_mounted_at_root_starts_with_parent(parent: Parent) -> None:
    log: list[str] = []
    app = parent()
    mount(app, '/', agent_answering('hi', log))
    async with lifespan(app):
        assert log == ['agent entered']
        assert texts(await Client(app).send()) == ['hi']
        card = (await Client(app).get('/.well-known/agent-card.json')).json
        assert card['supportedInterfaces'][0]['url'] == 'http://testserver/'


@covers('POST to the mount without trailing slash')
@BOTH
@pytest.mark.parametrize('how', ['mount()', 'plainly'])
async def test_url_on_mounted_card_can_be_called(parent: Parent, how: str) -> None:
    app, agent = parent(), to_a2a(agent_answering('hi'))
    if how == 'plainly':
        app.mount('/agents/{name}', agent)
    else:
        mount(app, '/agents/{name}', agent)
    async with lifespan(app):
        url = url_of(await Client(app).get(f'/agents/hi/{CARD}'))
        assert url == 'http://testserver/agents/hi/'
        assert texts(await Client(app, path=url.removeprefix('http://testserver')).send()) == ['hi']


@NO_CALL
@BOTH
async def test_mount_leaves_other_routes_of_parent_unchanged(parent: Parent) -> None:
    app = parent(routes=[Route('/hello', hello)])
    mount(app, '/agent', to_a2a(agent_answering('hi')))
    async with lifespan(app):
        assert (await Client(app).get('/hello')).body == b'world'
        assert (await Client(app).get('/agents')).status == 404
        assert (await Client(app).get('/agent', method='PUT')).status == 405
    if isinstance(app, FastAPI):
        assert list(app.openapi()['paths']) == []


@NO_CALL
@BOTH
@pytest.mark.parametrize(
    ('earlier', 'path'),
    [('/agent', '/agent'), ('/agent', '/agent/'), ('/', '/'), ('/', '/agent'), ('/team', '/team/a'), ('/{x}', '/a')],
)
async def test_mount_hidden_by_earlier_mount_is_refused(parent: Parent, earlier: str, path: str) -> None:
    app = parent()
    mount(app, earlier, to_a2a(agent_answering('hi')))
    with pytest.raises(ValueError, match=re.escape(f'no request would reach an app at {path}')):
        mount(app, path, to_a2a(agent_answering('ho')))
    async with lifespan(app):
        assert (await Client(app).get(f'{earlier.removesuffix("/")}/{CARD}')).status == 200


@NO_CALL
@BOTH
async def test_mount_below_later_mount_is_reached(parent: Parent, caplog: pytest.LogCaptureFixture) -> None:
    app = parent()
    for path in ('/team/ann', '/team', '/'):
        mount(app, path, to_a2a(agent_answering('hi'), name=f'at {path}'))
    async with lifespan(app):
        for path in ('/team/ann', '/team', ''):
            assert (await Client(app).get(f'{path}/{CARD}')).json['name'] == f'at {path or "/"}'
    assert caplog.messages == []


@NO_CALL
@BOTH
async def test_routes_hidden_by_mount_are_logged(parent: Parent, caplog: pytest.LogCaptureFixture) -> None:
    app = parent()
    app.router.routes.append(Host('docs.example.com', Starlette()))
    mount(app, '/agent', to_a2a(agent_answering('hi')))
    mount(app, '/', to_a2a(agent_answering('hi')))
    app.router.routes.append(Host('www.example.com', Starlette()))
    app.router.routes.append(Route('/agent', hello))
    app.router.routes.append(Route('/hello/{name}', hello))
    app.mount('/static', Starlette())
    async with lifespan(app):
        pass
    assert sorted(caplog.messages) == [
        'No request reaches /agent, /hello/{name}, /static, because the app that is mounted at / answers there: call'
        ' mount() after adding the other routes.',
        'No request reaches /agent, because the app that is mounted at /agent answers there: call mount() after adding'
        ' the other routes.',
    ]


def hello(_: Request) -> PlainTextResponse:
    return PlainTextResponse('world')


@NO_CALL
@BOTH
@pytest.mark.parametrize('path', ['/my agent', '/100%', '/100%25', '/größe/雪', '/a:b@c', '/a?b#c', '/{name}'])
async def test_advertised_urls_work_below_any_mount_path(parent: Parent, path: str) -> None:
    app = parent()
    mount(app, path, catalogue({'/größe': to_a2a(agent_answering('hi'), docs_url='/die Seite')}))
    with serve(app, anonymous=True) as server:
        async with httpx.AsyncClient(follow_redirects=True, timeout=LIMIT) as client:
            at = quote(path.replace('{', '').replace('}', ''))
            linkset = (await client.get(f'{server.url.removesuffix("/")}{at}/.well-known/api-catalog')).json()[
                'linkset'
            ]
            links = linkset[1]
            card_url, docs_url = links['service-desc'][0]['href'], links['service-doc'][0]['href']
            card = (await client.get(card_url)).json()
            [url] = {interface['url'] for interface in card['supportedInterfaces']}
            assert url == linkset[0]['item'][0]['href']
            assert (await client.get(f'{url}nothing')).json()['agentCard'] == card_url
            page = await client.get(url, headers={'Accept': 'text/html'})
            assert page.url == docs_url
            assert (await client.get(f'{docs_url}/main.js')).status_code == 200
            if '{' not in path:
                assert server.docs_url == docs_url
        async with A2AClient(url) as agent:
            assert (await agent.send('hello')).text == 'hi'


@BOTH
@json_rpc('requests are written by hand')
async def test_lifespan_state_of_parent_reaches_its_requests(parent: Parent) -> None:
    @asynccontextmanager
    async def parents(_: Any) -> AsyncGenerator[dict[str, str]]:
        yield {'greeting': 'hello'}

    def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse(request.state.greeting)

    app = parent(lifespan=parents, routes=[Route('/hello', hello)])
    mount(app, '/agent', to_a2a(agent_answering('hi')))
    with TestClient(app) as client:
        assert client.get('/hello').text == 'hello'
        assert state_of(send(client, '/agent')) == 'COMPLETED'


# With the test client, whose requests have an event loop each unless it is entered.


@covers('mounted under FastAPI / Starlette')
@pytest.mark.parametrize('where', ['bare', 'mount()', 'plainly'])
@json_rpc('requests are written by hand')
def test_the_test_client_needs_no_lifespan(where: str) -> None:
    app, path = mounted_in(to_a2a(agent_answering('hi')), where)
    client = TestClient(app)
    tasks = [send(client, path) for _ in range(3)]
    assert [texts(task) for task in tasks] == [['hi']] * 3
    assert [call(client, path, 'GetTask', {'id': task['id']}) for task in tasks] == tasks


@covers('mounted under FastAPI / Starlette')
@pytest.mark.parametrize('where', ['bare', 'mount()', 'plainly'])
@json_rpc('requests are written by hand')
def test_lifespan_can_run_several_times(where: str) -> None:
    app, path = mounted_in(to_a2a(agent_answering('hi')), where)
    for _ in range(2):
        with TestClient(app) as client:
            assert [texts(send(client, path)) for _ in range(3)] == [['hi']] * 3


def mounted_in(app: A2AApp, where: str) -> tuple[Starlette, str]:
    """The app and the path it is called under."""
    if where == 'bare':
        return app, '/'
    if where == 'plainly':
        return Starlette(routes=[Mount('/agent', app)]), '/agent/'
    parent = Starlette()
    mount(parent, '/agent', app)
    return parent, '/agent'


# What the user adds to the app itself.


@NO_CALL
async def test_user_lifespan_runs_inside_agent_lifespan() -> None:
    log: list[str] = []

    @asynccontextmanager
    async def users(app: Starlette) -> AsyncGenerator[dict[str, str]]:
        assert isinstance(app, A2AApp)
        log.append('user starts')
        yield {'greeting': 'hello'}
        log.append('user stops')

    async with lifespan(to_a2a(agent_answering('hi', log), lifespan=users)):
        assert log == ['agent entered', 'user starts']
    assert log == ['agent entered', 'user starts', 'user stops', 'agent left']


@NO_CALL
async def test_failed_user_lifespan_closes_agent() -> None:
    log: list[str] = []

    @asynccontextmanager
    async def users(_: Any) -> AsyncGenerator[None]:
        raise RuntimeError('the database is not there')
        yield

    with (
        pytest.raises(RuntimeError, match='the database is not there'),
        TestClient(to_a2a(agent_answering('hi', log), lifespan=users)),
    ):
        raise AssertionError('it has started')
    assert log == ['agent entered', 'agent left']


@json_rpc('requests are written by hand')
def test_user_routes_and_middleware_are_served() -> None:
    class Stamp:
        def __init__(self, app: ASGIApp) -> None:
            self.app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            async def stamped(event: Any) -> None:
                if event['type'] == 'http.response.start':
                    event['headers'] = [*event['headers'], (b'x-stamp', b'1')]
                await send(event)

            await self.app(scope, receive, stamped)

    async def tasks(request: Request) -> PlainTextResponse:
        return PlainTextResponse(str(len(await request.app.list_tasks())))

    app = to_a2a(agent_answering('hi'), routes=[Route('/tasks', tasks)], middleware=[Middleware(Stamp)])
    with TestClient(app) as client:
        send(client)
        for path in ('/tasks', f'/{CARD}'):
            assert client.get(path).headers['x-stamp'] == '1'
        assert client.get('/tasks').text == '1'
