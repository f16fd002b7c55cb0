"""The output of a run is the same at each engine as without one: for clients, and for `on_complete`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple
from uuid import UUID

import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    SecretStr,
    WithJsonSchema,
    computed_field,
    field_serializer,
    field_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_ai import Agent, BinaryContent, NativeOutput, PromptedOutput, StructuredDict, ToolOutput
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.run import AgentRunResult
from pydantic_core import from_json, to_json
from temporalio import client, workflow
from temporalio.worker import (
    ExecuteWorkflowInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)
from typing_extensions import TypedDict

from pydantic_ai_a2a import Artifacts

from ...engines import Kit, TemporalKit
from ..stage import serving


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


Json = StructuredDict({'type': 'object', 'properties': {'a': {'type': 'integer'}}}, name='Json')

CASES: dict[str, tuple[Any, dict[str, Any] | str, str]] = {
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
}


def answering(answer: dict[str, Any] | str, tool: str) -> FunctionModel:
    def respond(_: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if isinstance(answer, str):
            return ModelResponse(parts=[TextPart(answer)])
        [name] = [each.name for each in info.output_tools if tool in ('', each.name) or each.name.endswith(tool)]
        return ModelResponse(parts=[ToolCallPart(name, answer)])

    return FunctionModel(respond, profile={'supports_json_schema_output': True})


async def ends(agent: Agent[Any, Any], options: dict[str, Any]) -> tuple[Any, ...]:
    """What a client gets, and what `on_complete` gets."""
    completed = list[AgentRunResult[Any]]()
    async with serving(agent, on_complete=completed.append, **options) as client:
        task = await client.send('hello')
    for artifact in task.get('artifacts', ()):
        artifact['artifactId'] = artifact['artifactId'].removeprefix(task['id'])
    return task['status']['state'], task.get('artifacts'), [result.output for result in completed]


@pytest.mark.parametrize('case', CASES)
async def test_output_is_as_without_an_engine(kit: Kit, case: str) -> None:
    output_type, answer, tool = CASES[case]
    model = answering(answer, tool)
    plain = Agent(model, name='agent', output_type=output_type)
    expected = await ends(plain, {'backend': f'sqlite:///{kit.folder}/plain.db'})
    assert expected[0] == 'TASK_STATE_COMPLETED'
    got = await ends(kit.agent(model, output_type=output_type), kit.options())
    assert got[:2] == expected[:2]
    assert [(type(each), each) for each in got[2]] == [(type(each), each) for each in expected[2]]


@pytest.fixture
def at_temporal(tmp_path: Path, temporal: str) -> TemporalKit:
    return TemporalKit(tmp_path, temporal)


class Array:
    """Like an array of numpy: its comparison is no bool."""

    def __init__(self, items: list[int]) -> None:
        self.items = items

    def __eq__(self, other: object) -> Any:
        return Array([])

    def __hash__(self) -> int:
        return len(self.items)

    def __bool__(self) -> bool:
        raise ValueError('ambiguous')

    def __repr__(self) -> str:
        return f'Array({self.items})'


def report(city: str) -> Artifacts:
    return Artifacts({'cat': Cat(name=city), 'day': date(2026, 11, 28)})


Items = Annotated[
    Array, PlainValidator(Array), PlainSerializer(lambda array: array.items, return_type=list[int]), WithJsonSchema({})
]
LOST: dict[str, tuple[Any, dict[str, Any], Any]] = {
    'a validator that changes values': (Doubled, {'cents': 7}, {'cents': 700}),
    'a secret': (Secret, {'word': 'abc'}, {'word': '**********'}),
}
OTHER: dict[str, tuple[Any, dict[str, Any], list[Any], Any]] = {
    # The output type, what the model answers with, what the client gets, and what the hook gets.
    'an array': (Items, {'response': [1, 2]}, [[1, 2]], 'Array([1, 2])'),
    'artifacts': (report, {'city': 'a'}, [{'name': 'a'}, '2026-11-28'], {'cat': {'name': 'a'}, 'day': '2026-11-28'}),
}


@pytest.mark.parametrize('case', LOST)
async def test_hook_gets_json_of_an_output_that_would_change(
    at_temporal: TemporalKit, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    output_type, answer, dumped = LOST[case]
    agent = at_temporal.agent(answering(answer, ''), output_type=output_type)
    options = at_temporal.options()
    state, artifacts, completed = await ends(agent, options)
    await ends(agent, options)
    assert state == 'TASK_STATE_COMPLETED'
    assert artifacts[0]['parts'][0]['data'] == {'result': dumped}
    assert completed == [dumped]
    name = output_type.__name__
    assert caplog.text.count(f'Outputs of the type {name} change on their way from a workflow') == 1


@pytest.mark.parametrize('case', OTHER)
async def test_output_that_cannot_be_compared_reaches_client_and_hook(at_temporal: TemporalKit, case: str) -> None:
    output_type, answer, expected, heard = OTHER[case]
    agent = at_temporal.agent(answering(answer, ''), output_type=output_type)
    _, artifacts, completed = await ends(agent, at_temporal.options())
    assert [artifact['parts'][0]['data']['result'] for artifact in artifacts] == expected
    assert completed == [heard]


@pytest.mark.parametrize('streams', [True, False])
async def test_half_of_an_emoji_is_replaced(at_temporal: TemporalKit, streams: bool) -> None:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield 'ab\ud83d'

    model = FunctionModel(stream_function=stream) if streams else answering('ab\ud83d', '')
    agent = at_temporal.agent(model, streams=streams)
    _, artifacts, completed = await ends(agent, at_temporal.options())
    assert (artifacts[0]['parts'][0]['text'], completed) == ('ab\ufffd', ['ab\ufffd'])


class Counted(BaseModel):
    """Can be read once after it was written for the client and for the hooks."""

    cents: int
    written: ClassVar[int] = 0
    read: ClassVar[int] = 0

    @field_validator('cents')
    @classmethod
    def count_read(cls, cents: int) -> int:
        cls.read += cls.written > 1
        if cls.read > 1:
            raise ValueError('read again')
        return cents

    @field_serializer('cents')
    def count_written(self, cents: int) -> int:
        type(self).written += 1
        return cents


async def test_hook_gets_json_of_an_output_that_its_process_cannot_read(
    at_temporal: TemporalKit, caplog: pytest.LogCaptureFixture
) -> None:
    agent = at_temporal.agent(answering({'cents': 7}, ''), output_type=Counted)
    *_, completed = await ends(agent, at_temporal.options())
    assert completed == [{'cents': 7}]
    assert 'on_complete gets the JSON of an output that this process cannot read as its type.' in caplog.text


class OfVersionBefore(client.Interceptor, Interceptor):
    """Has workflows read and write what the version before read and wrote."""

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        return _OfVersionBefore


REWRITTEN = list[str]()
"""The workflows with the data of the version before."""


class _OfVersionBefore(WorkflowInboundInterceptor):
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        *before, _ = from_json(input.args[0])
        _, values, rest, *_ = from_json(await super().execute_workflow(replace(input, args=[to_json(before)])))
        REWRITTEN.append(workflow.info().task_queue)
        return to_json(['', values, rest[:-1]])


async def test_end_of_the_version_before_is_read(at_temporal: TemporalKit) -> None:
    agent = at_temporal.agent(answering({'name': 'Tom'}, 'Cat'), output_type=[Cat, Refused])
    _, artifacts, completed = await ends(agent, at_temporal.options(interceptors=[OfVersionBefore()]))
    assert artifacts[0]['parts'][0]['metadata']['python_type'] == 'Cat'
    assert completed == [Cat(name='Tom')]
    assert at_temporal.queue in REWRITTEN
