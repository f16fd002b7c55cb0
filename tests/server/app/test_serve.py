"""`run` and `serve`: how a server starts, which requests it serves, and how it ends."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from typing import Any

import httpx
import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from starlette.applications import Starlette

from pydantic_ai_a2a import Limits, Workers, mount, run, serve, to_a2a

from ...app_client import message
from ...bounds import LIMIT
from ...constants import with_constants


def test_serve_raises_if_app_fails_to_start() -> None:
    @asynccontextmanager
    async def broken(app: Any) -> AsyncGenerator[None]:
        raise ValueError('no database')
        yield

    with pytest.raises(RuntimeError, match=r'The app did not start: the error is in the log\.'):
        serve(to_a2a(Agent(TestModel()), lifespan=broken))


def test_serve_refuses_a_port_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        with pytest.raises(OSError, match='in use'):
            serve(to_a2a(Agent(TestModel())), port=taken.getsockname()[1])


PATCHES = {
    'nest_asyncio': 'import nest_asyncio; nest_asyncio.apply()',
    'nest_asyncio2': 'import nest_asyncio2; nest_asyncio2.apply()',
    # What nest_asyncio leaves of `asyncio.run`, where the package is not installed.
    'asyncio': 'import asyncio; run = asyncio.run; asyncio.run = lambda main, *, debug=False: run(main, debug=debug)',
}
IN_NOTEBOOK = """
import asyncio
from pydantic_ai import Agent
from pydantic_ai_a2a import A2AClient, serve

async def cell():
    with serve(Agent('test')) as server:
        async with A2AClient(server.url) as client:
            print((await client.send('hello')).text)

