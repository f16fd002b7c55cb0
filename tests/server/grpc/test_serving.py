"""`serve_grpc` and `run(grpc_port=)`: what can be served, and where."""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from a2a.types import GetTaskRequest, TaskState
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from starlette.applications import Starlette

from pydantic_ai_a2a import A2AApp, Access, mount, run, serve_grpc, to_a2a
from pydantic_ai_a2a.server.app.listening_sockets import listen
from pydantic_ai_a2a.server.app.serve_grpc import GrpcState
from pydantic_ai_a2a.server.app.uvicorn_server import uvicorn_server

from ...app_client import Client, lifespan
from ...bounds import LIMIT
from .grpc_client import GrpcAgent as Caller
from .grpc_client import send_request

AGENT = Agent(TestModel(custom_output_text='The answer.'))
URL = 'http://127.0.0.1/'


async def test_agent_is_served_without_an_http_server() -> None:
    async with (
        serve_grpc(AGENT, port=0) as state,
        grpc.aio.insecure_channel(state['grpc_address']) as channel,
    ):
        task = (await Caller(channel).call('SendMessage', send_request())).task
    assert TaskState.Name(task.status.state) == 'TASK_STATE_COMPLETED'


async def test_compressed_messages_are_read() -> None:
    async with (
        serve_grpc(AGENT, port=0) as state,
        grpc.aio.insecure_channel(state['grpc_address'], compression=grpc.Compression.Gzip) as channel,
    ):
        task = (await Caller(channel).call('SendMessage', send_request('hello ' * 1000))).task
    assert TaskState.Name(task.status.state) == 'TASK_STATE_COMPLETED'


async def test_grpc_lifespan_starts_and_stops_with_app() -> None:
    app = to_a2a(AGENT, lifespan=partial(serve_grpc, port=0))
    async with lifespan(app):
        card = (await Client(app).get('/.well-known/agent-card.json')).json
        (address,) = [each['url'] for each in card['supportedInterfaces'] if each['protocolBinding'] == 'GRPC']
        port = int(address.removeprefix('testserver:'))
        async with grpc.aio.insecure_channel(f'127.0.0.1:{port}') as channel:
            task = (await Caller(channel).call('SendMessage', send_request())).task
        same = await Client(app).get_task(task.id)
    assert same['id'] == task.id
    card = (await Client(app).get('/.well-known/agent-card.json')).json
    assert [each['protocolBinding'] for each in card['supportedInterfaces']] == ['JSONRPC', 'HTTP+JSON', 'JSONRPC']


async def test_lifespan_of_parent_serves_mounted_app() -> None:
    app = to_a2a(AGENT)

    @asynccontextmanager
    async def beside(parent: Any) -> AsyncGenerator[Any]:
        async with serve_grpc(parent, port=0) as state:
            yield state

    parent = Starlette(lifespan=beside)
    mount(parent, '/agent', app)
    async with lifespan(parent):
        card = (await Client(parent).get('/agent/.well-known/agent-card.json')).json
    assert [each['protocolBinding'] for each in card['supportedInterfaces']] == [
        'JSONRPC',
        'HTTP+JSON',
        'GRPC',
        'JSONRPC',
    ]


@pytest.mark.parametrize(
    ('url', 'declared'),
    [(None, '[2001:db8::1]'), ('grpc.example.com:443', 'grpc.example.com:443')],
)
async def test_card_names_agent_host_or_given_url(url: str | None, declared: str) -> None:
    app = to_a2a(AGENT, url='https://[2001:db8::1]/agent/')
    async with lifespan(app), serve_grpc(app, host='::1', port=0, url=url) as state:
        card: Any = app.card.public('https://[2001:db8::1]/agent/')
        port = state['grpc_address'].removeprefix('[::1]:')
    (address,) = [each['url'] for each in card['supported_interfaces'] if each['protocol_binding'] == 'GRPC']
    assert address == (declared if url else f'{declared}:{port}')


def two_mounted_agents() -> Starlette:
    parent = Starlette()
    mount(parent, '/a', to_a2a(AGENT, name='a'))
    mount(parent, '/b', to_a2a(AGENT, name='b'))
    return parent


