"""An agent that takes long messages, and says how much memory its process has needed. It runs in a server's process."""

from __future__ import annotations

import asyncio
import resource
import sys

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from pydantic_ai_a2a import Limits, Workers, to_a2a

from ..constants import with_constants


async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Answer at once; a message that begins with `wait` never."""
    prompts = [part for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
    if str(prompts[0].content).startswith('wait'):
        await asyncio.Event().wait()
    return ModelResponse(parts=[TextPart('done')])


async def memory(request: Request) -> JSONResponse:
    """The most bytes that the process has had in memory, and those of answers that clients have not read."""
    from pydantic_ai_a2a.server.service.unsent_answers import UNSENT

    unit = 1 if sys.platform == 'darwin' else 1024
    return JSONResponse({'peak': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, 'unsent': UNSENT.bytes})


agent = Agent(FunctionModel(answer))
WORKERS = Workers(drain_grace=0.1)
app = to_a2a(agent, limits=Limits(part=10_000_000), workers=WORKERS, routes=[Route('/memory', memory)])
hasty = to_a2a(agent, limits=with_constants(Limits, part=10_000_000, answer_time=0.2), workers=WORKERS)
