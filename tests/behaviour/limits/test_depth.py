"""Values that an agent nests so deep that clients could not read its tasks."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import A2AClient, Progress, Results, to_a2a

from ...bounds import LIMIT
from ...client.agents.test_malformed_answers import nested
from ...tables import each_case


class Out(BaseModel):
    value: Any


def asking(depth: int) -> Agent[None, Any]:
    """An agent that calls a tool, which needs an approval, with a deep argument."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart('pay', {'value': nested(depth - 1)})])

    agent: Agent[None, Any] = Agent(FunctionModel(model), output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    def pay(value: Any) -> str:
        raise AssertionError

    return agent


def answering(depth: int) -> Agent[None, Any]:
    """An agent with a deep output."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {'value': nested(depth - 2)})])

    return Agent(FunctionModel(model), output_type=Out)


def calling(depth: int) -> Agent[None, Any]:
    """An agent that shows a call with a deep argument as progress."""

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        parts = [TextPart('done')] if len(messages) > 1 else [ToolCallPart('look', {'value': nested(depth - 1)})]
        return ModelResponse(parts=parts)

    agent: Agent[None, Any] = Agent(FunctionModel(model))

    @agent.tool_plain
    def look(value: Any) -> str:
        return 'nothing'

    return agent


@each_case(
    ('make', 'depth', 'state'),
    [
        (asking, 97, 'input-required'),
        (asking, 98, 'failed'),
        (asking, 190, 'failed'),
        (answering, 100, 'completed'),
        (answering, 101, 'failed'),
        (answering, 190, 'failed'),
        (calling, 100, 'completed'),
        (calling, 190, 'completed'),
    ],
)
async def test_tasks_with_deeply_nested_values_stay_readable(make: Any, depth: int, state: str) -> None:
    app = to_a2a(make(depth), results=Results(progress=Progress(tools=True)))
    async with asyncio.timeout(LIMIT), A2AClient(app) as client:
        *_, last = [update async for update in client.stream('hello')]
        assert last.state == state
        [listed] = [task async for task in client.list(include_artifacts=True, history_length=10)]
        assert (listed.state, bool(listed.text), bool(listed.waiting)) == (state, True, state == 'input-required')
