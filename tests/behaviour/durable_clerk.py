"""An agent that keeps a ledger, over a file; runs in the servers' processes. The environment says which file."""

from __future__ import annotations

import asyncio
from os import environ
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Retention, Workers, to_a2a

from ..bounds import LOGS
from ..e2e.gates import ROUTES, gates
from .stage import prompts

WORKERS = Workers(lease=float(environ['A2A_TEST_LEASE']), drain_grace=1.0, attempts=20)
RETENTION = Retention(events=LOGS)


def book(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Writes the prompt into the ledger, and then says all prompts of the conversation."""
    if isinstance(messages[-1].parts[-1], ToolReturnPart):
        return ModelResponse(parts=[TextPart(' '.join(prompts(messages)))])
    return ModelResponse(parts=[ToolCallPart('note', {'line': prompts(messages)[-1]})])


clerk = Agent(FunctionModel(book), name='Clerk')


@clerk.tool_plain
async def note(line: str) -> str:
    with Path(environ['A2A_TEST_LEDGER']).open('a') as ledger:
        ledger.write(f'{line}\n')
    if line == 'held':
        await gates[line].wait()
    await asyncio.sleep(0.02)  # a time in which the process may be killed
    return 'done'


app = to_a2a(clerk, backend=environ['A2A_TEST_BACKEND'], routes=ROUTES, workers=WORKERS, retention=RETENTION)
