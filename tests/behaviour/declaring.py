"""Messages that declare tools, and an agent that calls the tools that prompts name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Messages
from pydantic_ai_a2a.conversion.schemas import CLIENT_TOOLS_URI

from ..client import message
from .stage import prompts

ALLOWED = Messages(client_tools=True)
WHERE: dict[str, Any] = {'type': 'object', 'properties': {'q': {'type': 'string'}}, 'required': ['q']}


def tool(name: str = 'search', **members: Any) -> dict[str, Any]:
    """A tool as clients write it."""
    return {'name': name, 'description': f'What {name} does.', 'inputSchema': WHERE, **members}


def declaring(text: str, *tools: Any, **fields: Any) -> dict[str, Any]:
    """A message that declares tools."""
    return message(text, metadata={CLIENT_TOOLS_URI: {'tools': [*tools]}}, **fields)


def declares(tools: Any, **fields: Any) -> dict[str, Any]:
    """A message with anything in the place of its tools."""
    return message('hello', metadata={CLIENT_TOOLS_URI: tools}, **fields)


def obey(messages: Sequence[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Calls the tools that the last prompt names, each with its argument; then says what it heard, and its tools."""
    parts = [part for sent in messages if isinstance(sent, ModelRequest) for part in sent.parts]
    last = max(n for n, part in enumerate(parts) if part.part_kind == 'user-prompt')
    returned = [f'{part.tool_name}={part.content}' for part in parts[last:] if isinstance(part, ToolReturnPart)]
    calls = [word.split(':') for word in prompts(messages)[-1].split() if ':' in word]
    if calls and not returned:
        return ModelResponse(
            parts=[ToolCallPart(name, {'q': q}, f'{name}-{len(messages)}-{n}') for n, (name, q) in enumerate(calls)]
        )
    tools = ','.join(sorted(tool.name for tool in info.function_tools)) or 'none'
    return ModelResponse(parts=[TextPart(' + '.join([*prompts(messages), *returned, f'tools: {tools}']))])


def agent_of(**options: Any) -> Agent[object, Any]:
    """An agent with a tool `look` of its own."""
    agent: Agent[object, Any] = Agent(FunctionModel(obey), name='Clerk', **options)

    @agent.tool_plain
    def look(q: str) -> str:
        return f'seen {q}'

    return agent


def result(call: Any, value: Any) -> dict[str, Any]:
    """The client's answer to a call of its tool."""
    return {'id': call['id'], 'decision': 'result', 'result': value}
