"""An agent whose tools and output function raise what ends a process. The message names the tool and the exception."""

from __future__ import annotations

import builtins
from typing import Any

from pydantic_ai import Agent, UserPromptPart
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import to_a2a


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the tool that the message names, such as `in_loop SystemExit`; answer `hello` with `hello`."""
    [*_, prompt] = [part.content for each in messages for part in each.parts if isinstance(part, UserPromptPart)]
    tool, _, kind = str(prompt).partition(' ')
    if not kind:
        return ModelResponse(parts=[TextPart(tool)])
    name = info.output_tools[0].name if tool == 'output' else tool
    return ModelResponse(parts=[ToolCallPart(name, {'kind': kind})])


def leave(kind: str) -> str:
    raise getattr(builtins, kind)('SECRET')


async def in_loop(kind: str) -> str:
    """Raise in the event loop."""
    return leave(kind)


def in_thread(kind: str) -> str:
    """Raise in a thread."""
    return leave(kind)


def ask(kind: str) -> Any:
    """Raise as an output function."""
    leave(kind)


agent = Agent(
    FunctionModel(model), name='exiting', tools=[in_loop, in_thread], output_type=[ask, str], end_strategy='exhaustive'
)
app = to_a2a(agent)
