"""Callers that nobody vouches for: whom they reach, and what they see of each other."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from pydantic_ai import Agent
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Host, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from pydantic_ai_a2a import A2AApp, Access, BearerAuth, mount, run, serve, serve_grpc, to_a2a

from ...app_client import LIMIT, Answer, Client, Exchange, rpc
from ...logs import audit_records
from ...server.auth.issuer import bearer
from ...serving import serving
from ..refusals import error_of_answer

ANN = 'the-token-of-ann-1234'
STRANGER, HERE, INSIDE = '192.0.2.1', '127.0.0.1', 'testclient'
LOCAL = [HERE, '::1', '::ffff:127.0.0.1', INSIDE]


async def post_from(client: Client, body: bytes, address: str | None, headers: dict[str, str] | None = None) -> Answer:
    """The answer to a request from an address."""
    merged = {'Content-Type': 'application/json', **client.headers, **(headers or {})}
    exchange = Exchange(client.app, 'POST', '/', merged, body)
    exchange.scope['client'] = None if address is None else (address, 1)
    return await exchange.answer()


async def list_tasks_from(client: Client, address: str | None, headers: dict[str, str] | None = None) -> Answer:
    return await post_from(client, rpc('ListTasks', {}), address, headers)


@pytest.mark.parametrize(
    ('anonymous_list', 'may'),
    [(None, LOCAL), (True, [HERE, INSIDE, STRANGER, None]), (False, [])],
)
async def test_anonymous_callers_list_tasks_only_from_allowed_addresses(
    anonymous_list: bool | None, may: list[str | None]
) -> None:
    everywhere = [*LOCAL, STRANGER, '2001:db8::1', None]
    async with serving(Agent('test'), access=Access(anonymous_list=anonymous_list)) as client:
        await client.send()
        for address in everywhere if anonymous_list is not True else may:
            answer = await list_tasks_from(client, address)
            if address in may:
                assert (answer.status, b'"totalSize":1' in answer.body) == (200, True)
            else:
                assert error_of_answer(answer, status=403).message == (
                    'Anonymous callers may not list tasks on this server: send credentials, or read a task by its id.'
                )


BY_PROXY = [
    ('X-Forwarded-For', STRANGER),
    ('X-Forwarded-For', HERE),
    ('X-Forwarded-Proto', 'https'),
    ('X-Real-IP', STRANGER),
    ('Forwarded', f'for={STRANGER}'),
    ('Via', '1.1 proxy'),
]


@pytest.mark.parametrize('header', BY_PROXY)
@pytest.mark.parametrize(('anonymous_list', 'status'), [(None, 403), (True, 200)])
async def test_proxied_request_counts_as_remote(
    header: tuple[str, str], anonymous_list: bool | None, status: int
) -> None:
    async with serving(Agent('test'), access=Access(anonymous_list=anonymous_list)) as client:
        assert (await list_tasks_from(client, HERE, dict([header]))).status == status
        assert (await list_tasks_from(client, HERE)).status == 200


async def test_proxied_anonymous_request_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Agent('test')) as client:
        for headers in ({}, {}, {'X-Forwarded-For': STRANGER}, {'X-Forwarded-For': STRANGER}):
            await list_tasks_from(client, HERE, headers)
    told = [each.getMessage() for each in caplog.records if each.name == 'pydantic_ai_a2a']
    assert [each.partition(':')[0] for each in told] == [
        'The agent does not authenticate callers, and received a request from a machine behind a proxy'
    ]


@pytest.mark.parametrize(
    ('clients', 'times'),
    [([*LOCAL, 'localhost', None], 0), (['10.0.0.5', '10.0.0.5', '10.0.0.6'], 1)],
    ids=['from here', 'from elsewhere'],
)
async def test_remote_anonymous_request_is_warned_of_once(
    clients: list[str | None], times: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(Agent('test')) as client:
        for address in clients:
            assert (await post_from(client, rpc('GetTask', {'id': 'no-such-task'}), address)).status == 200
    told = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert [each.partition(',')[0] for each in told] == ['The agent does not authenticate callers'] * times


async def test_authenticated_caller_may_list_tasks(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Agent('test'), auth=BearerAuth({ANN: 'ann'}), access=Access(anonymous_list=False)) as client:
        assert (await list_tasks_from(client, STRANGER, bearer(ANN))).status == 200
    assert caplog.records == []


async def test_refused_anonymous_list_is_audited(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Agent('test')) as client:
        error_of_answer(await list_tasks_from(client, STRANGER), status=403)
    [record] = audit_records(caplog)
    assert [record[fact] for fact in ('event', 'operation', 'remote')] == ['forbidden', 'ListTasks', STRANGER]


@pytest.mark.parametrize('start', [run, serve])
@pytest.mark.parametrize('host', ['0.0.0.0', '::', 'agent.example.com'])
def test_public_host_is_refused_without_auth(start: Any, host: str) -> None:
    agent = Agent('test')
    parent = Starlette()
    mount(parent, '/guarded', to_a2a(agent, auth=BearerAuth({ANN: 'ann'})))
    mount(parent, '/open', to_a2a(agent))
    with pytest.raises(ValueError, match='does not authenticate callers, and other machines can reach'):
        start(parent, host=host)


class Wrapped:
    """Middleware that has what it wraps where middleware has it."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


