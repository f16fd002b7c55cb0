"""Clients that read events get the same ones in the same order. The sizes of pieces of text are a matter of time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from copy import copy
from typing import Any, cast

from pydantic import BaseModel
from pydantic_ai import RunContext, Tool
from pydantic_ai.capabilities import ProcessEventStream
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel

from pydantic_ai_a2a import Progress, Results, a2a

from ....agents import scripted_model
from ....app_client import message
from ...pending_calls import answer_message, approve, pending_calls
from . import ScenarioRun, add_table, call, scenario

Pieces = Sequence[Any]


def streams(*responses: Pieces) -> FunctionModel:
    """A model that streams one response after another, and then repeats the last."""

    async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Any]:
        turn = sum(isinstance(each, ModelResponse) for each in messages)
        for piece in responses[min(turn, len(responses) - 1)]:
            if isinstance(piece, Exception):
                raise copy(piece)
            yield piece

    return scripted_model(*(_whole(pieces) for pieces in responses), stream_function=stream)


def _whole(pieces: Pieces) -> Any:
    """A response that is not streamed."""
    text = ''.join(piece for piece in pieces if isinstance(piece, str))
    parts: list[Any] = [TextPart(text)] if text else []
    for piece in pieces:
        parts += map(_part, cast('dict[int, Any]', piece).values() if isinstance(piece, dict) else ())
    return parts


def _part(delta: Any) -> Any:
    if isinstance(delta, DeltaThinkingPart):
        return ThinkingPart(delta.content or '', signature=delta.signature)
    return ToolCallPart(delta.name, delta.json_args, delta.tool_call_id)


def calls(tool: str, arguments: str = '{}', index: int = 1) -> dict[int, DeltaToolCall]:
    return {index: DeltaToolCall(tool, arguments, tool_call_id=f'{tool}-{index}')}


async def work(ctx: RunContext[Any]) -> str:
    await a2a(ctx).status('Working.')
    await a2a(ctx).artifact('a map', name='map')
    return 'worked'


def look() -> str:
    return 'looked'


THOUGHT = {0: DeltaThinkingPart(content='Let me see.', signature='s')}
ALL = Progress(notes=True, thinking=True, tools=True)
CASES: dict[str, tuple[list[Pieces], Results]] = {
    'pieces of text': ([['One, ', 'two, ', 'three.']], Results(stream='mark', interval=0)),
    'pieces and then the whole': ([['One, ', 'two.']], Results(stream='replace', interval=0)),
    'steps': ([[THOUGHT, calls('work')], [THOUGHT, 'Done.']], Results(stream='whole', progress=ALL)),
    'text and steps': (
        [['Looking.', calls('work')], ['Done: ', 'all.']],
        Results(stream='mark', interval=0, progress=ALL),
    ),
    'text and statuses of tools': ([['Looking.', calls('work')], ['Done.']], Results(stream='mark', interval=0)),
    'several calls': (
        [[calls('look', index=1) | calls('look', index=2)], ['Done.']],
        Results(stream='mark', interval=0, progress=Progress(tools=True)),
    ),
    'a failure after text': ([['One, ', ValueError('secret')]], Results(stream='mark', interval=0)),
}


async def watch(play: ScenarioRun, case: tuple[list[Pieces], Results]) -> None:
    responses, results = case
    agent = play.agent(streams(*responses), streams=True, tools=[work, Tool(look, sequential=True)])
    async with play.serving(agent, results=results) as client:
        task = await client.watch()
        await client.watch(message('again', contextId=task['contextId']))


add_table('a stream has', CASES, watch)


@scenario
async def a_stream_has_a_large_text(play: ScenarioRun) -> None:
    await watch(play, ([['x' * 40_000] * 60], Results(stream='mark', interval=0)))


class City(BaseModel):
    name: str
    people: list[int] = []


async def watch_output(play: ScenarioRun, results: Results) -> None:
    pieces = [{0: DeltaToolCall('final_result', None, tool_call_id='c1')}]
    pieces += [{0: DeltaToolCall(None, piece)} for piece in ('{"name": "Ro', 'me", "people"', ': [1, 2]}')]
    async with play.serving(play.agent(streams(pieces), streams=True, output_type=City), results=results) as client:
        await client.watch()


@scenario
async def a_stream_has_structured_output(play: ScenarioRun) -> None:
    await watch_output(play, Results(stream='mark', interval=0, progress=ALL))


@scenario
async def a_stream_has_partial_outputs(play: ScenarioRun) -> None:
    await watch_output(play, Results(interval=0, progress=Progress(partial_data=True)))


@scenario
async def a_stream_has_the_whole_answer_of_a_model_that_does_not_stream(play: ScenarioRun) -> None:
    async with play.serving(play.agent(scripted_model(call('work'), 'Done.'), tools=[work])) as client:
        await client.watch()


@scenario
async def an_approval_in_a_stream(play: ScenarioRun) -> None:
    model = streams(['I pay.', calls('pay', '{"cents": 5}')], ['Paid.'])

    def pay(ctx: RunContext[Any], cents: int) -> str:
        return f'paid {cents}'

    agent = play.agent(model, streams=True)
    agent.tool(requires_approval=True)(pay)
    async with play.serving(agent, results=Results(stream='mark', interval=0, progress=ALL)) as client:
        task = await client.watch()
        await client.watch(answer_message(task, approve(pending_calls(task)[0]['id'])))


@scenario
async def events_in_a_capability(play: ScenarioRun) -> None:
    seen = list[str]()

    async def process(ctx: RunContext[Any], events: Any) -> None:
        async for event in events:
            seen.append(type(event).__name__)

    agent = play.agent(streams(['Hi', '.']), streams=True, capabilities=[ProcessEventStream(process)])
    async with play.serving(agent, results=Results(stream='mark', interval=0)) as client:
        await client.watch()
    play.note('seen', sorted({*seen}))
