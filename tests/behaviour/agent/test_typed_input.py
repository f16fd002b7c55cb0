"""Input of a declared type: checked before anything is stored, and published on the card."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from pydantic_ai import Agent, StructuredContent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import InputRequired, Messages

from ...client import RpcError, message, state_of, texts
from ..rows import covers
from ..stage import serving, tasks_of
from ..tasks.test_states import Pizza, order


class Trip(BaseModel):
    """Where to go."""

    city: str
    days: int = Field(ge=1)
    stops: list[str] = []


def echo(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    request = messages[-1]
    assert isinstance(request, ModelRequest)
    [prompt] = [part.content for part in request.parts if isinstance(part, UserPromptPart)]
    values = [item.value if isinstance(item, StructuredContent) else item for item in prompt]
    return ModelResponse(parts=[TextPart(json.dumps(values))])


AGENT = Agent(FunctionModel(echo), name='Guide')
BAD: dict[str, tuple[list[Any], list[str]]] = {
    'text': ([{'text': 'Rome'}], ['message.parts']),
    'two': ([{'data': {'city': 'Rome', 'days': 1}}] * 2, ['message.parts']),
    'fields': (
        [{'text': 'hi'}, {'data': {'days': 0, 'stops': ['a', 1]}}],
        ['message.parts[1].data.city', 'message.parts[1].data.days', 'message.parts[1].data.stops[1]'],
    ),
    'too many to tell': ([{'data': {'city': 'Rome', 'days': 1, 'stops': [1] * 1001}}], ['message.parts[0].data']),
}


@covers('data part')
async def test_data_that_fits_reaches_the_agent_with_what_goes_with_it() -> None:
    async with serving(AGENT, messages=Messages(input_type=Trip)) as client:
        task = await client.send(message(parts=[{'data': {'city': 'Rome', 'days': 2}}, {'text': 'Soon.'}]))
    assert json.loads(texts(task)[0]) == [{'city': 'Rome', 'days': 2, 'stops': []}, 'Soon.']


@covers('data part')
@pytest.mark.parametrize(('parts', 'fields'), BAD.values(), ids=BAD)
async def test_what_does_not_fit_is_refused_by_its_fields_and_nothing_is_stored(
    parts: list[Any], fields: list[str]
) -> None:
    async with serving(AGENT, messages=Messages(input_type=Trip)) as client:
        with pytest.raises(RpcError) as refused:
            await client.send(message(parts=parts))
        assert await tasks_of(client) == []
    assert refused.value.code == -32602
    assert refused.value.fields == fields or refused.value.fields == fields[:1]  # 0.3 tells one


class Train(BaseModel):
    kind: Literal['train']
    seats: list[Literal['window', 'aisle']]


class Flight(BaseModel):
    kind: Literal['flight']
    gate: tuple[str, int]


@covers('data part')
@pytest.mark.parametrize(
    ('data', 'field'),
    [
        ({'kind': 'train', 'seats': ['window', 'roof']}, '.seats[1]'),
        ({'kind': 'flight'}, '.gate'),
        ({'kind': 'flight', 'gate': ['B']}, '.gate[1]'),
        ({'kind': 'walk'}, ''),
        (1, ''),
    ],
)
async def test_where_several_types_are_taken_what_does_not_fit_is_named_as_it_is_in_the_data(
    data: Any, field: str
) -> None:
    journey = Annotated[Train | Flight, Field(discriminator='kind')]
    async with serving(AGENT, messages=Messages(input_type=journey)) as client:
        with pytest.raises(RpcError) as refused:
            await client.send(message(parts=[{'data': data}]))
    assert refused.value.fields == [f'message.parts[0].data{field}']


@covers('card')
async def test_the_schema_is_published_on_the_card() -> None:
    async with serving(AGENT, messages=Messages(input_type=Trip)) as client:
        card = (await client.get('/.well-known/agent-card.json')).json
    assert card['defaultInputModes'] == ['application/json']
    schemas = [extension.get('params', {}).get('inputSchema') for extension in card['capabilities']['extensions']]
    assert [schema for schema in schemas if schema is not None] == [Trip.model_json_schema()]


@covers('data part')
async def test_a_question_may_be_answered_in_words_all_the_same() -> None:
    async with serving(
        Agent(FunctionModel(order), output_type=[Pizza, InputRequired]), messages=Messages(input_type=Trip)
    ) as client:
        task = await client.send(message(parts=[{'data': {'city': 'Rome', 'days': 1}}, {'text': 'a pizza'}]))
        assert state_of(task) == 'INPUT_REQUIRED'
        assert state_of(await client.send(message('Margherita', taskId=task['id']))) == 'COMPLETED'
