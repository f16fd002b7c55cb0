"""`python benchmarks/backend_targets.py BACKEND [stuck]` serves an agent on a free port, which it prints.

What the agent does is said by its prompt. Times are nanoseconds of this machine's clock, so that another process can
tell how old they are.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from targets import TEXT, serve

from pydantic_ai_a2a import Results, Workers, to_a2a

DELTAS = 20
BEFORE = 1.0
"""Seconds for a reader to come, before the first delta."""
PAUSE = 0.05
LEASE = 2.0


def stuck() -> bool:
    """Whether this process never finishes what it is told to be stuck in."""
    return 'stuck' in sys.argv


def prompt(messages: list[ModelMessage]) -> str:
    part = messages[-1].parts[-1]
    return str(part.content) if isinstance(part, UserPromptPart) else ''


async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if prompt(messages) != 'stuck':
        return ModelResponse(parts=[TextPart(TEXT)])
    if stuck():
        await asyncio.Event().wait()
    return ModelResponse(parts=[TextPart(str(time.time_ns()))])


async def stream_answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    await asyncio.sleep(BEFORE)
    for _ in range(DELTAS):
        yield f'{time.time_ns()} '
        await asyncio.sleep(PAUSE)


agent = Agent(FunctionModel(answer, stream_function=stream_answer), name='benchmark')

if __name__ == '__main__':
    results = Results(stream='mark', interval=0)  # one event for each piece of the model's, whose age is measured
    serve(to_a2a(agent, backend=sys.argv[1], workers=Workers(lease=LEASE), results=results))