def opaque_middleware(app: Starlette) -> Any:
    """Middleware of which nobody knows what it wraps."""

    async def hides(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, send)

    return hides


WRAPS: list[Callable[[A2AApp], ASGIApp]] = [
    lambda app: Wrapped(Wrapped(app)),
    lambda app: Starlette(routes=[Mount('/agent', app, middleware=[Middleware(Wrapped)])]),
    lambda app: Starlette(routes=[Host('agent.example.com', app)]),
    lambda app: Starlette(routes=[Route('/', app)]),
]


@pytest.mark.parametrize('start', [run, serve])
@pytest.mark.parametrize('wrap', WRAPS)
def test_public_host_is_refused_for_wrapped_anonymous_app(start: Any, wrap: Callable[[A2AApp], ASGIApp]) -> None:
    app = to_a2a(Agent('test'))
    with pytest.raises(ValueError, match=r'does not authenticate callers, and other machines can reach 0\.0\.0\.0'):
        start(wrap(app), host='0.0.0.0')


@pytest.mark.parametrize('start', [run, serve])
def test_public_host_is_refused_when_no_app_is_found(start: Any) -> None:
    with pytest.raises(ValueError, match=r'can be found.*To let everybody call, say anonymous=True'):
        start(opaque_middleware(to_a2a(Agent('test'))), host='0.0.0.0')


@pytest.mark.parametrize('start', [run, serve])
@pytest.mark.parametrize(
    ('of_app', 'given'), [(None, ['agent.example.com']), (['agent.example.com'], None), (['*'], ['localhost'])]
)
def test_public_allowed_host_is_refused_without_auth(start: Any, of_app: Any, given: Any) -> None:
    app = Wrapped(to_a2a(Agent('test'), access=Access(allowed_hosts=of_app)))
    with pytest.raises(ValueError, match=r'does not authenticate callers, and other machines can reach \S*:'):
        start(app, allowed_hosts=given)


def test_wrapped_app_keeps_its_allowed_hosts() -> None:
    app = to_a2a(Agent('test'), auth=BearerAuth({ANN: 'ann'}), access=Access(allowed_hosts=['agent.example.com']))
    with serve(Wrapped(app)) as server:
        statuses = [
            httpx.get(f'{server.url}health/live', headers={'Host': host}, timeout=LIMIT).status_code
            for host in ('agent.example.com', 'evil.example')
        ]
    assert statuses == [200, 421]


@pytest.mark.parametrize(('host', 'options'), [('127.0.0.1', {}), ('0.0.0.0', {'anonymous': True})])
def test_unrecognized_app_is_served_locally_or_with_anonymous_option(host: str, options: Any) -> None:
    with serve(opaque_middleware(to_a2a(Agent('test'))), host=host, **options) as server:
        port = server.url.rstrip('/').rpartition(':')[2]
        assert httpx.get(f'http://127.0.0.1:{port}/health/live', timeout=LIMIT).status_code == 200


@pytest.mark.parametrize('options', [{'anonymous': True}, {}], ids=['said', 'with auth'])
def test_public_host_is_served_with_anonymous_option_or_auth(options: Any) -> None:
    app = to_a2a(Agent('test'), auth=None if options else BearerAuth({ANN: 'ann'}))
    with serve(app, host='0.0.0.0', **options) as server:
        port = int(server.url.rstrip('/').rpartition(':')[2])
        with socket.create_connection(('127.0.0.1', port)):
            pass
    assert app.guard.expected is bool(options)


def test_grpc_beside_http_keeps_anonymous_callers_allowed() -> None:
    app = to_a2a(Agent('test'))
    with serve(app, host='0.0.0.0', anonymous=True):
        serve_grpc(app, port=0)
        assert app.guard.expected
