"""Agents under test. Their models answer at once, so that the time of a task is the time of the server.

The models state their token usage: else Pydantic AI counts the words of the whole history for each answer.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.usage import RequestUsage

TEXT = ('Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor. ' * 3)[:200]
DELTAS = 50
TIMED_DELTAS, BEFORE, PAUSE = 20, 1.0, 0.05
"""Deltas of the agent `timed`, seconds before the first one, and seconds between two."""
PIECES = {'fill': (64, 4096), 'flood': (500, 20_000)}
"""Number and characters of the deltas that a prompt asks for."""


def answer(*parts: Any) -> ModelResponse:
    return ModelResponse(parts=[*parts], usage=RequestUsage(input_tokens=50, output_tokens=50))


def prompt(messages: list[ModelMessage]) -> str:
    parts = [part for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
    return str(parts[-1].content)


async def text(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return answer(TextPart(TEXT))


async def deltas(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    step = len(TEXT) // DELTAS
    for start in range(0, len(TEXT), step):
        yield TEXT[start : start + step]


def plain() -> Agent[None, Any]:
    return Agent(FunctionModel(text), name='benchmark')


def streams() -> Agent[None, Any]:
    return Agent(FunctionModel(text, stream_function=deltas), name='benchmark')


def tool() -> Agent[None, Any]:
    """One tool call, then the text."""

    def returned(messages: list[ModelMessage]) -> bool:
        return any(part.part_kind == 'tool-return' for part in messages[-1].parts)

    async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return answer(TextPart(TEXT) if returned(messages) else ToolCallPart('add', {'a': 1, 'b': 2}, 'call'))

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if not returned(messages):
            yield {0: DeltaToolCall(name='add', json_args='{"a": 1, "b": 2}', tool_call_id='call')}
            return
        async for delta in deltas(messages, info):
            yield delta

    agent: Agent[None, Any] = Agent(FunctionModel(model, stream_function=stream), name='benchmark')

    @agent.tool_plain
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return agent


class Report(BaseModel):
    """The result of the agent `structured`."""

    title: str
    score: int
    tags: list[str]
    summary: str


REPORT = {'title': 'Report', 'score': 7, 'tags': ['a', 'b', 'c'], 'summary': TEXT[:120]}


def structured() -> Agent[None, Any]:
    """An output tool."""

    async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return answer(ToolCallPart(info.output_tools[0].name, REPORT, 'call'))

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        yield {0: DeltaToolCall(name=info.output_tools[0].name, json_args=json.dumps(REPORT), tool_call_id='call')}

    return Agent(FunctionModel(model, stream_function=stream), output_type=Report, name='benchmark')


def large() -> Agent[None, Any]:
    """Deltas of the number and size that the prompt asks for."""

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        count, size = PIECES.get(prompt(messages), (1, 10))
        for _ in range(count):
            yield 'x' * size

    return Agent(FunctionModel(text, stream_function=stream), name='benchmark')


def timed(*, stuck: bool = False) -> Agent[None, Any]:
    """Deltas, and the answer to the prompt `stuck`, are the time at which the model made them, in nanoseconds.

    A stuck agent never answers the prompt `stuck`.
    """

    async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if prompt(messages) == 'stuck' and stuck:
            await asyncio.Event().wait()
        return answer(TextPart(str(time.time_ns())))

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        await asyncio.sleep(BEFORE)
        for _ in range(TIMED_DELTAS):
            yield f'{time.time_ns()} '
            await asyncio.sleep(PAUSE)

    return Agent(FunctionModel(model, stream_function=stream), name='benchmark')


AGENTS = {
    'plain': plain,
    'streams': streams,
    'deltas': streams,
    'tool': tool,
    'structured': structured,
    'large': large,
    'timed': timed,
    'stuck': lambda: timed(stuck=True),
}
