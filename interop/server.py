"""The servers that clients are run against: one for each form of the end of a stream, and one whose result is data.

Prints a line of JSON: the URL of each server, by name.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator

import uvicorn
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from starlette.types import ASGIApp

from interop.forms import FORMS
from interop.verdicts import DATA, TEXT
from pydantic_ai_a2a import Results, to_a2a


class Weather(BaseModel):
    city: str
    degrees: int


async def write(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart(TEXT)])


async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    for word in TEXT.split(' '):
        yield word if word == TEXT.split(' ')[-1] else f'{word} '
        await asyncio.sleep(0.05)


async def report(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, DATA)])


writer = Agent(FunctionModel(write, stream_function=stream), name='writer')
reporter = Agent(FunctionModel(report), name='reporter', output_type=Weather)


def apps() -> dict[str, ASGIApp]:
    """The app of each server."""
    return {
        **{name: form(writer) for name, form in FORMS.items()},
        'data': to_a2a(reporter),
        'data as text': to_a2a(reporter, results=Results(data_as_text=True)),
    }


async def main() -> None:
    servers: list[tuple[uvicorn.Server, socket.socket]] = []
    urls: dict[str, str] = {}
    for name, app in apps().items():
        bound = socket.create_server(('127.0.0.1', 0))
        servers.append((uvicorn.Server(uvicorn.Config(app, log_level='warning')), bound))
        urls[name] = f'http://127.0.0.1:{bound.getsockname()[1]}'
    print(json.dumps(urls), flush=True)
    await asyncio.gather(*(server.serve([bound]) for server, bound in servers))


if __name__ == '__main__':
    asyncio.run(main())
