"""Tools of other processes: remote agents and MCP servers."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.toolsets import DynamicToolset

from pydantic_ai_a2a import A2A, A2AClient, A2AToolset, to_a2a

from ....agents import scripted_model, user_prompts
from ....app_client import lifespan
from ....bounds import LIMIT
from ...pending_calls import ApprovalAgent, answer_message, approve, pending_calls
from . import ScenarioRun, add_table, call, echo, scenario


@asynccontextmanager
async def remote_app() -> AsyncGenerator[Any]:
    """An app that deletes a path, once somebody approves it."""
    app = to_a2a(ApprovalAgent(name='remote').agent)
    async with lifespan(app):
        yield app


def passes(messages: list[ModelMessage], info: AgentInfo) -> Any:
    """Pass the prompt on to the only tool."""
    [tool] = [tool.name for tool in info.function_tools]
    return call(tool, message=user_prompts(messages)[-1])


def dynamic(app: Any) -> DynamicToolset[Any]:
    def toolset(ctx: RunContext[Any]) -> A2AToolset[Any]:
        return A2AToolset(app, context='call')

    return DynamicToolset(toolset, id='remote')


FORMS: dict[str, Callable[[Any], dict[str, Any]]] = {
    'in a dynamic toolset': lambda app: {'toolsets': [dynamic(app)]},
    'in a toolset': lambda app: {'toolsets': [A2AToolset(app)]},
    'in a capability': lambda app: {'capabilities': [A2A(app)]},
}


async def ask_and_answer(play: ScenarioRun, form: Callable[[Any], dict[str, Any]]) -> None:
    async with remote_app() as app, play.serving(play.agent(scripted_model(passes, echo), **form(app))) as client:
        await client.send('hello')
        task = await client.send('delete')
        await client.send(answer_message(task, approve(pending_calls(task)[0]['id'])))


add_table('a remote agent', FORMS, ask_and_answer)


@scenario
async def a_function_tool_calls_a_remote_agent(play: ScenarioRun) -> None:
    async with remote_app() as app:

        async def ask(message: str) -> str:
            async with A2AClient(app) as client:
                return (await client.send(message)).text or ''

        async with play.serving(play.agent(scripted_model(passes, echo), tools=[ask])) as client:
            await client.send('hello')


@scenario
async def an_mcp_server_gives_its_tools(play: ScenarioRun) -> None:
    from fastmcp.client.transports import StdioTransport  # which takes seconds to import
    from pydantic_ai.mcp import MCPToolset

    def told(messages: list[ModelMessage], info: AgentInfo) -> str:
        return re.sub(r'\d{2,}', 'pid', echo(messages, info))  # each place has a process of its own

    server = StdioTransport(sys.executable, ['-m', 'tests.e2e.mcp_servers'])
    model = scripted_model(call('pid', 'c1'), call('pid', 'c2', fails=True), call('pid', 'c3', waits='no bool'), told)
    toolset = MCPToolset(server, id='mcp', init_timeout=LIMIT)
    async with play.serving(play.agent(model, toolsets=[toolset]), on_complete=None) as client:
        await client.send('hello')
