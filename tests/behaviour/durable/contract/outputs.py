"""The output of a run is the same for clients and for `on_complete`, whatever its type."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, SecretStr, computed_field
from pydantic.alias_generators import to_camel
from pydantic_ai import BinaryContent, ModelRetry, NativeOutput, PromptedOutput, RunContext, StructuredDict, ToolOutput
from pydantic_ai.messages import ModelMessage, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.output import TextOutput
from typing_extensions import TypedDict

from pydantic_ai_a2a import Artifacts, InputRequired, Rejected, Results, a2a
from pydantic_ai_a2a.wire.extensions.client_schema import CLIENT_SCHEMA_URI

from ....agents import scripted_model
from ....app_client import message
from . import ScenarioRun, add_table, call, echo, scenario


class Approved(BaseModel):
    cents: int


class Refused(BaseModel):
    cents: int


class Wide(BaseModel):
    name: str
    lives: int = 9


class Cat(BaseModel):
    name: str


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra='forbid')
    amount_cents: int


class Aliases(BaseModel):
    cents: int = Field(validation_alias=AliasChoices('amount', 'sum'), serialization_alias='total')


class Computed(BaseModel):
    model_config = ConfigDict(extra='forbid')
    side: int

    @computed_field
    @property
    def area(self) -> int:
        return self.side**2


class Doubled(BaseModel):
    cents: Annotated[int, AfterValidator(lambda cents: cents * 100)]


class Open(BaseModel):
    model_config = ConfigDict(extra='allow')
    name: str


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    cents: int


class Secret(BaseModel):
    word: SecretStr


class Colour(Enum):
    RED = 'red'


@dataclass
class Point:
    x: int
    y: int = field(default=0)


class Pair(NamedTuple):
    left: int
    right: str


class Row(TypedDict):
    name: str


class Node(BaseModel):
    name: str
    children: list[Node] = []


def approve(cents: int) -> Refused:
    return Refused(cents=cents)


def several(city: str) -> Artifacts:
    return Artifacts({'raw data': [1, 2.5, None]}, summary=city)


def picture(city: str) -> BinaryContent:
    return BinaryContent(city.encode(), media_type='image/png')


def bare(name: str) -> int:
    return len(name)


def shout(text: str) -> str:
    return text.upper()


Json = StructuredDict({'type': 'object', 'properties': {'a': {'type': 'integer'}}}, name='Json')

OUTPUTS: dict[str, tuple[Any, dict[str, Any] | str, str]] = {
    # The output type, what the model answers with, and the tool that it calls, or the only one.
    'text': (str, 'Hi.', ''),
    'a model': (Cat, {'name': 'Tom'}, ''),
    'refused beside approved': ([Approved, Refused], {'cents': 5}, 'Refused'),
    'approved beside refused': ([Refused, Approved], {'cents': 5}, 'Approved'),
    'named tools': ([ToolOutput(Approved, name='yes'), ToolOutput(Refused, name='no')], {'cents': 5}, 'no'),
    'a narrow model beside a wide one': ([Wide, Cat], {'name': 'Tom'}, 'Cat'),
    'a text beside a date': ([date, str], '2026-11-28', ''),
    'a date beside a text': ([date, str], {'response': '2026-11-28'}, 'final_result'),
    'a text beside an id': ([UUID, str], '12345678-1234-5678-1234-567812345678', ''),
    'aliases': (Camel, {'amountCents': 7}, ''),
    'several aliases': (Aliases, {'sum': 7}, ''),
    'a computed field': (Computed, {'side': 3}, ''),
    'more fields': (Open, {'name': 'Tom', 'age': 3}, ''),
    'a strict model': (Strict, {'cents': 7}, ''),
    'an enumeration': (Colour, {'response': 'red'}, ''),
    'a dataclass': (Point, {'x': 1}, ''),
    'a named tuple': (Pair, {'response': [1, 'a']}, ''),
    'a typed dictionary': (Row, {'name': 'a'}, ''),
    'a recursive model': (Node, {'name': 'a', 'children': [{'name': 'b'}]}, ''),
    'a list of unions': (list[Approved | Refused], {'response': [{'cents': 1}, {'cents': 2}]}, ''),
    'a union in a model': (list[int | str | None], {'response': [1, '1', None]}, ''),
    'a large integer': (int, {'response': 738529527931269425123}, ''),
    'a decimal': (Decimal, {'response': '1.10'}, ''),
    'a duration': (timedelta, {'response': 'P1DT2S'}, ''),
    'a time with a zone': (datetime, {'response': '2026-11-28T10:00:00+02:00'}, ''),
    'a set': (set[int], {'response': [1]}, ''),
    'a literal': (Literal['yes', 'no'], {'response': 'no'}, ''),
    'a schema': (Json, {'a': 1}, ''),
    'an output function': (approve, {'cents': 5}, ''),
    'a function for an integer': (bare, {'name': 'Tom'}, ''),
    'several artifacts': (several, {'city': 'Rome'}, ''),
    'a file': (picture, {'city': 'Rome'}, ''),
    'native output': (NativeOutput([Approved, Refused]), '{"result": {"kind": "Refused", "data": {"cents": 5}}}', ''),
    'prompted output': (PromptedOutput(Cat), '{"name": "Tom"}', ''),
    'a secret': (Secret, {'word': 'abc'}, ''),
    'made of text': (TextOutput(shout), 'Hi.', ''),
}


def answering(answer: dict[str, Any] | str, tool: str) -> FunctionModel:
    """A model that answers with an output tool, or with text."""

    def say(_: list[ModelMessage], info: AgentInfo) -> Any:
        if isinstance(answer, str):
            return answer
        [name] = [each.name for each in info.output_tools if tool in ('', each.name) or each.name.endswith(tool)]
        return ToolCallPart(name, answer, 'c1')

    return scripted_model(say, profile={'supports_json_schema_output': True})


async def give_output(play: ScenarioRun, case: tuple[Any, dict[str, Any] | str, str]) -> None:
    output_type, answer, tool = case
    async with play.serving(play.agent(answering(answer, tool), output_type=output_type)) as client:
        await client.send('hello')


add_table('the output is', OUTPUTS, give_output)


@scenario
async def an_output_function_asks_the_model_again_and_adds_an_artifact(play: ScenarioRun) -> None:
    async def approve(ctx: RunContext[Any], cents: int) -> Approved:
        if cents > 5:
            raise ModelRetry('Too much.')
        await a2a(ctx).status('Approving.')
        await a2a(ctx).artifact({'cents': cents}, name='receipt')
        return Approved(cents=cents)

    model = scripted_model(call('final_result', 'c1', cents=9), call('final_result', 'c2', cents=5))
    async with play.serving(play.agent(model, output_type=approve)) as client:
        await client.send('hello')


@scenario
async def an_output_validator_asks_the_model_again(play: ScenarioRun) -> None:
    agent = play.agent(scripted_model('too long', 'short'))

    @agent.output_validator
    def shorten(ctx: RunContext[Any], text: str) -> str:
        if len(text) > 5:
            raise ModelRetry(f'Shorter, after {ctx.retry} tries.')
        return text.upper()

    async with play.serving(agent) as client:
        await client.send('hello')


@scenario
async def an_output_that_does_not_validate_is_asked_for_again(play: ScenarioRun) -> None:
    model = scripted_model(call('final_result', 'c1', cents='many'), call('final_result', 'c2', cents=5))
    async with play.serving(play.agent(model, output_type=Approved)) as client:
        await client.send('hello')


@scenario
async def an_output_with_infinity_is_asked_for_again(play: ScenarioRun) -> None:
    model = scripted_model(call('final_result', 'c1', response=float('inf')), call('final_result', 'c2', response=1.5))
    async with play.serving(play.agent(model, output_type=float)) as client:
        await client.send('hello')


async def end_beside_tools(play: ScenarioRun, strategy: Any) -> None:
    def look() -> str:
        return 'looked'

    outputs = [call('final_result', f'c{n}', cents=n) for n in (1, 2)]
    model = scripted_model([TextPart('See:'), call('look'), *outputs], echo)
    agent = play.agent(model, output_type=[Approved, str], tools=[look], end_strategy=strategy)
    async with play.serving(agent) as client:
        await client.send('hello')


add_table(
    'outputs beside calls of tools,', {name: name for name in ('early', 'graceful', 'exhaustive')}, end_beside_tools
)


@scenario
async def an_output_chooses_the_state_of_its_task(play: ScenarioRun) -> None:
    def ask(city: str) -> InputRequired:
        return InputRequired(f'Which {city}?', schema={'type': 'string'})

    async with play.serving(
        play.agent(scripted_model(call('final_result', city='Rome'), echo), output_type=[ask, str])
    ) as client:
        task = await client.send('hello')
        await client.send(message('The old one.', taskId=task['id']))


@scenario
async def an_output_type_of_states_is_chosen_by_the_model(play: ScenarioRun) -> None:
    def pick(messages: list[ModelMessage], info: AgentInfo) -> Any:
        [name] = [tool.name for tool in info.output_tools if 'Rejected' in tool.name]
        return call(name, 'c1', reason='Not today.')

    async with play.serving(play.agent(scripted_model(pick), output_type=[Approved, Rejected])) as client:
        await client.send('hello')


@scenario
async def a_client_gets_only_the_output_modes_that_it_accepts(play: ScenarioRun) -> None:
    model = answering({'cents': 5}, '')
    async with play.serving(play.agent(model, output_type=Approved)) as client:
        await client.send('hello', acceptedOutputModes=['text/plain'])


@scenario
async def a_client_gives_the_schema_of_the_answer(play: ScenarioRun) -> None:
    schema = {'type': 'object', 'properties': {'n': {'type': 'integer'}}, 'required': ['n']}

    def fill(messages: list[ModelMessage], info: AgentInfo) -> Any:
        return call(info.output_tools[0].name, 'c1', n=3)

    agent = play.agent(scripted_model(fill))
    async with play.serving(agent, results=Results(client_schemas=True)) as client:
        await client.send(
            message('hello', metadata={CLIENT_SCHEMA_URI: {'schema': schema}}, extensions=[CLIENT_SCHEMA_URI])
        )
