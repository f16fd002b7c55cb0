"""Partial data: a structured output for clients that watch the model write the output."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, ModelRetry, NativeOutput, RunContext, TextOutput, Tool, ToolOutput
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from pydantic_ai_a2a import Progress, RemoteAgent, Results, serve, to_a2a

from ...app_client import LIMIT, Event, state_of, texts
from ...serving import each_backend, serving
from ..promised_behaviours import covers

ROW = covers('model, dataclass, tuple, list, dict, int, None, union')
PARTIAL = Results(interval=0, progress=Progress(partial_data=True))
PIECES = ('{"title": "Soup"', ', "steps": ["Cut"', ', "Cook it', ' well"]', '}')
RECIPE = {'title': 'Soup', 'steps': ['Cut', 'Cook it well']}


class Recipe(BaseModel):
    title: str = ''
    steps: list[str] = []


class Writer:
    """A model that writes one output in pieces. Before each piece, the model waits for its gate."""

    def __init__(self, *pieces: str, waits_before: int | None = None) -> None:
        self._pieces = pieces or PIECES
        self._waits_before = waits_before
        self.reached, self.gate = asyncio.Event(), asyncio.Event()
        self.model = FunctionModel(self._whole, stream_function=self._stream)

    async def _whole(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, ''.join(self._pieces))])

    async def _stream(
        self, messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        tools = info.output_tools
        if tools:
            yield {0: DeltaToolCall(name=tools[0].name, json_args='', tool_call_id='c')}
        for n, piece in enumerate(self._pieces):
            if n == self._waits_before:
                self.reached.set()
                await self.gate.wait()
            yield {0: DeltaToolCall(json_args=piece)} if tools else piece


def artifacts(events: list[Event]) -> list[dict[str, Any]]:
    return [event.result['artifactUpdate']['artifact'] for event in events if 'artifactUpdate' in event.result]


def results(updates: list[dict[str, Any]]) -> list[Any]:
    return [update['parts'][0]['data']['result'] for update in updates]


async def stream_and_task(
    agent: Agent[Any, Any], results: Results = PARTIAL, **configuration: Any
) -> tuple[list[Event], dict[str, Any]]:
    """The events of a task for a client that watches, and the stored task."""
    async with serving(agent, results=results) as client:
        async with client.send_streaming(**configuration) as reader:
            events = await reader.rest()
        return events, await client.get_task(events[0].result['task']['id'])


@ROW
@pytest.mark.parametrize('output_type', [Recipe, NativeOutput(Recipe), ToolOutput(Recipe, name='cook')])
async def test_stream_sends_valid_partial_data_before_answer(output_type: Any) -> None:
    events, task = await stream_and_task(Agent(Writer().model, output_type=output_type))
    *partial, last = artifacts(events)
    assert results(partial)[-4:] == [
        {'title': 'Soup', 'steps': []},
        {'title': 'Soup', 'steps': ['Cut']},
        {'title': 'Soup', 'steps': ['Cut', 'Cook it']},
        RECIPE,
    ]
    assert all(Recipe.model_validate(result) for result in results(partial))
    assert {str(update['metadata']) for update in partial} == {"{'progress': 'partial'}"}
    assert {update['artifactId'] for update in (*partial, last)} == {last['artifactId']}
    assert [last] == task['artifacts']
    assert (results([last]), 'metadata' in last) == ([RECIPE], False)


@ROW
async def test_late_subscriber_gets_newest_partial_data_first() -> None:
    writer = Writer(waits_before=3)
    agent = Agent(writer.model, output_type=Recipe)
    async with serving(agent, results=PARTIAL) as client, client.send_streaming() as reader:
        task = (await anext(reader)).result['task']
        await writer.reached.wait()
        [newest] = (await client.get_task(task['id']))['artifacts']
        async with client.subscribe(task['id']) as late:
            [shown] = (await anext(late)).result['task']['artifacts']
            writer.gate.set()
            *_, last = artifacts(await late.rest())
        await reader.rest()
    assert newest == shown
    assert results([shown, last]) == [{'title': 'Soup', 'steps': ['Cut', 'Cook it']}, RECIPE]
    assert shown['metadata'] == {'progress': 'partial'}


@ROW
@each_backend('memory', 'sqlite')
async def test_canceled_task_keeps_no_partial_data(backend: str) -> None:
    writer = Writer(waits_before=3)
    async with serving(
        Agent(writer.model, name='agent', output_type=Recipe), results=PARTIAL, backend=backend
    ) as client:
        async with client.send_streaming() as reader:
            task = (await anext(reader)).result['task']
            await writer.reached.wait()
            canceled = await client.call('CancelTask', {'id': task['id']})
            assert artifacts(await reader.rest())
        assert (state_of(canceled), 'artifacts' in canceled) == ('CANCELED', False)
        assert 'artifacts' not in await client.get_task(task['id'])


async def test_partial_data_is_sent_at_most_once_per_interval() -> None:
    agent = Agent(Writer('{"steps": ["0"', *[f', "{n}"' for n in range(1, 50)], ']}').model, output_type=Recipe)
    events, task = await stream_and_task(agent, Results(interval=3600, progress=Progress(partial_data=True)))
    assert len(artifacts(events)) <= 2
    assert len(results(task['artifacts'])[0]['steps']) == 50


async def test_partial_data_is_off_by_default() -> None:
    events, _ = await stream_and_task(Agent(Writer().model, output_type=Recipe), Results(interval=0))
    assert results(artifacts(events)) == [RECIPE]


async def test_invalid_output_is_replaced_by_retried_output() -> None:
    tries = iter([('{"title": "Soup", "steps": [1', ']}'), PIECES])

    async def stream(_: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        yield {0: DeltaToolCall(name=info.output_tools[0].name, json_args='', tool_call_id='c')}
        for piece in next(tries):
            yield {0: DeltaToolCall(json_args=piece)}

    events, task = await stream_and_task(Agent(FunctionModel(stream_function=stream), output_type=Recipe))
    assert (state_of(task), results(artifacts(events))[-1]) == ('COMPLETED', RECIPE)


@pytest.mark.parametrize(
    ('modes', 'data_as_text'), [({}, True), ({'acceptedOutputModes': ['text/plain']}, False)], ids=['both', 'only']
)
async def test_partial_data_is_never_sent_as_text(modes: dict[str, Any], data_as_text: bool) -> None:
    options = Results(interval=0, data_as_text=data_as_text, progress=Progress(partial_data=True))
    events, task = await stream_and_task(Agent(Writer().model, output_type=Recipe), options, **modes)
    *partial, last = artifacts(events)
    assert bool(partial) is data_as_text
    assert [part for update in partial for part in update['parts'] if 'text' in part] == []
    assert len(texts({'artifacts': [last]})) == 1
    assert state_of(task) == 'COMPLETED'


async def test_text_answer_produces_no_data() -> None:
    async def stream(_: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield 'It is '
        yield 'Soup.'

    events, task = await stream_and_task(Agent(FunctionModel(stream_function=stream), output_type=[str, Recipe]))
    assert all('data' not in update['parts'][0] for update in artifacts(events))
    assert texts(task) == ['It is Soup.']


# --- functions of the user ------------------------------------------------------------------------------------------


def cook(recipe: Recipe) -> Recipe:
    return recipe


def loud(text: str) -> str:
    return text.upper()


def validated(validate: Callable[..., Any]) -> Agent[Any, Any]:
    agent = Agent(Writer().model, output_type=Recipe)
    agent.output_validator(validate)
    return agent


@pytest.mark.parametrize(
    'agent',
    [
        Agent(Writer().model, output_type=cook),
        Agent(Writer().model, output_type=[str, ToolOutput(cook)]),
        Agent(Writer().model, output_type=TextOutput(loud)),
        validated(cook),
    ],
    ids=['function', 'tool', 'text', 'validator'],
)
def test_partial_data_with_output_functions_is_refused(agent: Agent[Any, Any]) -> None:
    with pytest.raises(TypeError, match=r'Progress\.partial_data cannot be combined with output functions'):
        to_a2a(agent, results=PARTIAL)


async def test_output_function_error_on_partial_data_is_ignored() -> None:
    seen: list[bool] = []

    def check(ctx: RunContext[None], recipe: Recipe) -> Recipe:
        seen.append(ctx.partial_output)
        if len(seen) == 1:
            raise ZeroDivisionError
        if len(recipe.steps) < 2:
            raise ModelRetry('More steps.')
        return recipe

    allowed = Results(interval=0, progress=Progress(partial_data='with-functions'))
    events, task = await stream_and_task(validated(check), allowed)
    *partial, last = results(artifacts(events))
    assert (state_of(task), last) == ('COMPLETED', RECIPE)
    assert partial
    assert all(len(recipe['steps']) == 2 for recipe in partial)
    assert (seen[-1], {*seen[:-1]}) == (False, {True})


async def test_non_json_partial_output_is_left_out() -> None:
    def cook(ctx: RunContext[None], recipe: Recipe) -> Any:
        return object() if ctx.partial_output else recipe

    allowed = Results(interval=0, progress=Progress(partial_data='with-functions'))
    events, _ = await stream_and_task(Agent(Writer().model, output_type=cook), allowed)
    assert results(artifacts(events)) == [RECIPE]


async def test_tool_call_awaiting_approval_is_no_partial_data() -> None:
    async def stream(_: list[ModelMessage], info: AgentInfo) -> AsyncIterator[dict[int, DeltaToolCall]]:
        yield {0: DeltaToolCall(name='pay', json_args='{"amount":', tool_call_id='c')}
        yield {0: DeltaToolCall(json_args=' 5}')}

    def pay(amount: int) -> None:
        raise AssertionError('nobody has approved it')

    agent = Agent(
        FunctionModel(stream_function=stream),
        name='agent',
        output_type=[Recipe, DeferredToolRequests],
        tools=[Tool(pay, requires_approval=True)],
    )
    events, task = await stream_and_task(agent)
    assert (state_of(task), artifacts(events)) == ('INPUT_REQUIRED', [])


async def test_validator_added_later_does_not_run_on_partial_outputs() -> None:
    seen: list[bool] = []
    agent: Agent[Any, Any] = Agent(Writer().model, name='agent', output_type=Recipe)

    def check(ctx: RunContext[None], recipe: Recipe) -> Recipe:
        seen.append(ctx.partial_output)
        return recipe

    async with serving(agent, results=PARTIAL) as client:
        agent.output_validator(check)
        async with client.send_streaming() as reader:
            assert results(artifacts(await reader.rest())) == [RECIPE]
    assert seen == [False]


# --- clients of the package -----------------------------------------------------------------------------------------


async def test_remote_agent_returns_answer_without_partial_data() -> None:
    with serve(to_a2a(Agent(Writer().model, output_type=Recipe), results=PARTIAL)) as server:
        async with asyncio.timeout(LIMIT), RemoteAgent(server.url, output_type=Recipe) as remote:
            async with remote.run_stream('Soup, please.') as streamed:
                assert await streamed.get_output() == Recipe.model_validate(RECIPE)
            assert (await remote.run('Soup, please.')).output == Recipe.model_validate(RECIPE)
