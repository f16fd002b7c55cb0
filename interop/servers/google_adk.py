"""A server of Google's Agent Development Kit for Python.

Prints the URL of the agent. The argument is the text that it answers.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncGenerator
from typing import Any

import uvicorn
from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types


class Writer(BaseLlm):
    """A model that writes the text."""

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[LlmResponse]:
        yield LlmResponse(content=types.Content(role='model', parts=[types.Part(text=sys.argv[1])]))


bound = socket.create_server(('127.0.0.1', 0))
port = bound.getsockname()[1]
agent = LlmAgent(name='writer', model=Writer(model='writer'), instruction='Write.')
app = to_a2a(agent, host='127.0.0.1', port=port)
print(f'http://127.0.0.1:{port}', flush=True)
uvicorn.Server(uvicorn.Config(app, log_level='warning')).run([bound])
