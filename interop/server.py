"""The servers that clients are run against: two agents with text in each form of a stream, one with data, and gRPC.

Prints a line of JSON: the URL of each server, by name.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from functools import partial

import uvicorn
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from starlette.types import ASGIApp

from interop.verdicts import AFTER, BEFORE, DATA, FORMS, GRPC_SERVERS, TEXT
from pydantic_ai_a2a import Results, serve_grpc, to_a2a


class Weather(BaseModel):
    city: str
    degrees: int


async def write(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart(TEXT)])


async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    async for word in words(TEXT):
        yield word


def looks(messages: list[ModelMessage]) -> bool:
    """Whether the model is yet to call its tool."""
    return not any(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)


async def look(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if looks(messages):
        return ModelResponse(parts=[TextPart(BEFORE), ToolCallPart('thermometer')])
    return ModelResponse(parts=[TextPart(AFTER)])


async def stream_look(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    calls = looks(messages)
    async for word in words(BEFORE if calls else AFTER):
        yield word
    if calls:
        yield {1: DeltaToolCall('thermometer', '{}')}


async def words(text: str) -> AsyncIterator[str]:
    for word in re.findall(r'\S+ ?', text):
        yield word
        await asyncio.sleep(0.05)


async def report(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, DATA)])


writer = Agent(FunctionModel(write, stream_function=stream), name='writer')
looker = Agent(FunctionModel(look, stream_function=stream_look), name='looker')
reporter = Agent(FunctionModel(report), name='reporter', output_type=Weather)


@looker.tool_plain
def thermometer() -> int:
    return 21


def apps() -> dict[str, ASGIApp]:
    """The app of each server."""
    agents = {'talk': writer, 'tool': looker}
    return {
        **{
            f'{name} {form}': to_a2a(agent, results=Results(stream=form))
            for name, agent in agents.items()
            for form in FORMS
        },
        'data': to_a2a(reporter),
        'data as text': to_a2a(reporter, results=Results(data_as_text=True)),
        **{
            name: to_a2a(writer, lifespan=partial(serve_grpc, port=0, on_card=on_card))
            for name, on_card in GRPC_SERVERS.items()
        },
    }


async def main() -> None:
    servers: list[tuple[uvicorn.Server, socket.socket]] = []
    urls: dict[str, str] = {}
    for name, app in apps().items():
        bound = socket.create_server(('127.0.0.1', 0))
        servers.append((uvicorn.Server(uvicorn.Config(app, http='h11', log_level='warning')), bound))
        urls[name] = f'http://127.0.0.1:{bound.getsockname()[1]}'
    print(json.dumps(urls), flush=True)
    await asyncio.gather(*(server.serve([bound]) for server, bound in servers))


if __name__ == '__main__':
    asyncio.run(main())
