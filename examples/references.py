"""An agent that works with what it has made before, in whatever conversation, if a message refers to it.

Run it from this directory with `uvicorn references:app`. The model needs no API key: it makes a list of what it reads.
"""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_a2a import to_a2a


def obey(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stands in for a model."""
    [prompt] = [part.content for part in messages[-1].parts if isinstance(part, UserPromptPart)]
    items = [prompt] if isinstance(prompt, str) else prompt
    return ModelResponse(parts=[TextPart('\n'.join(f'- {item}' for item in items))])


agent = Agent(FunctionModel(obey), name='Lister')
app = to_a2a(agent)
