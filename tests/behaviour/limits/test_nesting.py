"""Values that an agent nests so deep that clients could not read its tasks."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ToolCallPart

from pydantic_ai_a2a import A2AClient, Progress, Results, to_a2a

from ...agents import call_output_tool, scripted_model
from ...bounds import LIMIT
from ...cases import each_case
from ...client.agents.test_malformed_answers import nested


class Out(BaseModel):
    value: Any


def deep_approval_agent(depth: int) -> Agent[None, Any]:
    """An agent that calls a tool, which needs an approval, with a deep argument."""

    model = scripted_model(ToolCallPart('pay', {'value': nested(depth - 1)}))
    agent: Agent[None, Any] = Agent(model, output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    def pay(value: Any) -> str:
        raise AssertionError

    return agent


def deep_output_agent(depth: int) -> Agent[None, Any]:
    """An agent with a deep output."""
    return Agent(scripted_model(call_output_tool(value=nested(depth - 2))), output_type=Out)


def deep_progress_agent(depth: int) -> Agent[None, Any]:
    """An agent that shows a call with a deep argument as progress."""
    agent: Agent[None, Any] = Agent(scripted_model(ToolCallPart('look', {'value': nested(depth - 1)}), 'done'))

    @agent.tool_plain
    def look(value: Any) -> str:
        return 'nothing'

    return agent


@each_case(
    ('make', 'depth', 'state'),
    [
        (deep_approval_agent, 97, 'input-required'),
        (deep_approval_agent, 98, 'failed'),
        (deep_approval_agent, 190, 'failed'),
        (deep_output_agent, 100, 'completed'),
        (deep_output_agent, 101, 'failed'),
        (deep_output_agent, 190, 'failed'),
        (deep_progress_agent, 100, 'completed'),
        (deep_progress_agent, 190, 'completed'),
    ],
)
async def test_tasks_with_deeply_nested_values_stay_readable(make: Any, depth: int, state: str) -> None:
    app = to_a2a(make(depth), results=Results(progress=Progress(tools=True)))
    async with asyncio.timeout(LIMIT), A2AClient(app) as client:
        *_, last = [update async for update in client.stream('hello')]
        assert last.state == state
        [listed] = [task async for task in client.list(include_artifacts=True, history_length=10)]
        assert (listed.state, bool(listed.text), bool(listed.waiting)) == (state, True, state == 'input-required')
