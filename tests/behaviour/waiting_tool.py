"""An agent whose tool waits for the test, and readers of what the server says of its store."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a.server.http import health

from ..app_client import LIMIT, Client, message, rpc

__all__ = ('WaitingToolAgent', 'readiness', 'refused_by_store', 'wait_until_ready')

_LONG = Random(0).randbytes(50_000).hex()
"""A text that no store makes so short that it fits into what is free of the pages of its tables."""


class WaitingToolAgent:
    """An agent that calls a tool, waits within it for the test, and counts what it does."""

    def __init__(self) -> None:
        self.requests = 0
        self.calls = 0
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        self.agent: Agent[object, str] = Agent(FunctionModel(self._answer), name='agent')
        self.agent.tool_plain(self.book)

    async def book(self) -> str:
        """Book it."""
        self.calls += 1
        self.reached.set()
        await self.go_on.wait()
        return _LONG

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.requests += 1
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart('book', {})])
        return ModelResponse(parts=[TextPart('booked')])


async def readiness(client: Client) -> tuple[int, str]:
    """HTTP status of `/health/ready`, and the state of the backend, which gets as long to answer as it takes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(health, 'PATIENCE', LIMIT)
        answer = await client.get('/health/ready')
    return answer.status, answer.json['components']['backend']


async def wait_until_ready(client: Client) -> None:
    """Ask until the server is ready."""
    async with asyncio.timeout(LIMIT):
        while await readiness(client) != (200, 'ok'):
            pass


async def refused_by_store(client: Client, **fields: Any) -> tuple[int, str, int]:
    """HTTP status, `Retry-After` and error code of a message that the server does not take."""
    answer = await client.post(rpc('SendMessage', {'message': message(_LONG, **fields)}))
    return answer.status, answer.headers['retry-after'], answer.json['error']['code']