@pytest.mark.parametrize(
    ('app', 'options', 'text'),
    [
        (two_mounted_agents, {}, r'gRPC serves one agent on a port, and several apps of to_a2a\(\) can be found'),
        (Starlette, {}, r'gRPC serves one agent on a port, and no app of to_a2a\(\) can be found'),
        (lambda: to_a2a(AGENT, access=Access(versions=['0.3'])), {}, "gRPC has only A2A 1.0, .*: add '1.0'"),
        (lambda: to_a2a(AGENT), {'host': '0.0.0.0'}, 'does not authenticate callers'),
    ],
    ids=['two apps', 'no app', 'only 0.3', 'everybody'],
)
def test_unservable_app_is_rejected(app: Any, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        serve_grpc(app(), **options)


def test_reuse_port_needs_kernel_support(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, 'SO_REUSEPORT')
    with pytest.raises(ValueError, match=r'Several processes cannot share the port of gRPC on this machine'):
        serve_grpc(AGENT, reuse_port=True)


def test_uvicorn_workers_cannot_serve_grpc_on_free_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    app = to_a2a(AGENT)
    started_with = {'config': SimpleNamespace(workers=2)}  # as uvicorn starts its workers
    monkeypatch.setattr(multiprocessing.current_process(), '_kwargs', started_with, raising=False)
    with pytest.raises(ValueError, match=r'Each of the 2 workers of uvicorn would serve gRPC on another free port'):
        serve_grpc(app, port=0)


@pytest.mark.parametrize('first', [0, 1], ids=['the older ends first', 'the newer ends first'])
async def test_card_lists_grpc_until_last_server_ends(first: int) -> None:
    app = to_a2a(AGENT)
    async with lifespan(app):
        blocks = [serve_grpc(app, port=0), serve_grpc(app, port=0)]
        addresses = [(await block.__aenter__())['grpc_address'] for block in blocks]
        assert grpc_places(app) == addresses[1:]
        await blocks.pop(first).__aexit__(None, None, None)
        remaining = addresses[1 - first]
        assert grpc_places(app) == [remaining]
        async with grpc.aio.insecure_channel(remaining) as channel:
            task = (await Caller(channel).call('SendMessage', send_request())).task
            assert TaskState.Name(task.status.state) == 'TASK_STATE_COMPLETED'
            await blocks.pop().__aexit__(None, None, None)
            assert (await Caller(channel).refused('GetTask', GetTaskRequest(id=task.id))).code == 'UNAVAILABLE'
        assert grpc_places(app) == []


async def test_each_event_loop_has_last_grpc_server() -> None:
    app = to_a2a(AGENT)

    def here(base: str) -> str:
        return f'here:{len(base)}'

    def elsewhere(base: str) -> str:
        return f'elsewhere:{len(base)}'

    async def declare() -> None:
        app.declare_grpc(elsewhere, ())

    app.declare_grpc(here, ())
    await asyncio.to_thread(asyncio.run, declare())
    assert app.withdraw_grpc(here, ())
    assert grpc_places(app) == ['elsewhere:17']
    assert app.withdraw_grpc(elsewhere, ())


async def test_grpc_off_card_is_served_but_not_listed() -> None:
    app = to_a2a(AGENT)
    async with lifespan(app):
        before = app.card.public(URL)
        async with serve_grpc(app, port=0, on_card=False) as state:
            assert app.card.public(URL) == before
            for_callers_of_grpc: Any = app.card.public('')
            assert [each['protocol_binding'] for each in for_callers_of_grpc['supported_interfaces']] == ['GRPC']
            async with grpc.aio.insecure_channel(state['grpc_address']) as channel:
                task = (await Caller(channel).call('SendMessage', send_request())).task
            assert TaskState.Name(task.status.state) == 'TASK_STATE_COMPLETED'
    assert app.card.public(URL) == before


async def test_grpc_off_card_hides_no_other_grpc_server() -> None:
    app = to_a2a(AGENT)
    async with lifespan(app), serve_grpc(app, port=0) as listed, serve_grpc(app, port=0, on_card=False):
        assert grpc_places(app) == [listed['grpc_address']]


def grpc_places(app: A2AApp) -> list[str]:
    """Return the addresses of gRPC servers on the card of an app at 127.0.0.1."""
    card: Any = app.card.public(URL)
    return [each['url'] for each in card['supported_interfaces'] if each['protocol_binding'] == 'GRPC']


async def test_taken_port_is_refused_unless_shared() -> None:
    one, other = to_a2a(AGENT), to_a2a(AGENT)
    async with lifespan(one), serve_grpc(one, port=0) as state:
        port = int(state['grpc_address'].rpartition(':')[2])
        with pytest.raises(OSError, match=rf'Cannot listen on 127\.0\.0\.1 port {port} for gRPC'):
            async with lifespan(other), serve_grpc(other, port=port):
                pass  # pragma: no cover
    async with serve_grpc(one, port=0, reuse_port=True) as state:
        port = int(state['grpc_address'].rpartition(':')[2])
        async with lifespan(other), serve_grpc(other, port=port, reuse_port=True) as second:
            assert second == state


@pytest.mark.parametrize(
    ('app', 'options', 'text'),
    [
        (two_mounted_agents, {}, 'several apps'),
        (
            AGENT,
            {'ssl_certfile': 'cert.pem', 'ssl_keyfile_password': 'secret'},
            r'grpc_port= cannot be combined with ssl_keyfile_password=: gRPC reads only keys in clear\.',
        ),
        (
            AGENT,
            {'ssl_context_factory': ssl.create_default_context},
            r'grpc_port= cannot be combined with ssl_context_factory=: gRPC reads certificates from files only\.',
        ),
        (
            AGENT,
            {'ssl_certfile': 'cert.pem', 'ssl_cert_reqs': ssl.CERT_REQUIRED},
            r'ssl_cert_reqs=ssl\.CERT_REQUIRED with grpc_port= needs ssl_ca_certs=',
        ),
    ],
    ids=['several apps', 'password', 'factory', 'no authority'],
)
def test_run_rejects_invalid_grpc_options_before_listening(app: Any, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        run(app() if app is two_mounted_agents else app, port=0, grpc_port=0, **options)


@pytest.mark.parametrize('options', [{}, {'ssl_certfile': 'both.pem'}], ids=['plain', 'TLS'])
def test_run_reports_taken_http_port_before_starting_grpc(options: dict[str, Any]) -> None:
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf'Cannot listen on 127\.0\.0\.1 port {port}: Address already in use'):
            run(AGENT, port=port, grpc_port=0, **options)


def test_run_ends_http_server_if_grpc_cannot_listen() -> None:
    ended: list[str] = []

    @asynccontextmanager
    async def beside(app: Any) -> AsyncGenerator[None]:
        yield
        ended.append('the lifespan')

    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf'Cannot listen on 127\.0\.0\.1 port {port} for gRPC'):
            run(to_a2a(AGENT, lifespan=beside), port=0, grpc_port=port, log_config=None)
    assert ended == ['the lifespan']


