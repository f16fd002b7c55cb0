"""Input of a declared type: checked before anything is stored, and given to the run and its hooks."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Message
from fasta2a.storage import InMemoryStorage
from inline_snapshot import snapshot
from pydantic import BaseModel, Field
from pydantic_ai import Agent, RunContext, StructuredContent
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.run import AgentRunResult

from pydantic_ai_a2a import AgentWorker, CallContext, InputRequired, Messages, NoInput, ToolCall, Workers, a2a
from pydantic_ai_a2a.settings.limits import LONG

from ...app_client import message, state_of, texts
from ...serving import list_tasks, serving
from ..pending_calls import answer_message, approve
from ..promised_behaviours import covers
from ..refusals import error_of_call
from ..tasks.test_output_states import Pizza, order_pizza


class Trip(BaseModel):
    """Where to go."""

    city: str
    days: int = Field(ge=1)
    stops: list[str] = []


def data_of(messages: list[ModelMessage]) -> list[Any]:
    """What a model reads of users in messages."""
    parts = [part for sent in messages for part in sent.parts if isinstance(part, UserPromptPart)]
    items = [item for part in parts for item in ([part.content] if isinstance(part.content, str) else part.content)]
    return [item.value if isinstance(item, StructuredContent) else item for item in items]


def echo(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart(json.dumps(data_of(messages[-1:])))])


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
async def test_valid_input_reaches_agent_with_remaining_parts() -> None:
    async with serving(AGENT, messages=Messages(input_type=Trip)) as client:
        task = await client.send(message(parts=[{'data': {'city': 'Rome', 'days': 2}}, {'text': 'Soon.'}]))
    assert json.loads(texts(task)[0]) == [{'city': 'Rome', 'days': 2, 'stops': []}, 'Soon.']


@covers('data part')
@pytest.mark.parametrize(('parts', 'fields'), BAD.values(), ids=BAD)
async def test_invalid_input_is_refused_naming_its_fields(parts: list[Any], fields: list[str]) -> None:
    async with serving(AGENT, messages=Messages(input_type=Trip)) as client:
        error = await error_of_call(client.send(message(parts=parts)))
        assert await list_tasks(client) == []
    assert error.code == -32602
    assert error.fields == fields or error.fields == fields[:1]  # 0.3 tells one


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
async def test_invalid_union_input_is_refused_naming_fields_of_data(data: Any, field: str) -> None:
    journey = Annotated[Train | Flight, Field(discriminator='kind')]
    async with serving(AGENT, messages=Messages(input_type=journey)) as client:
        error = await error_of_call(client.send(message(parts=[{'data': data}])))
    assert error.fields == [f'message.parts[0].data{field}']


@covers('card')
async def test_agent_card_publishes_input_schema() -> None:
    async with serving(AGENT, messages=Messages(input_type=Trip)) as client:
        card = (await client.get('/.well-known/agent-card.json')).json
    assert card['defaultInputModes'] == ['application/json']
    schemas = [extension.get('params', {}).get('inputSchema') for extension in card['capabilities']['extensions']]
    assert [schema for schema in schemas if schema is not None] == [Trip.model_json_schema()]


@covers('data part')
async def test_question_may_be_answered_in_text_despite_input_type() -> None:
    async with serving(
        Agent(FunctionModel(order_pizza), output_type=[Pizza, InputRequired]), messages=Messages(input_type=Trip)
    ) as client:
        task = await client.send(message(parts=[{'data': {'city': 'Rome', 'days': 1}}, {'text': 'a pizza'}]))
        assert state_of(task) == 'INPUT_REQUIRED'
        assert state_of(await client.send(message('Margherita', taskId=task['id']))) == 'COMPLETED'


# --- what the agent gets --------------------------------------------------------------------------------------------


class Order(BaseModel):
    """An order of a customer."""

    item: str
    count: int = 1
    due: date = Field(default=date(2026, 12, 24), alias='dueDate')


class Refund(BaseModel):
    kind: Literal['refund']
    number: int


class Complaint(BaseModel):
    kind: Literal['complaint']
    text: str = 'none'


Request = Annotated[Refund | Complaint, Field(discriminator='kind')]
CLIENT = {'item': 'cup', 'count': '2', 'note': 'gift wrap, please'}
READ = {'item': 'cup', 'count': 2, 'dueDate': '2026-12-24'}
ORDER = Order(item='cup', count=2)


class Desk:
    """An agent that calls its tool, with or without an approval, and then answers with what its model has read."""

    def __init__(self, *, approval: bool = False, input_type: Any = Order) -> None:
        self.agent: Agent[Any, str] = Agent(FunctionModel(self._model), name='agent', deps_type=object)
        self.agent.tool(requires_approval=approval)(self.look)
        self.input_type = input_type
        self.seen: list[Any] = []
        self.options: dict[str, Any] = {
            'deps_factory': self.deps,
            'on_tool_call': self.on_tool_call,
            'on_complete': self.on_complete,
        }

    def _model(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if isinstance(messages[-1].parts[-1], ToolReturnPart):
            return ModelResponse(parts=[TextPart(json.dumps(data_of(messages)))])
        return ModelResponse(parts=[ToolCallPart('look', {}, 'c1')])

    def _see(self, read: Callable[[Any], Any]) -> Any:
        try:
            self.seen.append(read(self.input_type))
        except NoInput as error:
            self.seen.append(str(error))

    async def deps(self, call: CallContext) -> object:
        self._see(call.input)
        return call

    async def look(self, ctx: RunContext[object]) -> str:
        self._see(a2a(ctx).input)
        return 'looked'

    async def on_tool_call(self, call: ToolCall) -> None:
        self._see(a2a(call.ctx).input)

    async def on_complete(self, result: AgentRunResult[Any]) -> None:
        self._see(a2a(result).input)


def order_of(*more: Any, **data: Any) -> dict[str, Any]:
    return message(parts=[{'data': {**CLIENT, **data}}, *more])


@covers('data part')
async def test_model_deps_tools_and_hooks_get_validated_input() -> None:
    desk = Desk()
    async with serving(desk.agent, messages=Messages(input_type=Order), **desk.options) as client:
        task = await client.send(order_of({'text': 'Quickly!'}))
        history = (await client.get_task(task['id']))['history']
    assert json.loads(texts(task)[0]) == [READ, 'Quickly!']
    assert desk.seen == [ORDER] * 4
    assert all(seen is desk.seen[0] for seen in desk.seen)
    assert history[0]['parts'][0]['data'] == CLIENT


@covers('data part')
async def test_union_input_is_validated_as_matching_member() -> None:
    desk = Desk(input_type=Request)
    async with serving(desk.agent, messages=Messages(input_type=Request), **desk.options) as client:
        task = await client.send(message(parts=[{'data': {'kind': 'complaint'}}]))
    assert json.loads(texts(task)[0]) == [{'kind': 'complaint', 'text': 'none'}]
    assert desk.seen == [Complaint(kind='complaint')] * 4


@covers('data part')
async def test_long_input_is_validated() -> None:
    desk = Desk()
    async with serving(desk.agent, messages=Messages(input_type=Order), **desk.options) as client:
        await client.send(order_of(item='x' * LONG))
    assert [len(seen.item) for seen in desk.seen] == [LONG] * 4


@covers('data part')
async def test_validated_input_is_kept_after_approval() -> None:
    desk = Desk(approval=True)
    async with serving(desk.agent, messages=Messages(input_type=Order), **desk.options) as client:
        task = await client.send(order_of())
        assert state_of(task) == 'INPUT_REQUIRED'
        done = await client.send(answer_message(task, approve()))
    assert json.loads(texts(done)[0]) == [READ]
    assert desk.seen == [ORDER] * 5  # two runs have dependencies


async def test_validated_input_is_kept_by_app_taking_over_task(tmp_path: Path) -> None:
    url = f'sqlite:///{tmp_path}/agent.db'
    first, second = Desk(approval=True), Desk(approval=True)
    async with serving(first.agent, backend=url, messages=Messages(input_type=Order), **first.options) as client:
        task = await client.send(order_of())
    async with serving(second.agent, backend=url, messages=Messages(input_type=Order), **second.options) as client:
        done = await client.send(answer_message(task, approve()))
    assert json.loads(texts(done)[0]) == [READ]
    assert (first.seen, second.seen) == ([ORDER], [ORDER] * 4)


async def test_task_started_before_input_type_has_no_input(tmp_path: Path) -> None:
    url = f'sqlite:///{tmp_path}/agent.db'
    first, second = Desk(approval=True), Desk(approval=True)
    async with serving(first.agent, backend=url) as client:
        task = await client.send(order_of(item=1))
    async with serving(second.agent, backend=url, messages=Messages(input_type=Order), **second.options) as client:
        done = await client.send(answer_message(task, approve()))
    assert json.loads(texts(done)[0]) == [{**CLIENT, 'item': 1}]
    assert set(second.seen) == {
        'The task has no validated input: it runs outside of A2A, or without Messages.input_type, or has begun with'
        ' other data before input_type was set.'
    }


@covers('data part')
async def test_input_of_undeclared_type_is_not_available() -> None:
    desk = Desk(input_type=Refund)
    async with serving(desk.agent, messages=Messages(input_type=Order), **desk.options) as client:
        await client.send(order_of())
    assert set(desk.seen) == snapshot({'Messages.input_type is Order, not Refund. Ask for the declared type.'})
    desk = Desk()
    async with serving(desk.agent, **desk.options) as client:
        await client.send(order_of())
    assert all(str(seen).startswith('The task has no validated input') for seen in desk.seen)
    assert len(desk.seen) == 4


async def test_run_outside_a2a_has_no_input() -> None:
    desk = Desk()
    await desk.agent.run('hello', deps=None)
    assert str(desk.seen[0]).startswith('The task has no validated input: it runs outside of A2A')


async def test_direct_reply_has_validated_input() -> None:
    desk = Desk()
    options = Messages(input_type=Order, reply='message')
    async with serving(desk.agent, messages=options, **desk.options) as client:
        answer = await client.call('SendMessage', {'message': order_of()})
    assert json.loads(answer['message']['parts'][0]['text']) == [READ]
    assert desk.seen == [ORDER] * 4


async def test_custom_agent_worker_reads_validated_input() -> None:
    class Reader(AgentWorker):
        def build_message_history(self, history: list[Message]) -> list[ModelMessage]:
            read.append([part.get('data', part.get('text')) for sent in history for part in sent['parts']])
            return super().build_message_history(history)

    read: list[list[Any]] = []
    agent = Agent(FunctionModel(lambda messages, _: ModelResponse(parts=[TextPart(str(len(messages)))])), name='agent')
    broker, storage = InMemoryBroker(), InMemoryStorage[Any]()
    worker = Reader(agent=agent, broker=broker, storage=storage)
    options: dict[str, Any] = {'storage': storage, 'broker': broker, 'workers': Workers(worker=worker)}
    async with serving(agent, messages=Messages(input_type=Order), **options) as client:
        await client.send(order_of())
    assert read == [[READ]]