asyncio.run(cell())
"""


@pytest.mark.parametrize('module', PATCHES)
def test_serve_works_with_patched_nested_event_loops(module: str) -> None:
    if find_spec(module) is None:
        pytest.skip(f'{module} is not installed')
    ran = subprocess.run(
        [sys.executable, '-c', f'{PATCHES[module]}\n{IN_NOTEBOOK}'],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, 'success (no tool calls)\n'), ran.stderr


@pytest.mark.parametrize('path', ['', 'message:send'], ids=['JSON-RPC', 'HTTP+JSON'])
def test_http_2_upgrade_offer_is_served_except_by_httptools(path: str) -> None:
    params = {'message': {'messageId': 'm', 'role': 'ROLE_USER', 'parts': [{'text': 'hello'}]}}
    body = params if path else {'jsonrpc': '2.0', 'id': 1, 'method': 'SendMessage', 'params': params}
    offer = {'A2A-Version': '1.0', 'Connection': 'Upgrade, HTTP2-Settings', 'Upgrade': 'h2c', 'HTTP2-Settings': 'AAE'}
    app = to_a2a(Agent(TestModel()))
    with serve(app) as server:
        answer = httpx.post(f'{server.url}{path}', json=body, headers=offer, timeout=LIMIT)
    assert 'TASK_STATE_COMPLETED' in answer.text
    with serve(app, http='httptools') as server:
        dropped = httpx.post(f'{server.url}{path}', json=body, headers=offer, timeout=LIMIT)
    assert dropped.status_code == (400 if path else 200)
    assert 'drops the body of a request with the header Upgrade: serve with h11' in dropped.text


@pytest.mark.parametrize('own', [False, True], ids=['by run', 'by the program'])
def test_run_excludes_startup_objects_from_garbage_collection(own: bool) -> None:
    frozen: list[int] = []

    @asynccontextmanager
    async def stopping(app: Any) -> AsyncGenerator[None]:
        frozen.append(gc.get_freeze_count())
        raise OSError('The server ends at its start.')
        yield

    gc.unfreeze()  # the objects of the tests: see `pytest_collection`
    try:
        if own:
            gc.freeze()
        with suppress(SystemExit):
            run(to_a2a(Agent(TestModel()), lifespan=stopping), port=0, log_config=None)
        frozen.append(gc.get_freeze_count())
    finally:
        gc.freeze()
    assert frozen[0] > 10_000
    assert (frozen[1] > 10_000) is own


async def test_drain_before_start_has_no_effect() -> None:
    app = to_a2a(Agent(TestModel()))
    app.hosting.drain(asyncio.get_running_loop())
    assert app.hosting.accepting()


@pytest.mark.parametrize('app', [Agent(TestModel(custom_output_text='Hi')), to_a2a(Agent(TestModel()))])
def test_serve_accepts_an_agent_or_an_app(app: Any) -> None:
    with serve(app) as server:
        card = httpx.get(f'{server.url}.well-known/agent-card.json', timeout=LIMIT).json()
        assert repr(server) == f'<Server {server.url}>'
    assert card['supportedInterfaces'][0]['url'] == server.url


def test_serve_accepts_single_process_options() -> None:
    with serve(Agent(TestModel()), workers=1, reload=False) as server:
        assert httpx.get(f'{server.url}health/live', timeout=LIMIT).status_code == 200


async def test_run_in_running_event_loop_suggests_serve() -> None:
    with pytest.raises(RuntimeError, match=r'run\(\) cannot be called in a running event loop, .* use serve\(\)'):
        run(Agent(TestModel()))


def test_run_and_serve_refuse_invalid_options() -> None:
    with pytest.raises(ValueError, match=r'does not authenticate callers, and other machines can reach 0\.0\.0\.0'):
        run(Agent(TestModel()), host='0.0.0.0')
    with pytest.raises(TypeError, match=r'run\(\): port takes an integer, not the string'):
        run(Agent(TestModel()), port='80')  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"run\(\) takes no 'prot'\. Did you mean 'port'\?"):
        run(Agent(TestModel()), prot=80)
    with pytest.raises(TypeError, match=r"serve\(\) takes no 'log_levl'\. Did you mean 'log_level'\?"):
        serve(Agent(TestModel()), log_levl='info')
    with pytest.raises(TypeError, match=r'serve\(\): app takes a function or an Agent, not a string'):
        serve('joker:app')  # pyright: ignore[reportArgumentType]


def test_answer_time_limit_sets_tcp_user_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = to_a2a(Agent(TestModel()), limits=with_constants(Limits, answer_time=7))
    accepted: list[int] = []

    class Listener(socket.socket):
        def setsockopt(self, *option: Any) -> None:
            super().setsockopt(*option)
            accepted.extend(option[2:] if option[1] == socket.TCP_USER_TIMEOUT else ())

    monkeypatch.setattr(socket, 'socket', Listener)
    with serve(app):
        assert accepted == [24_000]


@pytest.mark.parametrize('mounted', [False, True])
def test_closing_server_fails_running_tasks_and_ends_streams(mounted: bool) -> None:
    async def never_answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return await asyncio.get_running_loop().create_future()

    app = to_a2a(Agent(FunctionModel(never_answer)), workers=Workers(drain_grace=0.01))
    parent = Starlette()
    mount(parent, '/agent', app)
    request = {'jsonrpc': '2.0', 'id': 1, 'method': 'SendStreamingMessage', 'params': {'message': message()}}

    with serve(parent if mounted else app) as server:
        url = f'{server.url}agent/' if mounted else server.url
        with httpx.stream('POST', url, json=request, timeout=LIMIT) as response:
            events = (json.loads(line[5:])['result'] for line in response.iter_lines() if line.startswith('data:'))
            states = [_state(next(events)), _state(next(events))]
            server.close()
            states += map(_state, events)
    assert states == ['TASK_STATE_SUBMITTED', 'TASK_STATE_WORKING', 'TASK_STATE_FAILED']


def _state(event: dict[str, dict[str, dict[str, str]]]) -> str:
    [update] = event.values()
    return update['status']['state']
