"""An agent that calls two tools of its client one after the other, over a file; runs in the servers' processes."""

from __future__ import annotations

from os import environ
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import to_a2a

from ..e2e.gates import ROUTES, gates
from .asking import ALLOWED
from .durable_clerk import RETENTION, WORKERS


async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Writes into the ledger which tools it has; waits at the gate of the step; calls the tool of the step."""
    returned = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    with Path(environ['A2A_TEST_LEDGER']).open('a') as ledger:
        ledger.write(f'step-{len(returned)} {",".join(sorted(tool.name for tool in info.function_tools))}\n')
    await gates[f'step-{len(returned)}'].wait()
    if len(returned) < 2:
        return ModelResponse(parts=[ToolCallPart(('search', 'fetch')[len(returned)], {'q': 'a'}, f'c{len(returned)}')])
    return ModelResponse(parts=[TextPart(' + '.join(str(part.content) for part in returned))])


app = to_a2a(
    Agent(FunctionModel(model), name='Clerk'),
    backend=environ['A2A_TEST_BACKEND'],
    messages=ALLOWED,
    routes=ROUTES,
    workers=WORKERS,
    retention=RETENTION,
)
