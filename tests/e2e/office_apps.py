"""Two agents without names, and two versions of a third one, over one store that the environment names."""

from __future__ import annotations

from os import environ
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import A2AApp, to_a2a

Word = Literal['weather', 'joker']


def model_saying(word: Word) -> FunctionModel:
    return FunctionModel(lambda messages, info: ModelResponse(parts=[TextPart(word)]))


weather, joker = Agent(model_saying('weather')), Agent(model_saying('joker'))


def _app(agent: Agent[Any, Any], **options: Any) -> A2AApp:
    return to_a2a(agent, backend=environ['A2A_TEST_BACKEND'], **options)


def of_weather() -> A2AApp:
    return _app(weather, name='weather')


def of_joker() -> A2AApp:
    return _app(joker, name='joker')


# --- two versions of one agent ----------------------------------------------------------------------------------------


class Forecast(BaseModel):
    sky: str


def _answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the tool of the version, and then answer in the version's way."""
    [tool] = info.function_tools
    if not any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
        return ModelResponse(parts=[ToolCallPart(tool.name, {})])
    if info.output_tools:
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {'sky': tool.name})])
    return ModelResponse(parts=[TextPart(tool.name)])


def look() -> str:
    return 'blue'


def measure() -> int:
    return 21


SKILLS: Any = [{'id': 'measure', 'name': 'Measure', 'description': 'Measures the sky.', 'tags': ['sky']}]


def version_1() -> A2AApp:
    return _app(Agent(FunctionModel(_answer), name='weather', tools=[look]))


def version_2() -> A2AApp:
    return _app(Agent(FunctionModel(_answer), name='weather', tools=[measure], output_type=Forecast))


def version_3() -> A2AApp:
    return _app(Agent(FunctionModel(_answer), name='weather', tools=[measure], output_type=Forecast), skills=SKILLS)
