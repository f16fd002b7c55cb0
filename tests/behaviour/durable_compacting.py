"""An agent that summarises more than ten messages, over a file; runs in the servers' processes."""

from __future__ import annotations

from os import environ

from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import CompactionPart, ModelMessage, ModelRequest, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import to_a2a

from .durable_clerk import RETENTION, WORKERS


def summarize(messages: list[ModelMessage]) -> list[ModelMessage]:
    if len(messages) <= 10:
        return messages
    return [ModelRequest(parts=[CompactionPart(f'a summary of {len(messages)}')]), *messages[-2:]]


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    parts = [part for message in messages for part in message.parts]
    summaries = [str(part.content) for part in parts if isinstance(part, CompactionPart)]
    return ModelResponse(parts=[TextPart(', '.join([f'{len(messages)}', *summaries]))])


agent = Agent(FunctionModel(answer), name='compacting', capabilities=[ProcessHistory(summarize)])
app = to_a2a(agent, backend=environ['A2A_TEST_BACKEND'], workers=WORKERS, retention=RETENTION)