async def test_http_connections_are_refused_while_grpc_drains() -> None:
    listener = listen('127.0.0.1', 0)
    address, refused = listener.getsockname(), asyncio.Event()

    @asynccontextmanager
    async def beside() -> AsyncGenerator[GrpcState]:
        yield {'grpc_address': '127.0.0.1:50051'}
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)
        refused.set()

    server, settled = uvicorn_server(to_a2a(AGENT), listener, None, {'log_config': None}, grpc=beside())
    async with asyncio.timeout(LIMIT):
        serving = asyncio.ensure_future(server.serve([listener]))
        await asyncio.to_thread(settled.wait, LIMIT)
        server.should_exit = True
        await serving
    assert refused.is_set()


WITHOUT = """
import sys

sys.modules['grpc'] = None

from pydantic_ai import Agent

import pydantic_ai_a2a
from pydantic_ai_a2a import serve_grpc, to_a2a

app = to_a2a(Agent('test'))
try:
    serve_grpc(app)
except ImportError as error:
    print(error)
"""
WITH = """
import sys

from pydantic_ai import Agent

from pydantic_ai_a2a import run, serve_grpc, to_a2a

to_a2a(Agent('test'))
serve_grpc(Agent('test'))
print(sorted({'grpc', 'google.protobuf', 'a2a'} & sys.modules.keys()))
"""


@pytest.mark.parametrize(
    ('script', 'printed'),
    [
        (
            WITHOUT,
            "gRPC needs the extra `grpc`: pip install 'pydantic-ai-a2a[grpc]', in a checkout '.[grpc]'\n",
        ),
        (WITH, '[]\n'),
    ],
    ids=['missing', 'not imported'],
)
def test_grpc_is_imported_lazily_and_names_its_extra(script: str, printed: str) -> None:
    ran = subprocess.run([sys.executable, '-c', script], capture_output=True, text=True, check=False, timeout=LIMIT)
    assert (ran.stdout, ran.stderr) == (printed, '')
