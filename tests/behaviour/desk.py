"""An agent that takes its time, and what users had said at each of its requests to the model."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from .stage import prompts


class Desk:
    """An agent that looks so many things up, as long as it is kept there, and then says all that it was told.

    Told to `delete` first, it wants to do that instead, which needs approval.
    """

    def __init__(self, *, steps: int = 1) -> None:
        self.looking, self.found = asyncio.Event(), asyncio.Event()
        self.seen: list[list[str]] = []
        """What users had said, at each request to the model."""
        self.reached = asyncio.Event()
        """Set once a run waits where it is to be held."""
        self._hold_at = ''
        self._steps = steps
        self.agent: Agent[object, Any] = Agent(FunctionModel(self.answer))
        self.agent.tool_plain(self.look)
        self.agent.tool_plain(requires_approval=True)(self.delete)

    def hold(self, point: str) -> None:
        """Let the next run that comes to `model 1`, `tool 1`, `model 2`, ... wait there for ever."""
        self._hold_at = point
        self.reached.clear()

    async def answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        said = prompts(messages)
        self.seen.append(said)
        step = 1 + sum(isinstance(part, ToolReturnPart) for each in messages for part in each.parts)
        await self._at(f'model {step}')
        if step > self._steps:
            return ModelResponse(parts=[TextPart(' + '.join(said))])
        return ModelResponse(
            parts=[ToolCallPart('delete') if said[0] == 'delete' else ToolCallPart('look', {'n': step})]
        )

    async def look(self, n: int) -> str:
        self.looking.set()
        await self.found.wait()
        await self._at(f'tool {n}')
        return 'found'

    async def delete(self) -> str:
        return 'deleted'

    async def _at(self, point: str) -> None:
        if point == self._hold_at:
            self._hold_at = ''
            self.reached.set()
            await asyncio.Event().wait()
