"""Two servers whose agents call each other: nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from os import environ
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import A2AApp, A2AClient, RemoteAgent, Workers, to_a2a

from ..bounds import LIMIT
from ..reserved_ports import port_of, reserved_port
from .server import Process, process


async def ask(url: str, text: str) -> str:
    """Ask an agent as a client, and return the answer, or the state of a task without an answer."""
    async with A2AClient(url, timeout=LIMIT) as client:
        task: Any = (await client.send(text)).outcome
    [artifact] = task.get('artifacts') or [{'parts': [{'text': task['status']['state']}]}]
    return artifact['parts'][0]['text']


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the peer as often as the message says: `3` calls with `2`."""
    parts = [part for message in messages for part in message.parts]
    if isinstance(parts[-1], ToolReturnPart):
        return ModelResponse(parts=[TextPart(f'{parts[-1].content}')])
    [*_, rest] = [int(str(part.content)) for part in parts if part.part_kind == 'user-prompt']
    if rest == 0:
        return ModelResponse(parts=[TextPart('done')])
    return ModelResponse(parts=[ToolCallPart('ask_agent' if rest % 2 else 'ask_client', {'rest': rest - 1})])


agent = Agent(FunctionModel(model), name='chain')


@agent.tool_plain
async def ask_agent(rest: int) -> str:
    """Ask the peer as an agent."""
    return (await RemoteAgent(A2AClient(environ['PEER'], timeout=LIMIT)).run(str(rest))).output


@agent.tool_plain
async def ask_client(rest: int) -> str:
    """Ask the peer as a client."""
    return await ask(environ['PEER'], str(rest))


def make_app() -> A2AApp:
    """Serve the agent in a process of its own. The environment names the peer."""
    return to_a2a(agent, workers=Workers(running=4))


@contextmanager
def server(port: int, peer: int) -> Generator[Process]:
    app = ('tests.e2e.test_mutual_calls:make_app', '--factory')
    env = {'PEER': f'http://127.0.0.1:{peer}/'}
    with process('-m', 'uvicorn', *app, '--port', str(port), env=env) as running:
        assert running.url
        yield running


@pytest.fixture(scope='module')
def servers() -> Generator[tuple[Process, Process]]:
    with reserved_port() as one, reserved_port() as other:
        ports = port_of(one), port_of(other)
        with server(*ports) as first, server(*reversed(ports)) as second:
            yield first, second


async def test_agents_calling_each_other_do_not_deadlock(servers: tuple[Process, Process]) -> None:
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
        chains = [group.create_task(ask(servers[n % 2].url, '3')) for n in range(40)]
        plain = [group.create_task(ask(each.url, '0')) for each in servers]
    assert [each.result() for each in (*chains, *plain)] == ['done'] * 42


async def test_endless_agent_call_cycle_is_stopped(servers: tuple[Process, Process]) -> None:
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
        circles = [group.create_task(ask(servers[n % 2].url, '50')) for n in range(8)]
        plain = [group.create_task(ask(each.url, '0')) for each in servers]
    assert [each.result() for each in plain] == ['done'] * 2
    assert 'done' not in [each.result() for each in circles]
    assert 'more than 10 agents' in servers[0].output
