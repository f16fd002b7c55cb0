"""An agent whose MCP server restarts, or is down for a while."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from itertools import repeat
from typing import Any

import pytest
from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import A2AApp, Messages, Workers, to_a2a

from ..client import LIMIT, Client, lifespan, message, state_of, texts
from ..reserved_ports import port_of, reserved_port
from .server import Process, process, rpc

RUNS = 20


@contextmanager
def mcp_server(port: int) -> Generator[Process]:
    app = 'tests.e2e.mcp_slow_server:app'
    with process('-m', 'uvicorn', app, '--port', str(port), packages=['pydantic_ai.mcp']) as running:
        assert running.url
        yield running


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Ask for the id of the server's process, and answer with the last result."""
    parts = [part for message in messages for part in message.parts]
    if isinstance(parts[-1], ToolReturnPart):
        return ModelResponse(parts=[TextPart(parts[-1].model_response_str())])
    [*_, prompt] = [str(part.content) for part in parts if part.part_kind == 'user-prompt']
    return ModelResponse(parts=[ToolCallPart('pid', {'waits': prompt == 'wait', 'fails': prompt == 'fail'})])


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


async def test_tasks_wait_for_an_mcp_server_that_restarts_beneath_twenty_runs() -> None:
    with reserved_port() as reserved:
        port = port_of(reserved)
        app = served(MCPToolset(f'http://127.0.0.1:{port}/mcp'))
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


async def test_an_agent_has_a_new_stdio_server_after_the_old_one_was_killed(caplog: pytest.LogCaptureFixture) -> None:
    transport = StdioTransport(sys.executable, ['-m', 'tests.e2e.mcp_slow_server'], keep_alive=False)
    app = served(MCPToolset(transport))
    async with asyncio.timeout(LIMIT), lifespan(app):
        client = Client(app)
        [first] = texts(await client.send('now'))
        assert 'Error' in texts(await client.send('fail'))[0]
        assert texts(await client.send('now')) == [first]
        os.kill(int(first), signal.SIGKILL)
        await client.send('now')  # its call fails, and the server finds out why
        await until(client, 'reconnecting')
        [second] = texts(await client.send('now'))
        assert second.isdigit()
        assert second != first
    assert [text for text in caplog.messages if 'is lost' in text]


async def test_direct_replies_are_refused_while_an_mcp_server_is_down() -> None:
    with reserved_port() as reserved:
        port = port_of(reserved)
        app = served(MCPToolset(f'http://127.0.0.1:{port}/mcp'), messages=Messages(reply='message'))
        async with asyncio.timeout(LIMIT), AsyncExitStack() as stack:
            with mcp_server(port) as first:
                await stack.enter_async_context(lifespan(app))
                client = Client(app)
                first.signal(signal.SIGKILL)
                await first.ended()
            answer = await client.post(sent('now'))
            assert answer.status == 200
            await until(client, 'reconnecting')
            answer = await client.post(sent('now'))
            assert (answer.status, answer.headers['retry-after']) == (503, '5')


async def test_a_call_is_refused_as_busy_while_an_mcp_server_has_not_started() -> None:
    with reserved_port() as reserved:
        app = served(MCPToolset(f'http://127.0.0.1:{port_of(reserved)}/mcp'))
        async with asyncio.timeout(LIMIT), lifespan(app):
            answer = await Client(app).post(sent('now'))
            assert (answer.status, answer.headers['retry-after']) == (503, '5')
