"""Who may call what `serve` serves, and what a worker answers on its health port: health, and nothing else."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Host, Mount, Route

from pydantic_ai_a2a import catalogue, to_a2a
from pydantic_ai_a2a.commands.worker_health import HealthOnly

from ..app_client import Exchange, lifespan
from ..e2e.server import LIMIT, process
from .command import command

Capture = pytest.CaptureFixture[str]
GUARDED = """
from pydantic_ai import Agent
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from pydantic_ai_a2a import BearerAuth, mount, to_a2a

tokens = BearerAuth({'the-token-of-ann-1234': 'ann'})
several = [tokens, BearerAuth({'the-token-of-bob-1234': 'bob'})]
mixed = [tokens, 7]
agent = Agent('test', name='guarded')
app = to_a2a(agent, auth=tokens)
parent = Starlette()
mount(parent, '/guarded', app)
mount(parent, '/open', to_a2a(agent))
wrapped = CORSMiddleware(parent)
hidden = lambda scope, receive, send: parent(scope, receive, send)
"""


@pytest.fixture(autouse=True)
def guarded(directory: Path) -> Iterator[None]:
    (directory / 'guarded.py').write_text(GUARDED)
    yield
    sys.modules.pop('guarded', None)


def why(capsys: Capture, *arguments: str) -> str:
    """Why a server does not serve: if nothing else is in the way, its port is taken."""
    with socket.create_server(('', 0)) as taken:
        outcome = command(capsys, 'serve', *arguments, '--port', str(taken.getsockname()[1]))
    return outcome.err.splitlines()[-1].partition('Error: ')[2].partition(' port ')[0].partition(': ')[0]


def test_anonymous_server_on_public_address_needs_anonymous_option(capsys: Capture) -> None:
    public = ('--host', '0.0.0.0')
    answers = [
        why(capsys, 'guarded:agent', *public),
        why(capsys, 'guarded:parent', '--host', 'agent.example.com'),
        why(capsys, 'guarded:agent', *public, '--anonymous'),
        why(capsys, 'guarded:app', *public),
        why(capsys, 'guarded:agent', *public, '--auth', 'guarded:tokens'),
        why(capsys, 'guarded:agent', *public, '--auth', 'guarded:several'),
        why(capsys, 'guarded:agent', '--host', 'localhost'),
        why(capsys, 'guarded:agent'),
        why(capsys, 'guarded:agent', '--allowed-host', 'agent.example.com'),
        why(capsys, 'guarded:agent', '--allowed-host', 'agent.example.com', '--anonymous'),
        why(capsys, 'guarded:app', '--allowed-host', 'agent.example.com'),
        why(capsys, 'guarded:agent', '--allowed-host', 'localhost'),
        why(capsys, 'guarded:wrapped', *public),
        why(capsys, 'guarded:hidden', *public),
        why(capsys, 'guarded:hidden'),
        why(capsys, 'guarded:hidden', *public, '--anonymous'),
    ]
    assert answers == snapshot(
        [
            'guarded:agent does not authenticate callers, and other machines can reach 0.0.0.0',
            'guarded:parent does not authenticate callers, and other machines can reach agent.example.com',
            'Cannot listen on 0.0.0.0',
            'Cannot listen on 0.0.0.0',
            'Cannot listen on 0.0.0.0',
            'Cannot listen on 0.0.0.0',
            'Cannot listen on localhost',
            'Cannot listen on 127.0.0.1',
            'guarded:agent does not authenticate callers, and other machines can reach agent.example.com',
            'Cannot listen on 127.0.0.1',
            'Cannot listen on 127.0.0.1',
            'Cannot listen on 127.0.0.1',
            'guarded:wrapped does not authenticate callers, and other machines can reach 0.0.0.0',
            'guarded:hidden has no app of to_a2a() that can be found, so nothing shows whether 0.0.0.0'
            ' authenticates callers',
            'Cannot listen on 127.0.0.1',
            'Cannot listen on 0.0.0.0',
        ]
    )


def test_invalid_auth_option_is_refused(capsys: Capture) -> None:
    answers = [
        why(capsys, 'guarded:agent', '--auth', 'guarded:mixed'),
        why(capsys, 'guarded:agent', '--auth', 'guarded:agent'),
        why(capsys, 'guarded:agent', '--auth', 'guarded:nothing'),
        why(capsys, 'guarded:app', '--auth', 'guarded:tokens'),
    ]
    assert answers == snapshot(
        [
            'guarded:mixed is not an Authenticator, such as a BearerAuth, and not a list of Authenticators.',
            'guarded:agent is not an Authenticator, such as a BearerAuth, and not a list of Authenticators.',
            "The module 'guarded' has no 'nothing'. It has 'agent', 'app'.",
            '--auth can only be given with an agent',
        ]
    )


async def test_served_agent_authenticates_callers(directory: Path) -> None:
    arguments = ('-m', 'pydantic_ai_a2a', 'serve', 'guarded:agent', '--auth', 'guarded:tokens', '--port', '0')
    with process(*arguments, cwd=directory) as server:
        url = server.url
        async with httpx.AsyncClient(timeout=LIMIT) as http:
            answers = [
                await http.post(url, headers=headers, json={'jsonrpc': '2.0', 'id': 1, 'method': 'ListTasks'})
                for headers in ({}, {'Authorization': 'Bearer the-token-of-ann-1234'})
            ]
    assert [each.status_code for each in answers] == [401, 200]


async def own(request: Request) -> PlainTextResponse:
    return PlainTextResponse('own')


def alone() -> Any:
    return to_a2a(Agent('test'))


def mounted() -> Any:
    parent = Starlette(routes=[Mount('/agent', alone()), Route('/own/health/live', own)])
    return CORSMiddleware(parent)


def listed() -> Any:
    return Starlette(routes=[Mount('/team', catalogue([alone(), to_a2a(Agent('test', name='poet'))]))])


@pytest.mark.parametrize(
    ('make', 'verb', 'path', 'status'),
    [
        (alone, 'GET', '/health/live', 200),
        (alone, 'HEAD', '/health/ready', 200),
        (alone, 'POST', '/health/live', 404),
        (alone, 'OPTIONS', '/health/live', 404),
        (alone, 'GET', '/', 404),
        (alone, 'POST', '/', 404),
        (alone, 'GET', '/tasks/a%2Fhealth%2Flive', 404),
        (alone, 'GET', '/tasks/health/live', 404),
        (alone, 'GET', '/nothing/health/live', 404),
        (mounted, 'GET', '/agent/health/live', 200),
        (mounted, 'GET', '/agent/health/ready', 200),
        (mounted, 'GET', '/agent/tasks/a%2Fhealth%2Flive', 404),
        (mounted, 'GET', '/health/live', 200),
        (mounted, 'HEAD', '/health/ready', 200),
        (mounted, 'POST', '/health/ready', 404),
        (mounted, 'GET', '/own/health/live', 404),
        (listed, 'GET', '/health/ready', 200),
        (listed, 'GET', '/team/health/ready', 200),
        (listed, 'GET', '/team/poet/health/ready', 200),
        (listed, 'GET', '/team/docs', 404),
    ],
)
async def test_health_port_answers_only_health_requests(make: Any, verb: str, path: str, status: int) -> None:
    answer = await Exchange(HealthOnly(make()), verb, path, {}, b'').answer()
    assert answer.status == status
    if status == 404:
        assert answer.body == b'Not Found'


async def test_worker_is_ready_only_if_all_agents_are_ready() -> None:
    joker, poet, third = alone(), alone(), alone()
    routes = [Mount('/team', Starlette(routes=[Mount('/joker', joker), Host('poet.example', poet)])), Mount('/', third)]
    health = HealthOnly(Starlette(routes=routes))
    ready = await Exchange(health, 'GET', '/health/ready', {}, b'').answer()
    async with lifespan(poet):
        poet.hosting.drain(asyncio.get_running_loop())
        draining = await Exchange(health, 'GET', '/health/ready', {}, b'').answer()
    agents = {'/team/joker': True, '/team//poet.example': True, '': True}
    assert (ready.status, ready.json['ready'], states(ready)) == (200, True, agents)
    agents['/team//poet.example'] = False
    assert (draining.status, draining.json['ready'], states(draining)) == (503, False, agents)


def states(answer: Any) -> dict[str, bool]:
    return {path: health['ready'] for path, health in answer.json['agents'].items()}
