"""An MCP server that is called on behalf of the caller, and one that restarts or is down for a while."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager, suppress
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from cryptography.fernet import Fernet
from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import A2AApp, Messages, Workers, to_a2a

from ..app_client import Client, lifespan, message, state_of, texts
from ..behaviour.pending_calls import answer_message, approve, pending_calls
from ..reserved_ports import port_of, reserved_port
from .mcp_servers import BOSS, MARK, TOKENS
from .server import LIMIT, Process, process, rpc

ENCRYPTED = "b'gAAAA"
"""The beginning of each stored credential."""
SECRETS = (*TOKENS.values(), BOSS, MARK, 'secret-of-the-agent')


@contextmanager
def server(app: str, *options: str, env: Mapping[str, str]) -> Generator[Process]:
    """A process with uvicorn. The processes share one import of the packages for MCP, which takes seconds."""
    with process('-m', 'uvicorn', app, '--port', '0', *options, env=env, packages=['pydantic_ai.mcp']) as running:
        assert running.url
        yield running


@pytest.fixture(scope='module')
def mail() -> Generator[Process]:
    with server('tests.e2e.mcp_servers:app', env={}) as running:
        yield running


def agent(env: Mapping[str, str]) -> AbstractContextManager[Process]:
    """A process with the agent and its worker."""
    return server('tests.e2e.mcp_agent:make_app', '--factory', '--log-level', 'debug', env=env)


async def call(agent: Process, token: str, method: str, **params: Any) -> Any:
    headers = {'A2A-Version': '1.0', 'Authorization': f'Bearer {token}'}
    async with httpx.AsyncClient(timeout=LIMIT, verify=False) as http:
        answer = (await http.post(agent.url, json=rpc(method, **params), headers=headers)).json()
    assert 'result' in answer, answer
    return answer['result']


async def ended(agent: Process, token: str, task_id: str) -> dict[str, Any]:
    """Return a task once it has ended."""
    headers = {'A2A-Version': '1.0', 'Authorization': f'Bearer {token}'}
    body = rpc('SubscribeToTask', id=task_id)
    async with (
        httpx.AsyncClient(timeout=LIMIT, verify=False) as http,
        http.stream('POST', agent.url, json=body, headers=headers) as events,
    ):
        await events.aread()
    return await call(agent, token, 'GetTask', id=task_id)


async def seen_by(mail: Process) -> dict[str, list[str]]:
    async with httpx.AsyncClient(timeout=LIMIT, verify=False) as http:
        return (await http.get(f'{mail.url}seen')).json()


async def notified(mail: Process, *task_ids: str) -> None:
    """Wait until the webhook has a notification of each task."""
    async with asyncio.timeout(LIMIT):
        told = ''
        while any(task_id not in told for task_id in task_ids):
            told = json.dumps((await seen_by(mail))['hooks'])


async def dump(url: str) -> str:
    """Return all rows of all tables."""
    connection = await asyncpg.connect(url)
    try:
        names = await connection.fetch(
            "SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables WHERE schemaname = 'a2a'"
        )
        tables = [await connection.fetch(f'SELECT * FROM {row["name"]}') for row in names]
    finally:
        await connection.close()
    return '\n'.join(repr([*row.values()]) for rows in tables for row in rows)


def export(env: dict[str, str], owner: str) -> str:
    """Return the exported data of a caller."""
    command = ('-m', 'pydantic_ai_a2a', 'export', '--backend', env['A2A_TEST_BACKEND'], '--namespace', 'inbox')
    with process(*command, '--caller', owner) as running:
        assert running.exit_code() == 0, running.output
        return running.output


async def test_mcp_server_sees_caller_without_leaked_secrets(mail: Process, postgres_url: str, tmp_path: Path) -> None:
    env = {
        'A2A_TEST_BACKEND': postgres_url,
        'MAIL': mail.url,
        'SPANS': str(tmp_path / 'spans'),
        'KEY': Fernet.generate_key().decode(),
    }
    tasks: dict[str, Any] = {}
    with agent(env) as first:
        for user, token in TOKENS.items():
            sent = await call(first, token, 'SendMessage', message=message('Clean up my mail.'))
            tasks[user] = sent['task']
            assert tasks[user]['status']['state'] == 'TASK_STATE_INPUT_REQUIRED'
            target = {'taskId': tasks[user]['id'], 'url': f'{mail.url}hook'}
            await call(first, token, 'CreateTaskPushNotificationConfig', **target)
        assert (await seen_by(mail))['seen'] == ['ann reads', 'bob reads']
        paused = await dump(postgres_url)
        first.signal(signal.SIGKILL)
        assert first.exit_code() == -signal.SIGKILL
    with agent(env) as second:
        ends: list[str] = []
        for task in tasks.values():
            [pending] = pending_calls(task)
            decision = answer_message(task, approve(pending['id']))
            await call(second, BOSS, 'SendMessage', message=decision)
        for user, token in TOKENS.items():
            task = await ended(second, token, tasks[user]['id'])
            ends.append(task['artifacts'][0]['parts'][0]['text'])
        assert ends == [f'a mail for {user}, then no mail for {user}' for user in TOKENS]
        over = await dump(postgres_url)
        await notified(mail, *(task['id'] for task in tasks.values()))
    assert [text.count(ENCRYPTED) for text in (paused, over)] == [2, 0]
    saw = await seen_by(mail)
    assert saw['seen'] == ['ann reads', 'bob reads', 'ann deletes', 'bob deletes']
    assert [token.split('-')[3] for token in saw['granted']] == ['ann', 'bob']
    places = {
        'database in the pause': paused,
        'database after the end': over,
        'log of the first process': first.output,
        'log of the second process': second.output,
        'spans': (tmp_path / 'spans').read_text(),
        'export': export(env, 'ann'),
        'notifications': json.dumps(saw['hooks']),
    }
    for place, text in places.items():
        assert tasks['ann']['id'] in text, f'{place} is not searched'
        assert [secret for secret in SECRETS if secret in text] == [], place


# --- servers that restart, or are down for a while

RUNS = 20


def mcp_server(port: int) -> AbstractContextManager[Process]:
    return server('tests.e2e.mcp_servers:pids', '--port', str(port), env={})


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Ask for the id of the server's process, and answer with the last result."""
    parts = [part for message in messages for part in message.parts]
    if isinstance(parts[-1], ToolReturnPart):
        return ModelResponse(parts=[TextPart(parts[-1].model_response_str())])
    [*_, prompt] = [str(part.content) for part in parts if part.part_kind == 'user-prompt']
    if prompt == 'no tool':
        return ModelResponse(parts=[TextPart('done')])
    kinds = {'wait': 'waits', 'fail': 'fails', 'die': 'dies'}
    return ModelResponse(parts=[ToolCallPart('pid', {kinds[prompt]: True} if prompt in kinds else {})])


