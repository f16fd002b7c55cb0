"""Stands in for a language model, so that the weather agent runs without an API key: it follows a script.

Your own agent does not need this module; give it a real model, such as `'openai:gpt-5.2'`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_core import to_json, to_jsonable_python

__all__ = ('scripted_model',)

_PACE = 0.03
"""Seconds between two words of a streamed answer."""
_ABOUT_WEATHER = re.compile(r'weather|temperature|measure', re.IGNORECASE)
_CITY = re.compile(r'\bin ([A-Z]\w+)')
_HOURS = re.compile(r'(\d+) hours?')


def _answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """What the model says next, after all that was said and all that its tools returned."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return _after_tool(last, _question(messages), info)
    return _to_question(_question(messages), _measured(messages))


def _after_tool(result: ToolReturnPart, question: str, info: AgentInfo) -> ModelResponse:
    if result.outcome == 'retried':
        return _say(f'I cannot tell. {result.content}')
    if result.tool_name == 'find_station':
        hours = _hours(question)
        note = f'I measure for {hours} hours; that takes its time.' if hours else ''
        return _say(note, ToolCallPart('measure', {'station': result.content, 'hours': hours}))
    return _say('', ToolCallPart(info.output_tools[0].name, to_jsonable_python(result.content)))


def _to_question(question: str, measured: list[dict[str, Any]]) -> ModelResponse:
    city = _CITY.search(question)
    if city and (measured or _ABOUT_WEATHER.search(question)):
        return _say('', ToolCallPart('find_station', {'city': city[1]}))
    if 'warmer' in question and len(measured) > 1:
        cold, warm = sorted(measured[-2:], key=lambda weather: weather['temperature'])
        return _say(
            f'It is warmer in {warm["city"]}, with {warm["temperature"]} °C against {cold["temperature"]} °C in '
            f'{cold["city"]}.'
        )
    if question.startswith('Hello'):
        return _say('Hello! I am the weather agent. Ask me how the weather is in Oslo, in Paris or in Rome.')
    return _say('I only know about the weather. Ask me how it is in Oslo, in Paris or in Rome.')


def _question(messages: list[ModelMessage]) -> str:
    """The newest message of the user."""
    prompts = (part for message in reversed(messages) for part in message.parts if isinstance(part, UserPromptPart))
    return str(next(prompts).content)


def _measured(messages: list[ModelMessage]) -> list[dict[str, Any]]:
    """What the conversation knows about the weather, oldest first."""
    parts = (part for message in messages if isinstance(message, ModelRequest) for part in message.parts)
    returns = (part for part in parts if isinstance(part, ToolReturnPart) and part.tool_name == 'measure')
    return [to_jsonable_python(part.content) for part in returns]


def _hours(question: str) -> int:
    hours = _HOURS.search(question)
    return int(hours[1]) if hours else 0


def _say(text: str, *calls: ToolCallPart) -> ModelResponse:
    return ModelResponse(parts=[*([TextPart(text)] if text else []), *calls])


async def _stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    """The same answer, as a model writes it: word by word."""
    for n, part in enumerate(_answer(messages, info).parts):
        if isinstance(part, TextPart):
            for word in re.findall(r'\S+\s*', part.content):
                yield word
                await asyncio.sleep(_PACE)
        elif isinstance(part, ToolCallPart):
            yield {n: DeltaToolCall(part.tool_name, to_json(part.args).decode(), tool_call_id=part.tool_call_id)}


scripted_model = FunctionModel(_answer, stream_function=_stream, model_name='scripted')
