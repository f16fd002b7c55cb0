"""A travel desk whose runs are workflows of Temporal. Its model is scripted, so it needs no API key."""

from __future__ import annotations

import asyncio
import os

from pydantic_ai import Agent
from pydantic_ai.durable_exec.temporal import TemporalDurability
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_a2a import Workers, to_a2a
from pydantic_ai_a2a.engines.temporal import Temporal

TOOLS = ('find_trains', 'book_hotel')


def plan(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call one tool after the other, and answer with their results."""
    parts = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    if len(parts) < len(TOOLS):
        return ModelResponse(parts=[ToolCallPart(TOOLS[len(parts)], {'city': 'Porto'})])
    return ModelResponse(parts=[TextPart('; '.join(str(part.content) for part in parts))])


agent = Agent(FunctionModel(plan), name='travel', capabilities=[TemporalDurability()])


def note(call: str) -> None:
    """Write down each call of a tool."""
    with open('calls.txt', 'a') as calls:
        calls.write(f'{call}\n')


@agent.tool_plain
async def find_trains(city: str) -> str:
    """Find the trains to a city."""
    note('find_trains')
    return f'two trains to {city}'


@agent.tool_plain
async def book_hotel(city: str) -> str:
    """Book a hotel, which takes some seconds."""
    note('book_hotel')
    await asyncio.sleep(4)
    return f'a room in {city}'


app = to_a2a(
    agent,
    backend='sqlite:///travel.db',
    workers=Workers(lease=2),  # another server takes over a task after two seconds
    # The workflows run in `pydantic-ai-a2a worker --engine travel:app`.
    engine=Temporal(os.environ.get('TEMPORAL', 'localhost:7233'), task_queue='travel', worker=False),
)
