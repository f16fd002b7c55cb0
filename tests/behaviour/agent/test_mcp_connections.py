"""The server looks at the connections to MCP servers after a failure, once, and begins no run meanwhile."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import fastmcp
import pytest
from fastmcp.client.transports import FastMCPTransport
from mcp.server import MCPServer
from pydantic_ai import Agent, CancellationToken
from pydantic_ai.exceptions import RunCancelled
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a.server.agent.mcp_connections import MCPConnections

from ...app_client import state_of, texts
from ...serving import list_tasks, serving


class CountingServer(MCPServer):
    """An MCP server that counts the requests for its tools. The toolset itself keeps their first list."""

    lists = 0

    def __init__(self) -> None:
        super().__init__('server')
        self.looked_at = asyncio.Event()
        self.answers = asyncio.Event()
        self.answers.set()

    async def list_tools(self) -> list[Any]:
        self.lists += 1
        if self.lists > 1:
            self.looked_at.set()
            await self.answers.wait()
        return [*await super().list_tools()]


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the tool, and answer with what it says."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(last.model_response_str())])
    return ModelResponse(parts=[ToolCallPart('fail', {})])


async def test_mcp_connection_is_checked_once_after_tool_error() -> None:
    server, agent = CountingServer(), Agent(FunctionModel(model))

    @server.tool()
    def fail() -> None:
        raise ValueError('no')

    with agent.override(toolsets=[MCPToolset[object](FastMCPTransport(server))]):
        async with serving(agent) as client:
            assert 'Error' in texts(await client.send())[0]
            await server.looked_at.wait()
            for _ in range(1_000):
                await asyncio.sleep(0)
            assert server.lists == 2


async def test_run_waits_while_mcp_connection_is_checked() -> None:
    server, begun = CountingServer(), list[str]()

    def counted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        begun.append(info.function_tools[0].name)
        return model(messages, info)

    @server.tool()
    def fail() -> str:
        if len(begun) == 1:
            raise ValueError('no')
        return 'yes'

    async with serving(
        Agent(FunctionModel(counted), toolsets=[MCPToolset[object](FastMCPTransport(server))])
    ) as client:
        server.answers.clear()
        assert 'Error' in texts(await client.send())[0]
        await server.looked_at.wait()
        sending = asyncio.create_task(client.send())
        while not await list_tasks(client, state='working'):  # noqa: ASYNC110 - the worker tells nobody
            await asyncio.sleep(0)
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert len(begun) == 2  # the two requests of the first run
        server.answers.set()
        assert texts(await sending) == ['yes']


class Pinged(fastmcp.Client[Any]):
    """A client of an MCP server that answers pings, is too busy for them, or has died until the next connection.

    A dead server refuses further connections.
    """

    dead = False
    pings = 0

    def __init__(self, transport: Any, kind: str) -> None:
        super().__init__(transport)
        self.kind = kind

    async def __aenter__(self) -> Any:
        if self.dead and self.kind == 'dead':
            raise ConnectionError
        self.dead = False
        return await super().__aenter__()

    async def ping(self) -> bool:
        self.pings += 1
        if self.kind == 'busy':
            await asyncio.Event().wait()
        if self.dead:
            raise ConnectionError
        return True

    async def list_tools(self, *args: Any, **options: Any) -> Any:
        if self.dead:
            raise ConnectionError
        return await super().list_tools(*args, **options)


@pytest.mark.parametrize('kind', ['living', 'busy', 'dying'])
async def test_mcp_server_is_pinged_before_run_and_reconnected(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = CountingServer()

    @server.tool()
    def fail() -> str:
        return 'yes'

    connection = Pinged(FastMCPTransport(server), kind)
    async with serving(Agent(FunctionModel(model), toolsets=[MCPToolset[object](connection)])) as client:
        connection.dead = kind == 'dying'
        task = await client.send()
        assert (state_of(task), texts(task)) == ('COMPLETED', ['yes'])
        assert connection.pings == 1
    assert ('The agent was started anew, and its tasks go on.' in caplog.messages) is (kind == 'dying')


async def test_cancel_stops_run_waiting_for_dead_mcp_server() -> None:
    canceled = asyncio.Event()
    connection = Pinged(FastMCPTransport(CountingServer()), 'dead')
    agent = Agent(FunctionModel(model), toolsets=[MCPToolset[object](connection)])

    async def on_cancel(run: RunCancelled) -> None:
        canceled.set()

    async with serving(agent, on_cancel=on_cancel) as client:
        connection.dead = True
        sending = asyncio.create_task(client.send())
        while (await client.get('/health/ready')).json['components']['agent'] != 'reconnecting':
            pass
        [task] = await list_tasks(client, state='working')
        await client.call('CancelTask', {'id': task['id']})
        assert state_of(await sending) == 'CANCELED'
        await canceled.wait()


async def test_workflow_run_does_not_wait_for_mcp_connection() -> None:
    async def run() -> Any:
        raise LookupError('it has begun')

    connections = MCPConnections(Agent('test'))
    connections.renewing = True
    with pytest.raises(LookupError, match='it has begun'):
        await connections.counted(run, CancellationToken(), in_workflow=True)
