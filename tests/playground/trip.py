"""The agent of the moving picture: four steps of research, then a booking that waits for an approval.

A script stands in the place of a model. The fourth step takes long in the first attempt, so that it can be killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from pydantic_ai_a2a import Progress, Results, Workers, to_a2a

PACE = 2.0
"""Seconds of a step, in which a picture is taken."""
_CALLS = (
    ToolCallPart('flights', {'to': 'Lisbon'}, 'flights-1'),
    ToolCallPart('forecast', {'city': 'Lisbon'}, 'forecast-1'),
    ToolCallPart('hotels', {'near': 'castle'}, 'hotels-1'),
    ToolCallPart('compare_prices', {'hotels': 12}, 'compare_prices-1'),
    ToolCallPart('book', {'hotel': 'Solar do Castelo', 'nights': 3}, 'book-1'),
)
_ANSWER = 'I have booked the **Solar do Castelo** for three nights. It will be sunny, with 24 °C.'


def _answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    step = sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
    return ModelResponse([TextPart(_ANSWER) if step == len(_CALLS) else _CALLS[step]])


async def _write(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    for part in _answer(messages, info).parts:
        if isinstance(part, ToolCallPart):
            yield {0: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}
        else:
            yield _ANSWER


_model = FunctionModel(_answer, stream_function=_write, model_name='scripted')
agent = Agent(_model, name='Travel agent', description='Plans trips, and books hotels.')


@agent.tool_plain
async def flights(to: str) -> str:
    await asyncio.sleep(PACE)
    return '23 flights'


@agent.tool_plain
async def forecast(city: str) -> str:
    await asyncio.sleep(PACE)
    return '24 °C, sunny'


@agent.tool_plain
async def hotels(near: str) -> str:
    await asyncio.sleep(PACE)
    return '12 hotels'


@agent.tool
async def compare_prices(ctx: RunContext, hotels: int) -> str:
    is_first = (ctx.metadata or {})['a2a']['attempt'] == 1
    await asyncio.sleep(60 if is_first else 2 * PACE)
    return '131 € a night'


@agent.tool_plain(requires_approval=True)
async def book(hotel: str, nights: int) -> str:
    return 'booked'


results = Results(progress=Progress(tools=True))
app = to_a2a(agent, backend='sqlite:///trip.db', workers=Workers(lease=15), results=results)
