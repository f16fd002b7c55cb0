"""The agent whose tasks the stored databases hold. Its answers depend only on the conversation."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import A2AApp, Push, Retention, Workers, to_a2a

from ..fixed import fixed

AGES = timedelta(days=36_500)
RETENTION = Retention(tasks=AGES, waiting=AGES, contexts=AGES)
"""A hundred years: the tasks stay however old the stored database is."""
HOST = 'hooks.internal'
WEBHOOK = f'http://{HOST}:9/hook'


class Desk:
    """An agent that repeats the prompts of its conversation.

    The prompt `look` begins with a tool that waits until the desk is open. The prompt `delete` begins with a tool that
    needs approval.
    """

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.looking = asyncio.Event()
        self.requests = 0
        self.hosts: list[str] = []
        """Hosts of webhooks that were looked up."""
        self.called = asyncio.Event()
        self.agent: Agent[object, Any] = Agent(FunctionModel(self._answer), name='desk')
        self.agent.tool_plain(self.look)
        self.agent.tool_plain(requires_approval=True)(self.delete)

    def app(self, backend: str) -> A2AApp:
        """Return the app that serves the agent over a backend. Webhooks have no addresses."""
        return to_a2a(
            self.agent,
            backend=backend,
            retention=RETENTION,
            workers=Workers(drain_grace=0.01),
            push=fixed(Push, private_hosts=[HOST], resolve=self._resolve),
        )

    async def look(self) -> str:
        self.looking.set()
        await self.open.wait()
        return 'found'

    async def delete(self) -> str:
        return 'deleted'

    async def _resolve(self, host: str, port: int) -> list[str]:
        self.hosts.append(host)
        self.called.set()
        raise OSError

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.requests += 1
        parts = [part for message in messages for part in message.parts]
        prompts = [str(part.content) for part in parts if isinstance(part, UserPromptPart)]
        returned = [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]
        if prompts[-1] in ('look', 'delete') and not returned:
            return ModelResponse(parts=[ToolCallPart(prompts[-1])])
        return ModelResponse(parts=[TextPart(' + '.join([*prompts, *returned]))])
