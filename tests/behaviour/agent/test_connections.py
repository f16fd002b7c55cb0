"""The server looks at the connections to MCP servers after a failure, once."""

from __future__ import annotations

import asyncio
from typing import Any

from fastmcp.client.transports import FastMCPTransport
from mcp.server import MCPServer
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import to_a2a

from ...client import LIMIT, Client, lifespan, texts


class Server(MCPServer):
    """An MCP server that counts the requests for its tools. The toolset itself keeps their first list."""

    lists = 0

    def __init__(self) -> None:
        super().__init__('server')
        self.looked_at = asyncio.Event()

    async def list_tools(self) -> list[Any]:
        self.lists += 1
        if self.lists > 1:
            self.looked_at.set()
        return [*await super().list_tools()]


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the tool, and answer with what it says."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(last.model_response_str())])
    return ModelResponse(parts=[ToolCallPart('fail', {})])


async def test_the_server_looks_once_at_a_connection_of_an_override_after_its_tool_has_failed() -> None:
    server, agent = Server(), Agent(FunctionModel(model))

    @server.tool()
    def fail() -> None:
        raise ValueError('no')

    app = to_a2a(agent)
    with agent.override(toolsets=[MCPToolset[object](FastMCPTransport(server))]):
        async with lifespan(app), asyncio.timeout(LIMIT):
            assert 'Error' in texts(await Client(app).send())[0]
            await server.looked_at.wait()
            for _ in range(1_000):
                await asyncio.sleep(0)
            assert server.lists == 2
