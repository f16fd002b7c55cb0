"""A server of Agno: an agent of AgentOS.

Prints the URL of the agent. The argument is the text that it answers, in pieces.
"""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn
from agno.agent import Agent
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.os import AgentOS


@dataclass
class Writer(Model):
    """A model that writes the text."""

    id: str = 'writer'

    def invoke(self, *args: Any, **kwargs: Any) -> ModelResponse:
        return ModelResponse(role='assistant', content=sys.argv[1])

    async def ainvoke(self, *args: Any, **kwargs: Any) -> ModelResponse:
        return self.invoke()

    def invoke_stream(self, *args: Any, **kwargs: Any) -> Iterator[ModelResponse]:
        yield self.invoke()

    async def ainvoke_stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ModelResponse]:
        for word in re.findall(r'\S+ ?', sys.argv[1]):
            yield ModelResponse(role='assistant', content=word)
            await asyncio.sleep(0.05)

    def _parse_provider_response(self, response: Any, **kwargs: Any) -> ModelResponse:
        return response

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        return response


app = AgentOS(agents=[Agent(id='writer', name='writer', model=Writer())], a2a_interface=True, telemetry=False).get_app()
bound = socket.create_server(('127.0.0.1', 0))
print(f'http://127.0.0.1:{bound.getsockname()[1]}/a2a/agents/writer', flush=True)
uvicorn.Server(uvicorn.Config(app, log_level='warning')).run([bound])
