"""An agent that is sent data of a declared type, which is checked before the model is asked.

Run it from this directory with `uvicorn typed_input:app`, and send data such as `{"city": "Rome", "days": 2}`. The
model needs no API key: it plans the days of the trip, and adds what is said beside the data.
"""

from __future__ import annotations

from pydantic import BaseModel, Field
from pydantic_ai import Agent, StructuredContent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai_a2a import Messages, to_a2a


class Trip(BaseModel):
    """Where to go, and for how long."""

    city: str
    days: int = Field(ge=1, le=14)


def plan(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stands in for a model."""
    [prompt] = [part.content for part in messages[-1].parts if isinstance(part, UserPromptPart)]
    [trip] = [Trip.model_validate(item.value) for item in prompt if isinstance(item, StructuredContent)]
    days = [f'Day {n}: {trip.city}' for n in range(1, trip.days + 1)]
    return ModelResponse(parts=[TextPart('\n'.join([*days, *(item for item in prompt if isinstance(item, str))]))])


agent = Agent(FunctionModel(plan), name='Travel', description='Plans a trip, day by day.')
app = to_a2a(agent, messages=Messages(input_type=Trip))