def sent(text: str) -> bytes:
    return json.dumps(rpc('SendMessage', message=message(text))).encode()


def served(toolset: MCPToolset[Any], **options: Any) -> A2AApp:
    app = to_a2a(Agent(FunctionModel(model), toolsets=[toolset]), workers=Workers(running=RUNS), **options)
    app.hosting.pauses = partial(repeat, 0.1)
    return app


async def agent_state(client: Client) -> str:
    return (await client.get('/health/ready')).json['components']['agent']


async def until(client: Client, state: str) -> None:
    """Wait for a state of the agent; each request is a turn of the event loop."""
    while await agent_state(client) != state:
        pass


async def test_task_waits_for_restarting_mcp_server() -> None:
    with reserved_port() as reserved:
        port = port_of(reserved)
        app = served(MCPToolset(f'http://127.0.0.1:{port}/mcp', init_timeout=LIMIT))
        with mcp_server(port) as first:
            stack = AsyncExitStack()
            await stack.enter_async_context(asyncio.timeout(LIMIT))
            await stack.enter_async_context(lifespan(app))
            client = Client(app)
            assert texts(await client.send('now')) == [str(first.pid)]
            runs = [asyncio.create_task(client.send('wait')) for _ in range(RUNS)]
            await asyncio.to_thread(first.wait_for, '(?s)' + 'a call waits.*' * RUNS)
            first.signal(signal.SIGKILL)
            await first.ended()
        async with stack:
            for run in runs:  # each has an end; the model of some gave an answer in spite of the failed call
                assert state_of(await run) in ('COMPLETED', 'FAILED')
            await until(client, 'reconnecting')
            assert (await client.get('/health/ready')).status == 503
            waiting = asyncio.create_task(client.send('now'))
            with mcp_server(port) as second:
                task = await waiting
                assert (state_of(task), texts(task)) == ('COMPLETED', [str(second.pid)])
                assert await agent_state(client) == 'ok'


