"""Apps whose tasks several processes share: each keeps them in a file of the directory that it is started in.

This module runs in the servers' and workers' processes. `NAME` is how a process signs its answers; one with `HANGS`
begins and never answers.
"""

from __future__ import annotations

import asyncio
from os import environ

from fastapi import FastAPI
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from starlette.middleware.cors import CORSMiddleware

from pydantic_ai_a2a import Workers, mount, to_a2a

from ..bounds import LIMIT


async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if 'HANGS' in environ:
        print('A run has begun.', flush=True)
        await asyncio.Event().wait()
    return ModelResponse(parts=[TextPart(f'Answered by {environ["NAME"]}.')])


class Locked(FunctionToolset[object]):
    """Can be entered only where `KEY` is set."""

    async def __aenter__(self) -> Locked:
        if 'KEY' not in environ:
            raise LookupError('there is no key')
        return self


FILE = 'sqlite:///agent.db'

agent = Agent(FunctionModel(answer), name='shared')
app = to_a2a(agent, backend=FILE)
wrapped = CORSMiddleware(app)
# The same tasks, with other settings.
hasty = to_a2a(agent, backend=FILE, workers=Workers(drain_grace=0.1, drain_delay=LIMIT))
patient = to_a2a(agent, backend=FILE, workers=Workers(drain_grace=LIMIT))
fragile = to_a2a(agent, backend=FILE, workers=Workers(lease=LIMIT, attempts=1))
locked = to_a2a(Agent(FunctionModel(answer), name='locked', toolsets=[Locked()]), backend=FILE)

parent = FastAPI()
mount(parent, '/ann', to_a2a(agent, name='ann', backend=FILE))
parent.mount('/bob', to_a2a(agent, name='bob', backend=FILE))
