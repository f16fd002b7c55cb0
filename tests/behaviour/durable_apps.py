"""Apps of several agents over a store; they run in the servers' processes. The environment says which store."""

from __future__ import annotations

import asyncio
from os import environ
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import (
    CompactionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import A2AApp, Messages, to_a2a

from ..agents import user_prompts
from ..e2e.gates import ROUTES, gates
from .durable_steps import RETENTION, WORKERS, note
from .pending_calls import WITH_CLIENT_TOOLS


def app_of(agent: Agent[Any, Any], **options: Any) -> A2AApp:
    return to_a2a(
        agent, backend=environ['A2A_TEST_BACKEND'], routes=ROUTES, workers=WORKERS, retention=RETENTION, **options
    )


# --- an agent that keeps a ledger -------------------------------------------------------------------------------------


def book(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Writes the prompt into the ledger, and then says all prompts of the conversation."""
    if isinstance(messages[-1].parts[-1], ToolReturnPart):
        return ModelResponse(parts=[TextPart(' '.join(user_prompts(messages)))])
    return ModelResponse(parts=[ToolCallPart('write', {'line': user_prompts(messages)[-1]})])


bookkeeper = Agent(FunctionModel(book), name='Clerk')


@bookkeeper.tool_plain
async def write(line: str) -> str:
    note(line)
    if line == 'held':
        await gates[line].wait()
    await asyncio.sleep(0.02)  # a time in which the process may be killed
    return 'done'


clerk = app_of(bookkeeper)
steered_clerk = app_of(bookkeeper, messages=Messages(while_working='steer'))

# --- an agent that summarises more than ten messages ------------------------------------------------------------------


def summarize(messages: list[ModelMessage]) -> list[ModelMessage]:
    if len(messages) <= 10:
        return messages
    return [ModelRequest(parts=[CompactionPart(f'a summary of {len(messages)}')]), *messages[-2:]]


def count_messages(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    parts = [part for message in messages for part in message.parts]
    summaries = [str(part.content) for part in parts if isinstance(part, CompactionPart)]
    return ModelResponse(parts=[TextPart(', '.join([f'{len(messages)}', *summaries]))])


compacting = app_of(Agent(FunctionModel(count_messages), name='compacting', capabilities=[ProcessHistory(summarize)]))

# --- an agent that calls two tools of its client one after the other --------------------------------------------------


async def call_in_turn(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Writes into the ledger which tools it has; waits at the gate of the step; calls the tool of the step."""
    returned = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    note(f'step-{len(returned)} {",".join(sorted(tool.name for tool in info.function_tools))}')
    await gates[f'step-{len(returned)}'].wait()
    if len(returned) < 2:
        return ModelResponse(parts=[ToolCallPart(('search', 'fetch')[len(returned)], {'q': 'a'}, f'c{len(returned)}')])
    return ModelResponse(parts=[TextPart(' + '.join(str(part.content) for part in returned))])


declaring = app_of(Agent(FunctionModel(call_in_turn), name='Declaring'), messages=WITH_CLIENT_TOOLS)
