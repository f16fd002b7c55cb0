"""Callers that nobody vouches for: whom they reach, and what they see of each other."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from pydantic_ai import Agent
from starlette.applications import Starlette
from starlette.requests import Request

from pydantic_ai_a2a import BearerAuth, Caller, mount, run, serve, to_a2a

from ..auth.issuer import bearer
from ..client import Answer, Client, Exchange, rpc
from ..dialects import only, unversioned
from .refused import refusal
from .stage import serving

LISTS = only('1.0', reason='0.3 has no lists')
ANN = 'the-token-of-ann-1234'
STRANGER, HERE, INSIDE = '192.0.2.1', '127.0.0.1', 'testclient'


async def listed(client: Client, address: str | None, headers: dict[str, str] | None = None) -> Answer:
    """ListTasks, asked from there."""
    call = rpc('ListTasks', {})
    declared = {'Content-Type': 'application/json'} if call.verb == 'POST' else {}
    merged = {**declared, **client.headers, **(headers or {})}
    exchange = Exchange(client.app, call.verb, call.path or '/', merged, call)
    exchange.scope['client'] = None if address is None else (address, 1)
    return await exchange.answer()


@LISTS
@pytest.mark.parametrize(
    ('anonymous_list', 'may'),
    [(None, [HERE, '::1', '::ffff:127.0.0.1', INSIDE]), (True, [HERE, INSIDE, STRANGER, None]), (False, [])],
)
async def test_strangers_see_a_list_of_tasks_only_where_that_is_said(
    anonymous_list: bool | None, may: list[str | None]
) -> None:
    everywhere = [HERE, '::1', '::ffff:127.0.0.1', INSIDE, STRANGER, '2001:db8::1', None]
    async with serving(Agent('test'), anonymous_list=anonymous_list) as client:
        await client.send()
        for address in everywhere if anonymous_list is not True else may:
            answer = await listed(client, address)
            if address in may:
                assert (answer.status, b'"totalSize":1' in answer.body) == (200, True)
            else:
                assert refusal(answer, status=403).message == 'Anonymous callers may not list tasks here.'


@LISTS
async def test_who_is_known_may_list(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Agent('test'), auth=BearerAuth({ANN: 'ann'}), anonymous_list=False) as client:
        assert (await listed(client, STRANGER, bearer(ANN))).status == 200
    assert caplog.records == []


def nobody(_: Request) -> Caller:
    return Caller(tenant='acme')


@LISTS
async def test_a_stranger_that_is_refused_a_list_is_in_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Agent('test'), authenticate=nobody) as client:
        refusal(await listed(client, STRANGER), status=403)
    [record] = [vars(each)['audit'] for each in caplog.records if each.name == 'pydantic_ai_a2a.audit']
    assert [record[fact] for fact in ('event', 'operation', 'remote', 'tenant')] == [
        'forbidden',
        'ListTasks',
        STRANGER,
        'acme',
    ]


@unversioned('it does not come to a request')
@pytest.mark.parametrize('start', [run, serve])
@pytest.mark.parametrize('host', ['0.0.0.0', '::', 'agent.example.com'])
def test_on_a_public_address_everybody_may_call_only_if_that_is_said(start: Any, host: str) -> None:
    agent = Agent('test')
    parent = Starlette()
    mount(parent, '/guarded', to_a2a(agent, auth=BearerAuth({ANN: 'ann'})))
    mount(parent, '/open', to_a2a(agent))
    with pytest.raises(ValueError, match='lets everybody call it, and'):
        start(parent, host=host)


@unversioned('it is about the log')
@pytest.mark.parametrize('options', [{'anonymous': True}, {}], ids=['said', 'with auth'])
def test_an_app_is_served_to_everybody_if_that_is_said(options: Any) -> None:
    app = to_a2a(Agent('test'), auth=None if options else BearerAuth({ANN: 'ann'}))
    with serve(app, host='0.0.0.0', **options) as server:
        port = int(server.url.rstrip('/').rpartition(':')[2])
        with socket.create_connection(('127.0.0.1', port)):
            pass
    assert app.guard.expected is bool(options)
