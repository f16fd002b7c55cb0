"""An agent whose tools wait for somebody outside, and what clients answer."""

from __future__ import annotations

from typing import Any

from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import CallDeferred
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from ..client import message
from .stage import prompts

ROW = '`DeferredToolRequests`'
CALLS: dict[str, list[ToolCallPart]] = {
    'delete': [ToolCallPart('delete', {'path': 'a'}, 'c1')],
    'delete two': [ToolCallPart('delete', {'path': 'a'}, 'c1'), ToolCallPart('delete', {'path': 'b'}, 'c2')],
    'delete and look': [ToolCallPart('look', {}, 'c1'), ToolCallPart('delete', {'path': 'a'}, 'c2')],
    'ask': [ToolCallPart('ask', {'about': 'size'}, 'q1')],
    'fetch': [ToolCallPart('fetch', {'url': 'u'}, 'x1')],
    'mixed': [
        ToolCallPart('fetch', {'url': 'u'}, 'x1'),
        ToolCallPart('delete', {'path': 'a'}, 'c1'),
        ToolCallPart('ask', {'about': 'size'}, 'q1'),
        ToolCallPart('delete', {'path': 'b'}, 'c2'),
    ],
}


def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Calls what `CALLS` has for a prompt; answers with all prompts, and what tools returned for the last of them."""
    told = [part for sent in messages if isinstance(sent, ModelRequest) for part in sent.parts]
    last = max(n for n, part in enumerate(told) if isinstance(part, UserPromptPart))
    returned = [str(part.content) for part in told[last:] if isinstance(part, ToolReturnPart)]
    prompt = prompts(messages)[-1]
    if prompt in CALLS and not returned:
        return ModelResponse(parts=[*CALLS[prompt]])
    return ModelResponse(parts=[TextPart(' + '.join([*prompts(messages), *returned]))])


class Tools:
    """An agent with one tool of each kind, and which calls were carried out."""

    def __init__(self, **options: Any) -> None:
        self.deleted: list[tuple[str, Any]] = []
        self.agent: Agent[object, Any] = Agent(FunctionModel(model), **options)
        self.agent.tool(requires_approval=True)(self.delete)
        self.agent.tool_plain(self.look)
        self.agent.tool_plain(self.ask)
        self.agent.tool_plain(self.fetch)

    async def delete(self, ctx: RunContext[object], path: str) -> str:
        self.deleted.append((path, ctx.tool_call_approved))
        return f'deleted {path}'

    async def look(self) -> str:
        return 'looked'

    async def ask(self, about: str) -> str:
        raise CallDeferred({'about': about}, kind='question')

    async def fetch(self, url: str) -> str:
        raise CallDeferred


def answers(task: dict[str, Any], *items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A message that answers calls of a task."""
    return message(parts=[{'data': {'callAnswers': [*items]}}], taskId=task['id'], **fields)


def approve(call_id: str = 'c1', **fields: Any) -> dict[str, Any]:
    return {'id': call_id, 'decision': 'approve', **fields}


def asked(task: dict[str, Any]) -> list[Any]:
    """What a task waits with."""
    [data] = [part['data'] for part in task['status']['message']['parts'] if 'data' in part]
    return data['pending']
