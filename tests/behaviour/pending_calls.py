"""Agents whose tools wait for somebody outside, tools that clients declare, and what clients answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

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

from pydantic_ai_a2a import Messages
from pydantic_ai_a2a.wire.extensions.client_tools import CLIENT_TOOLS_URI

from ..agents import user_prompts
from ..app_client import message

DEFERRED_ROW = '`DeferredToolRequests`'
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


def call_by_prompt(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Calls what `CALLS` has for a prompt; answers with all prompts, and what tools returned for the last of them."""
    told = [part for sent in messages if isinstance(sent, ModelRequest) for part in sent.parts]
    last = max(n for n, part in enumerate(told) if isinstance(part, UserPromptPart))
    returned = [str(part.content) for part in told[last:] if isinstance(part, ToolReturnPart)]
    prompt = user_prompts(messages)[-1]
    if prompt in CALLS and not returned:
        return ModelResponse(parts=[*CALLS[prompt]])
    return ModelResponse(parts=[TextPart(' + '.join([*user_prompts(messages), *returned]))])


class ApprovalAgent:
    """An agent with one tool of each kind, and which calls were carried out."""

    def __init__(self, **options: Any) -> None:
        self.deleted: list[tuple[str, Any]] = []
        options.setdefault('name', 'agent')
        self.agent: Agent[object, Any] = Agent(FunctionModel(call_by_prompt), **options)
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


def answer_message(task: dict[str, Any], *items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A message that answers calls of a task, which the items name by the ids of the tool calls."""
    return message_with_call_ids(task, [{'data': {'callAnswers': [*items]}}], **fields)


def message_with_call_ids(task: dict[str, Any], parts: list[Any], **fields: Any) -> dict[str, Any]:
    """A message to a task with these parts, in which the ids of waiting tool calls become the ids for answers."""
    shown = {call.get('toolCallId'): call['id'] for call in pending_calls(task)} if 'message' in task['status'] else {}
    return message(parts=_exchanged(parts, shown), taskId=task['id'], **fields)


def _exchanged(value: Any, ids: Mapping[str | None, str]) -> Any:
    if isinstance(value, list):
        return [_exchanged(item, ids) for item in cast('list[Any]', value)]
    if not isinstance(value, dict):
        return value
    members = {name: _exchanged(item, ids) for name, item in cast('dict[str, Any]', value).items()}
    if isinstance(members.get('id'), str):
        members['id'] = ids.get(members['id'], members['id'])
    return members


def approve(call_id: str = 'c1', **fields: Any) -> dict[str, Any]:
    return {'id': call_id, 'decision': 'approve', **fields}


def pending_calls(task: dict[str, Any]) -> list[Any]:
    """What a task waits with."""
    [data] = [part['data'] for part in task['status']['message']['parts'] if 'data' in part]
    return data['pending']


def pending_call_ids(task: dict[str, Any]) -> list[str]:
    """The ids of the tool calls that a task waits with."""
    return [call['toolCallId'] for call in pending_calls(task)]


# --- tools that clients declare -------------------------------------------------------------------------------------

WITH_CLIENT_TOOLS = Messages(client_tools=True)
SEARCH_SCHEMA: dict[str, Any] = {'type': 'object', 'properties': {'q': {'type': 'string'}}, 'required': ['q']}


def client_tool(name: str = 'search', **members: Any) -> dict[str, Any]:
    """A tool as clients write it."""
    return {'name': name, 'description': f'What {name} does.', 'inputSchema': SEARCH_SCHEMA, **members}


def message_with_tools(text: str, *tools: Any, **fields: Any) -> dict[str, Any]:
    """A message that declares tools."""
    return message(text, metadata={CLIENT_TOOLS_URI: {'tools': [*tools]}}, **fields)


def message_with_tools_metadata(tools: Any, **fields: Any) -> dict[str, Any]:
    """A message with anything in the place of its tools."""
    return message('hello', metadata={CLIENT_TOOLS_URI: tools}, **fields)


def call_named_tools(messages: Sequence[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Calls the tools that the last prompt names, each with its argument; then says what it heard, and its tools."""
    parts = [part for sent in messages if isinstance(sent, ModelRequest) for part in sent.parts]
    last = max(n for n, part in enumerate(parts) if part.part_kind == 'user-prompt')
    returned = [f'{part.tool_name}={part.content}' for part in parts[last:] if isinstance(part, ToolReturnPart)]
    calls = [word.split(':') for word in user_prompts(messages)[-1].split() if ':' in word]
    if calls and not returned:
        return ModelResponse(
            parts=[ToolCallPart(name, {'q': q}, f'{name}-{len(messages)}-{n}') for n, (name, q) in enumerate(calls)]
        )
    tools = ','.join(sorted(tool.name for tool in info.function_tools)) or 'none'
    return ModelResponse(parts=[TextPart(' + '.join([*user_prompts(messages), *returned, f'tools: {tools}']))])


def agent_with_look_tool(**options: Any) -> Agent[object, Any]:
    """An agent with a tool `look` of its own."""
    agent: Agent[object, Any] = Agent(FunctionModel(call_named_tools), name='Clerk', **options)

    @agent.tool_plain
    def look(q: str) -> str:
        return f'seen {q}'

    return agent


def result_answer(call: Any, value: Any) -> dict[str, Any]:
    """The client's answer to a call of its tool."""
    return {'id': call['id'], 'decision': 'result', 'result': value}