@pytest.mark.parametrize(('death', 'keep_alive'), [('killed', True), ('killed', False), ('of a call', True)])
async def test_dead_stdio_server_is_replaced_for_next_task(
    death: str, keep_alive: bool, caplog: pytest.LogCaptureFixture
) -> None:
    transport = StdioTransport(sys.executable, ['-m', 'tests.e2e.mcp_servers'], keep_alive=keep_alive)
    app = served(MCPToolset(transport, init_timeout=LIMIT))
    async with asyncio.timeout(LIMIT), lifespan(app):
        client = Client(app)
        [server] = texts(await client.send('now'))
        assert 'Error' in texts(await client.send('fail'))[0]
        assert texts(await client.send('now')) == [server]
        for _ in range(5):
            if death == 'killed':
                os.kill(int(server), signal.SIGKILL)
                await gone(int(server))
            else:
                await client.send('die')
            before, [server] = server, texts(await client.send('now'))
            assert server.isdigit()
            assert server != before
    assert [text for text in caplog.messages if 'is lost' in text]


async def gone(pid: int) -> None:
    """Wait until a process that the event loop has started has ended."""
    with suppress(ProcessLookupError):
        while True:
            os.kill(pid, 0)
            await asyncio.sleep(0)


async def test_paused_mcp_server_delays_no_run_without_tools() -> None:
    with reserved_port() as reserved, mcp_server(port_of(reserved)) as running:
        app = served(MCPToolset(f'http://127.0.0.1:{port_of(reserved)}/mcp', init_timeout=LIMIT))
        async with asyncio.timeout(LIMIT), lifespan(app):
            client = Client(app)
            assert texts(await client.send('now')) == [str(running.pid)]
            running.stop()
            waiting = asyncio.create_task(client.send('now'))
            await client.send('no tool')
            running.signal(signal.SIGCONT)
            assert texts(await waiting) == [str(running.pid)]


async def test_direct_reply_without_mcp_server_gets_503() -> None:
    with reserved_port() as reserved:
        port = port_of(reserved)
        app = served(MCPToolset(f'http://127.0.0.1:{port}/mcp', init_timeout=LIMIT), messages=Messages(reply='message'))
        async with asyncio.timeout(LIMIT), AsyncExitStack() as stack:
            with mcp_server(port) as first:
                await stack.enter_async_context(lifespan(app))
                client = Client(app)
                assert (await client.post(sent('now'))).status == 200
                first.signal(signal.SIGKILL)
                await first.ended()
            for _ in range(2):
                answer = await client.post(sent('now'))
                assert (answer.status, answer.headers['retry-after']) == (503, '5')
                assert await agent_state(client) == 'reconnecting'


async def test_request_before_mcp_server_start_gets_503() -> None:
    with reserved_port() as reserved:
        app = served(MCPToolset(f'http://127.0.0.1:{port_of(reserved)}/mcp', init_timeout=LIMIT))
        async with asyncio.timeout(LIMIT), lifespan(app):
            answer = await Client(app).post(sent('now'))
            assert (answer.status, answer.headers['retry-after']) == (503, '5')
