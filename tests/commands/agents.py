"""An agent without a model for the commands that call agents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent, BinaryContent, BinaryImage, CallDeferred, DeferredToolRequests
from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.tools import RunContext

from pydantic_ai_a2a import A2AApp, AuthRequired, InputRequired, Progress, Rejected, Results, to_a2a
from pydantic_ai_a2a.wire.extensions.remote_calls import CONTINUE

CONTROL_CHARACTERS = '\x1b[2J\x9b2J\u202e'
"""Clears a terminal, and turns text round."""
PNG = b'\x89PNG\r\n\x1a\n'
CALLS: dict[str, dict[str, Any]] = {
    'delete': {'path': 'a.txt'},
    'pay': {},
    'order': {},
    'size': {},
    'ring': {},
    'InputRequired': {'question': 'Which pizza?'},
    'Rejected': {'reason': f'No {CONTROL_CHARACTERS}thanks.'},
    'price': {},
    'picture': {},
}


def shop_app() -> A2AApp:
    """A server of an agent that repeats its prompt, or does what the prompt's first word says."""
    agent = Agent(
        FunctionModel(stream_function=_model),
        name='shop',
        description='Sells\npizza.',
        output_type=[str, InputRequired, Rejected, price, picture, DeferredToolRequests],
    )

    @agent.tool_plain(requires_approval=True)
    def delete(path: str) -> str:
        return f'deleted {path}'

    @agent.tool
    def pay(ctx: RunContext[object]) -> str:
        if not ctx.tool_call_approved:
            raise AuthRequired('Please sign in.', url='https://bank.example/sign-in')
        return 'paid'

    @agent.tool_plain
    def order() -> str:
        raise InputRequired('How many?', {'type': 'integer'})

    @agent.tool_plain
    def size() -> str:
        raise InputRequired('Which size?', {'type': 'string', 'enum': ['small', 'large']})

    @agent.tool_plain
    def ring() -> str:
        raise CallDeferred

    return to_a2a(agent, results=Results(progress=Progress(tools=True)))


def price() -> dict[str, int]:
    """Tell the price."""
    return {'euros': 3}


def picture() -> BinaryContent:
    """Draw a picture."""
    return BinaryImage(PNG, media_type='image/png', identifier='pizza.png')


async def _model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    last, *before = reversed(messages[-1].parts)
    if isinstance(last, UserPromptPart) and last.content == CONTINUE:
        last = before[0]
    if isinstance(last, ToolReturnPart):
        yield f'The tool says: {last.model_response_str()}'
        return
    assert isinstance(last, UserPromptPart)
    items = [last.content] if isinstance(last.content, str) else [*last.content]
    words = ' '.join(item for item in items if isinstance(item, str))
    first = words.partition(' ')[0]
    tools = {tool.name.removeprefix('final_result_'): tool.name for tool in [*info.function_tools, *info.output_tools]}
    if first in CALLS:
        yield {0: DeltaToolCall(tools[first], json.dumps(CALLS[first]), tool_call_id='call')}
        return
    yield f'You said **{words}**'
    if first == 'wait':
        await asyncio.Event().wait()
    if first == 'break':
        raise RuntimeError('secret')
    if first == 'attack':
        yield CONTROL_CHARACTERS
    yield f' with {sum(isinstance(item, BinaryContent) for item in items)} files.'
