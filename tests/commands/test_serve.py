"""Who may call what `serve` serves, and what a worker answers on its health port: health, and nothing else."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic_ai import Agent
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Host, Mount, Route

from pydantic_ai_a2a import A2AClient, catalogue, to_a2a
from pydantic_ai_a2a.commands.worker_health import HealthOnly

from ..app_client import Exchange, lifespan
from ..cases import each_case
from ..e2e.server import LIMIT, process
from .command import run_command

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
def guarded_module(app_directory: Path) -> Iterator[None]:
    (app_directory / 'guarded.py').write_text(GUARDED)
    yield
    sys.modules.pop('guarded', None)


def refusal_of_serve(capsys: Capture, *arguments: str) -> str:
    """Why a server does not serve: if nothing else is in the way, its port is taken."""
    with socket.create_server(('', 0)) as taken:
        outcome = run_command(capsys, 'serve', *arguments, '--port', str(taken.getsockname()[1]))
    return outcome.err.splitlines()[-1].partition('Error: ')[2].partition(' port ')[0].partition(': ')[0]


NOT_AUTHENTICATED = 'does not authenticate callers, and other machines can reach'


@each_case(
    'line, reason',
    [
        ('guarded:agent --host 0.0.0.0', f'guarded:agent {NOT_AUTHENTICATED} 0.0.0.0'),
        ('guarded:parent --host agent.example.com', f'guarded:parent {NOT_AUTHENTICATED} agent.example.com'),
        ('guarded:agent --host 0.0.0.0 --anonymous', 'Cannot listen on 0.0.0.0'),
        ('guarded:app --host 0.0.0.0', 'Cannot listen on 0.0.0.0'),
        ('guarded:agent --host 0.0.0.0 --auth guarded:tokens', 'Cannot listen on 0.0.0.0'),
        ('guarded:agent --host 0.0.0.0 --auth guarded:several', 'Cannot listen on 0.0.0.0'),
        ('guarded:agent --host localhost', 'Cannot listen on localhost'),
        ('guarded:agent', 'Cannot listen on 127.0.0.1'),
        ('guarded:agent --allowed-host agent.example.com', f'guarded:agent {NOT_AUTHENTICATED} agent.example.com'),
        ('guarded:agent --allowed-host agent.example.com --anonymous', 'Cannot listen on 127.0.0.1'),
        ('guarded:app --allowed-host agent.example.com', 'Cannot listen on 127.0.0.1'),
        ('guarded:agent --allowed-host localhost', 'Cannot listen on 127.0.0.1'),
        ('guarded:wrapped --host 0.0.0.0', f'guarded:wrapped {NOT_AUTHENTICATED} 0.0.0.0'),
        (
            'guarded:hidden --host 0.0.0.0',
            'guarded:hidden has no app of to_a2a() that can be found, so nothing shows whether 0.0.0.0 authenticates'
            ' callers',
        ),
        ('guarded:hidden', 'Cannot listen on 127.0.0.1'),
        ('guarded:hidden --host 0.0.0.0 --anonymous', 'Cannot listen on 0.0.0.0'),
    ],
)
def test_anonymous_server_on_public_address_needs_anonymous_option(line: str, reason: str, capsys: Capture) -> None:
    assert refusal_of_serve(capsys, *line.split()) == reason


NO_AUTHENTICATOR = 'is not an Authenticator, such as a BearerAuth, and not a list of Authenticators.'


@each_case(
    'line, reason',
    [
        ('guarded:agent --auth guarded:mixed', f'guarded:mixed {NO_AUTHENTICATOR}'),
        ('guarded:agent --auth guarded:agent', f'guarded:agent {NO_AUTHENTICATOR}'),
        ('guarded:agent --auth guarded:nothing', "The module 'guarded' has no 'nothing'. It has 'agent', 'app'."),
        ('guarded:app --auth guarded:tokens', '--auth can only be given with an agent'),
    ],
)
def test_invalid_auth_option_is_refused(line: str, reason: str, capsys: Capture) -> None:
    assert refusal_of_serve(capsys, *line.split()) == reason


async def test_served_agent_authenticates_callers(app_directory: Path) -> None:
    arguments = ('-m', 'pydantic_ai_a2a', 'serve', 'guarded:agent', '--auth', 'guarded:tokens', '--port', '0')
    with process(*arguments, cwd=app_directory) as server:
        url = server.url
        async with httpx.AsyncClient(timeout=LIMIT) as http:
            answers = [
                await http.post(url, headers=headers, json={'jsonrpc': '2.0', 'id': 1, 'method': 'ListTasks'})
                for headers in ({}, {'Authorization': 'Bearer the-token-of-ann-1234'})
            ]
    assert [each.status_code for each in answers] == [401, 200]


async def test_server_processes_share_port_and_replace_killed_process(app_directory: Path) -> None:
    with process(
        '-m', 'pydantic_ai_a2a', 'serve', 'joker', '--workers', '2', '--port', '0', cwd=app_directory
    ) as server:
        server.wait_for(r'(?s)startup complete.*startup complete')
        async with A2AClient(server.url) as client:
            sent = [await client.send('Hello!', context_id=f'c{n}') for n in range(6)]
            assert {task.state for task in sent} == {'completed'}
            os.kill(int(server.wait_for(r'Started server process \[(\d+)\]')[1]), signal.SIGKILL)
            server.wait_for(r'Signal 9 has ended the server process \d+\. Another one starts\.')
            server.wait_for('(?s)' + 'startup complete.*' * 3)
            assert (await client.get(sent[0].task_id)).state == 'completed'
        server.signal(signal.SIGTERM)
        assert await server.ended() == -signal.SIGTERM
    assert server.output.count('Uvicorn running on') == 1
    assert server.output.count('Finished server process') == 2
    assert 'Traceback' not in server.output, server.output


async def user_route(request: Request) -> PlainTextResponse:
    return PlainTextResponse('own')


def single_app() -> Any:
    return to_a2a(Agent('test'))


def mounted_app() -> Any:
    parent = Starlette(routes=[Mount('/agent', single_app()), Route('/own/health/live', user_route)])
    return CORSMiddleware(parent)


def agent_list() -> Any:
    return Starlette(routes=[Mount('/team', catalogue([single_app(), to_a2a(Agent('test', name='poet'))]))])


@pytest.mark.parametrize(
    ('make', 'verb', 'path', 'status'),
    [
        (single_app, 'GET', '/health/live', 200),
        (single_app, 'HEAD', '/health/ready', 200),
        (single_app, 'POST', '/health/live', 404),
        (single_app, 'OPTIONS', '/health/live', 404),
        (single_app, 'GET', '/', 404),
        (single_app, 'POST', '/', 404),
        (single_app, 'GET', '/tasks/a%2Fhealth%2Flive', 404),
        (single_app, 'GET', '/tasks/health/live', 404),
        (single_app, 'GET', '/nothing/health/live', 404),
        (mounted_app, 'GET', '/agent/health/live', 200),
        (mounted_app, 'GET', '/agent/health/ready', 200),
        (mounted_app, 'GET', '/agent/tasks/a%2Fhealth%2Flive', 404),
        (mounted_app, 'GET', '/health/live', 200),
        (mounted_app, 'HEAD', '/health/ready', 200),
        (mounted_app, 'POST', '/health/ready', 404),
        (mounted_app, 'GET', '/own/health/live', 404),
        (agent_list, 'GET', '/health/ready', 200),
        (agent_list, 'GET', '/team/health/ready', 200),
        (agent_list, 'GET', '/team/poet/health/ready', 200),
        (agent_list, 'GET', '/team/docs', 404),
    ],
)
async def test_health_port_answers_only_health_requests(make: Any, verb: str, path: str, status: int) -> None:
    answer = await Exchange(HealthOnly(make()), verb, path, {}, b'').answer()
    assert answer.status == status
    if status == 404:
        assert answer.body == b'Not Found'


async def test_worker_is_ready_only_if_all_agents_are_ready() -> None:
    joker, poet, third = single_app(), single_app(), single_app()
    routes = [Mount('/team', Starlette(routes=[Mount('/joker', joker), Host('poet.example', poet)])), Mount('/', third)]
    health = HealthOnly(Starlette(routes=routes))
    ready = await Exchange(health, 'GET', '/health/ready', {}, b'').answer()
    async with lifespan(poet):
        poet.hosting.drain(asyncio.get_running_loop())
        draining = await Exchange(health, 'GET', '/health/ready', {}, b'').answer()
    agents = {'/team/joker': True, '/team//poet.example': True, '': True}
    assert (ready.status, ready.json['ready'], ready_states(ready)) == (200, True, agents)
    agents['/team//poet.example'] = False
    assert (draining.status, draining.json['ready'], ready_states(draining)) == (503, False, agents)


def ready_states(answer: Any) -> dict[str, bool]:
    return {path: health['ready'] for path, health in answer.json['agents'].items()}
