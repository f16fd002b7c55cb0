"""Serves an agent whose tasks and conversations are in a file: `uvicorn own_storage:app`. It needs no API key."""

from __future__ import annotations

from os import environ

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_a2a import to_a2a

from sqlite_storage import SqliteStorage


def recall(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """In the place of a model: says what the user has said so far."""
    requests = (message for message in messages if isinstance(message, ModelRequest))
    said = [str(part.content) for each in requests for part in each.parts if isinstance(part, UserPromptPart)]
    return ModelResponse(parts=[TextPart(f'So far you said: {"; ".join(said)}.')])


agent = Agent(FunctionModel(recall), name='memory', description='Remembers what it is told, also after a restart.')
app = to_a2a(agent, storage=SqliteStorage(environ.get('MEMORY_FILE', 'memory.db')))
