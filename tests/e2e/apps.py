"""Agents that do what their user says, and wait at a gate where they are told to until a test opens it over HTTP.

This module runs in the servers' processes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from os import environ
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, ImageUrl, StructuredContent
from pydantic_ai.messages import (
    FilePart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_core import to_json

from pydantic_ai_a2a import Progress, Results, Retention, Workers, mount, serve_grpc, to_a2a

from ..bounds import LIMIT, LOGS
from .gates import ROUTES, gates

CHUNK = 64 * 1024


def _prompts(messages: list[ModelMessage]) -> Iterator[str]:
    requests = (message for message in messages if isinstance(message, ModelRequest))
    return (str(part.content) for each in requests for part in each.parts if isinstance(part, UserPromptPart))


async def obey(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    """Says and does what the newest prompt says: a verb and the rest."""
    *before, prompt = _prompts(messages)
    verb, _, rest = prompt.partition(' ')
    if isinstance(messages[-1].parts[-1], ToolReturnPart):
        yield 'The tool is done.'
    elif verb == 'say':
        for word in rest.split():
            yield f'{word} '
    elif verb == 'recall':
        yield f'Before, you said: {"; ".join(before)}.'
    elif verb == 'wait':
        yield 'Before the gate, '
        await gates[rest].wait()
        yield 'and after.'
    elif verb == 'use':
        yield 'I use a tool.'
        yield {1: DeltaToolCall('wait_at', to_json({'gate': rest}).decode(), tool_call_id='call')}
    elif verb == 'flood':
        for n in range(int(rest)):
            yield f'{n:08}'.ljust(CHUNK, '.')
        await gates['flood'].wait()
    else:
        raise RuntimeError('nobody but the log may read this')


async def obey_at_once(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """The same, as one response."""
    items = [item async for item in obey(messages, info)]
    text = ''.join(item for item in items if isinstance(item, str))
    calls = [call for item in items if isinstance(item, dict) for call in item.values()]
    return ModelResponse(parts=[TextPart(text), *(ToolCallPart(call.name or '', call.json_args) for call in calls)])


puppet = Agent(FunctionModel(obey_at_once, stream_function=obey), name='Puppet', description='Does what it is told.')


@puppet.tool_plain
async def wait_at(gate: str) -> str:
    await gates[gate].wait()
    return 'done'


BACKEND = environ.get('APPS_BACKEND', 'memory')
LIFESPAN = partial(serve_grpc, port=0) if 'APPS_GRPC' in environ else None

# Each piece of the model's is an event, for tests that count them.
app = to_a2a(
    puppet,
    routes=ROUTES,
    backend=BACKEND,
    results=Results(stream='mark', interval=0, progress=Progress(notes=True)),
    retention=Retention(events=LOGS),
    lifespan=LIFESPAN,
)
hasty = to_a2a(puppet, routes=ROUTES, results=Results(stream='mark'), workers=Workers(drain_grace=0.3))
patient = to_a2a(puppet, routes=ROUTES, results=Results(stream='mark', interval=0), workers=Workers(drain_grace=LIMIT))


class Seen(BaseModel):
    """What the mirror got."""

    data: dict[str, Any]
    files: list[str]


def reflect(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Gives back the files that came, and with data what came, links too, as Seen."""
    prompts = [part.content for part in messages[-1].parts if isinstance(part, UserPromptPart)]
    content = prompts[0] if not isinstance(prompts[0], str) else prompts
    files = [item for item in content if isinstance(item, BinaryContent)]
    data = [item.value for item in content if isinstance(item, StructuredContent)]
    if data:
        links = [item for item in content if isinstance(item, ImageUrl)]
        names = [*(f'{file.identifier}: {file.media_type}' for file in files), *(link.url for link in links)]
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {'data': data[0], 'files': names})])
    return ModelResponse(parts=[TextPart(f'Here are {len(files)} files.'), *map(FilePart, files)])


mirror = to_a2a(
    Agent(FunctionModel(reflect), name='Mirror', output_type=[Seen, str]), backend=BACKEND, lifespan=LIFESPAN
)
"""Its model cannot stream."""

parent = FastAPI()
mount(parent, '/puppet', to_a2a(puppet, routes=ROUTES, workers=Workers(drain_grace=0.3)))
mount(parent, '/mirror', mirror)

unforwarded = FastAPI()
unforwarded.mount('/puppet', to_a2a(puppet, routes=ROUTES, workers=Workers(drain_grace=0.3)))
