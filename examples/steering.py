"""An agent that takes what is said to it while it works.

Run it from this directory with `uvicorn steering:app`, begin with `count`, and send more messages to the task while it
is counting. The model needs no API key: it counts to five, and says in the end what it was told.
"""

from __future__ import annotations

import asyncio

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_a2a import Messages, to_a2a


def count(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stands in for a model."""
    parts = [part for message in messages for part in message.parts]
    told = [str(part.content) for part in parts if isinstance(part, UserPromptPart)]
    counted = sum(isinstance(part, ToolReturnPart) for part in parts)
    if counted < 5 and 'stop' not in told:
        return ModelResponse(parts=[ToolCallPart('wait', {})])
    return ModelResponse(parts=[TextPart(f'Counted to {counted}. I was told: {", ".join(told)}.')])


agent = Agent(FunctionModel(count), name='Counter', description='Counts to five, unless it is told to stop.')


@agent.tool_plain
async def wait() -> str:
    """Wait a second."""
    await asyncio.sleep(1)
    return 'waited'


app = to_a2a(agent, messages=Messages(while_working='steer'))
