"""An agent that prints how its runs have ended.

Run it from this directory with `uvicorn hooks:app`. The model needs no API key: it says what it is told, fails if that
is `fail`, and comes to no end if it is `wait`.
"""

from __future__ import annotations

import asyncio

from pydantic_ai import Agent, AgentRunResult, RunCancelled
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_a2a import RunFailure, to_a2a


async def obey(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stands in for a model."""
    parts = [part for message in messages for part in message.parts]
    prompt = [str(part.content) for part in parts if isinstance(part, UserPromptPart)][-1]
    if prompt == 'fail':
        raise ValueError('It was told to.')
    if prompt == 'wait':
        await asyncio.Event().wait()
    return ModelResponse(parts=[TextPart(prompt)])


async def on_complete(result: AgentRunResult[str]) -> None:
    """A run has completed."""
    print(f'completed: {result.output}', flush=True)


async def on_cancel(canceled: RunCancelled) -> None:
    """A run was cancelled."""
    print(f'canceled: {canceled.run_id}', flush=True)


def on_failure(failure: RunFailure) -> None:
    """A run has failed; this is called in a thread."""
    print(f'failed: {failure.kind}: {failure.error}', flush=True)


agent = Agent(FunctionModel(obey), name='Echo')
app = to_a2a(agent, on_complete=on_complete, on_cancel=on_cancel, on_failure=on_failure)
