"""Agents whose runs take three steps, of which any can be held, so that the run goes on elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from copy import deepcopy
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, RunContext, TextOutput
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

KINDS = ('text', 'streamed', 'structured', 'native', 'prompted', 'processed', 'validated')
POINTS = ('model 1', 'tool 1', 'model 2', 'tool 2', 'model 3')


class City(BaseModel):
    name: str


class Steps:
    """An agent that calls two tools at once in each of two steps, and then answers."""

    def __init__(self, kind: str = 'text') -> None:
        self.done: list[str] = []
        """What was begun: `model 1`, `tool 1` and `tool 11` at once, `model 2`, ...; `middle 1` of its text, `end`."""
        self.told: list[Any] = []
        """What each call of a tool was told: prompt, call, metadata."""
        self.held: asyncio.Event | None = None
        """Set once the run waits where it is to be held."""
        self._hold_at = ''
        self._kind = kind
        # One that cannot stream, and one that is streamed whenever somebody watches.
        model = FunctionModel(self._respond, profile={'supports_json_schema_output': True})
        streamed = FunctionModel(self._respond, stream_function=self._stream)
        self.agent: Agent[object, Any] = Agent(
            streamed if kind == 'streamed' else model, name='agent', **self._options()
        )
        self.agent.tool(self.work)

    def hold(self, point: str) -> asyncio.Event:
        """Let the next run that comes to this point wait there for ever."""
        self._hold_at, self.held = point, asyncio.Event()
        return self.held

    async def at(self, point: str) -> None:
        self.done.append(point)
        if point == self._hold_at:
            assert self.held is not None
            self._hold_at = ''
            self.held.set()
            await asyncio.Event().wait()

    def _options(self) -> dict[str, Any]:
        match self._kind:
            case 'structured':
                return {'output_type': City}
            case 'native':
                return {'output_type': NativeOutput(City)}
            case 'prompted':
                return {'system_prompt': 'Be kind.', 'instructions': 'Be brief.'}
            case 'processed':
                return {'capabilities': [ProcessHistory[object](_copied)]}
            case 'validated':
                return {'output_type': TextOutput(self._shout), 'instructions': 'Be brief.'}
            case _:
                return {}

    async def _shout(self, text: str) -> str:
        await self.at('end')
        return text.upper()

    async def work(self, ctx: RunContext[object], n: int) -> str:
        self.told.append((ctx.prompt, ctx.tool_call_id, ctx.metadata))
        await self.at(f'tool {n}')
        return f'worked {n}'

    async def _respond(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = 1 + _steps(messages[-1])
        await self.at(f'model {step}')
        if step < 3:
            calls = [ToolCallPart('work', {'n': n}, f'call {n}') for n in (step, step + 10)]
            return ModelResponse(parts=[TextPart(f'Step {step}.'), *calls])
        if info.output_tools:
            return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {'name': 'Rome'}, 'output call')])
        if self._kind == 'native':
            return ModelResponse(parts=[TextPart('{"name":"Rome"}')])
        return ModelResponse(parts=[TextPart(f'Read {len(messages)} messages.')])

    async def _stream(
        self, messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        for n, part in enumerate((await self._respond(messages, info)).parts):
            if isinstance(part, ToolCallPart):
                yield {n: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}
            else:
                assert isinstance(part, TextPart)
                first, _, rest = part.content.partition(' ')
                yield f'{first} '
                await self.at(f'middle {1 + _steps(messages[-1])}')
                yield rest


def _copied(messages: list[ModelMessage]) -> list[ModelMessage]:
    return deepcopy(messages)


def _steps(message: ModelMessage) -> int:
    """How many steps of the run are done before a request."""
    returned = [str(part.content) for part in message.parts if isinstance(part, ToolReturnPart)]
    return min((int(content[-1]) for content in returned if content.startswith('worked')), default=0)


def comparable_messages(messages: Sequence[ModelMessage]) -> list[Any]:
    """What model messages say, and to which conversation they belong; neither when, nor how it was transported."""
    dumped = ModelMessagesTypeAdapter.dump_python([*messages], mode='json')
    return [
        (
            message['kind'],
            message.get('instructions'),
            [_part_fields(part) for part in message['parts']],
            message['state'],
        )
        for message in dumped
    ]


def _part_fields(part: dict[str, Any]) -> dict[str, Any]:
    if isinstance(args := part.get('args'), str):
        part['args'] = ToolCallPart('', args).args_as_dict()
    return {name: value for name, value in part.items() if name != 'timestamp'}
