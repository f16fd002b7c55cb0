"""The JSON Schema that a client wants for an answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, RunContext, ToolOutput
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import AuthRequired, InputRequired, Messages, Progress, Results
from pydantic_ai_a2a.server.conversion.output_types import states_of
from pydantic_ai_a2a.wire.extensions.client_schema import CLIENT_SCHEMA_URI

from ...agents import GatedAgent
from ...app_client import message, state_of, texts
from ...serving import list_tasks, serving, wait_until_ended
from ..pending_calls import answer_message, approve, client_tool, message_with_tools, pending_calls, result_answer
from ..promised_behaviours import covers
from ..refusals import error_of_call

ALLOWED = Results(client_schemas=True)
FIELD = f'message.metadata["{CLIENT_SCHEMA_URI}"]'
WEATHER: dict[str, Any] = {
    'title': 'Weather',
    'type': 'object',
    'properties': {'city': {'type': 'string'}, 'celsius': {'type': 'integer', 'minimum': -90}},
    'required': ['city', 'celsius'],
    'additionalProperties': False,
}
PARIS = {'city': 'Paris', 'celsius': 21}


class Pizza(BaseModel):
    name: str


def message_with_schema(schema: Any = WEATHER, text: str = 'How is Paris?', **fields: Any) -> dict[str, Any]:
    """A message that wants an answer by a schema."""
    return message(text, metadata={CLIENT_SCHEMA_URI: {'schema': schema}}, extensions=[CLIENT_SCHEMA_URI], **fields)


def data_of(task: dict[str, Any]) -> Any:
    [part] = task['artifacts'][-1]['parts']
    assert part['metadata'] == {'json_schema': WEATHER, 'python_type': 'Weather'}
    return part['data']['result']


class Forecaster:
    """An agent whose model gives outputs, one a request, to the output tool of the run."""

    def __init__(self, *outputs: dict[str, Any], output_type: Any = str, tool: str = 'final_result') -> None:
        self.outputs = [*outputs]
        self.tool = tool
        self.schemas: list[dict[str, Any]] = []
        self.retries: list[str] = []
        self.agent: Agent[Any, Any] = Agent(FunctionModel(self.model), output_type=output_type)

    def model(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        request = messages[-1]
        assert isinstance(request, ModelRequest)
        self.retries += [str(part.content) for part in request.parts if part.part_kind == 'retry-prompt']
        returns = [part for part in request.parts if isinstance(part, ToolReturnPart)]
        self.retries += [part.model_response_str() for part in returns if part.outcome == 'retried']
        if not info.output_tools:
            return ModelResponse(parts=[TextPart('in words')])
        self.schemas.append(info.output_tools[0].parameters_json_schema)
        return ModelResponse(parts=[ToolCallPart(self.tool, self.outputs.pop(0))])


@covers('data part')
async def test_answer_fits_client_schema() -> None:
    forecaster = Forecaster(PARIS)
    async with serving(forecaster.agent, results=ALLOWED) as client:
        task = await client.send(message_with_schema())
        assert data_of(task) == PARIS
        assert data_of(await client.get_task(task['id'])) == PARIS
        assert texts(await client.send('In words, please.')) == ['in words']
    [schema] = forecaster.schemas
    assert {**schema, 'title': 'Weather'} == WEATHER


@covers('data part')
async def test_whole_floats_of_protobuf_become_integers_in_schema() -> None:
    name = {'type': 'string', 'minLength': 2.0}  # as the official client writes the integers of metadata
    forecaster = Forecaster({'name': 'Paris'})
    async with serving(forecaster.agent, results=ALLOWED) as client:
        await client.send(message_with_schema({'type': 'object', 'properties': {'name': name}}))
    [schema] = forecaster.schemas
    assert repr(schema['properties']['name']['minLength']) == '2'


@covers('data part')
async def test_message_may_combine_schema_and_client_tools() -> None:
    forecaster = Forecaster(PARIS)

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) > 1:
            return forecaster.model(messages, info)
        return ModelResponse(parts=[ToolCallPart('search', {'q': 'Paris'})])

    agent = Agent(FunctionModel(model))
    async with serving(agent, results=ALLOWED, messages=Messages(client_tools=True)) as client:
        sent = message_with_tools('How is Paris?', client_tool())
        task = await client.send({**sent, 'metadata': {**sent['metadata'], CLIENT_SCHEMA_URI: {'schema': WEATHER}}})
        assert (
            data_of(await client.send(answer_message(task, result_answer(pending_calls(task)[0], '21 degrees'))))
            == PARIS
        )


@covers('data part')
async def test_output_violating_schema_is_retried() -> None:
    forecaster = Forecaster({**PARIS, 'celsius': -100}, {'city': 'Paris', 'celsius': float('nan')}, PARIS)
    forecaster.agent = Agent(FunctionModel(forecaster.model), retries=3)
    async with serving(forecaster.agent, results=ALLOWED) as client:
        assert data_of(await client.send(message_with_schema())) == PARIS
    assert ['output.celsius must be' in retry for retry in forecaster.retries] == [True, True]


@covers('data part')
async def test_nan_in_unconstrained_field_is_retried() -> None:
    forecaster = Forecaster({**PARIS, 'more': float('nan')}, {**PARIS, 'more': 1})
    async with serving(forecaster.agent, results=ALLOWED) as client:
        task = await client.send(message_with_schema({**WEATHER, 'additionalProperties': True}))
    assert task['artifacts'][0]['parts'][0]['data']['result'] == {**PARIS, 'more': 1}
    assert len(forecaster.retries) == 1


@covers('failed run')
async def test_task_fails_when_output_never_fits_schema() -> None:
    forecaster = Forecaster({'city': 'Paris'}, {'city': 'Paris'})
    async with serving(forecaster.agent, results=ALLOWED) as client:
        task = await client.send(message_with_schema())
    assert state_of(task) == 'FAILED'
    assert 'artifacts' not in task


@covers('data part')
async def test_client_schema_replaces_output_type_of_agent() -> None:
    forecaster = Forecaster(PARIS, {'name': 'Margherita'}, output_type=Pizza)
    async with serving(forecaster.agent, results=ALLOWED) as client:
        assert data_of(await client.send(message_with_schema())) == PARIS
        other = await client.send('A pizza.')
    assert other['artifacts'][0]['parts'][0]['data'] == {'result': {'name': 'Margherita'}}


@covers('data part')
async def test_schema_references_are_inlined() -> None:
    class Stop(BaseModel):
        name: str

    class Trip(BaseModel):
        stops: list[Stop]

    async with serving(Agent('test'), results=ALLOWED) as client:
        task = await client.send(message_with_schema(Trip.model_json_schema()))
    part = task['artifacts'][0]['parts'][0]
    assert part['data'] == {'result': {'stops': [{'name': 'a'}]}}
    assert '$ref' not in json.dumps(part['metadata']['json_schema'])


@covers('data part')
@pytest.mark.parametrize(
    ('title', 'name'),
    [('Wetter für Köln', 'WetterfrKln'), ('x' * 1_000, 'x' * 40), ('日本', 'Answer'), (None, 'Answer')],
)
async def test_schema_title_becomes_valid_tool_name(title: str | None, name: str) -> None:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        names.append((info.output_tools[0].name, info.output_tools[1].name))
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, PARIS)])

    names: list[tuple[str, str]] = []
    schema = {key: value for key, value in {**WEATHER, 'title': title}.items() if value is not None}
    agent = Agent(FunctionModel(model), output_type=[str, InputRequired])
    async with serving(agent, results=ALLOWED) as client:
        task = await client.send(message_with_schema(schema))
    [part] = task['artifacts'][0]['parts']
    assert names == [(f'final_result_{name}', 'final_result_InputRequired')]
    assert part['data']['result'] == PARIS
    assert part['metadata']['json_schema'] == schema


# Waiting.


@covers('data part')
async def test_schema_still_applies_after_question() -> None:
    forecaster = Forecaster({'question': 'Which Paris?'}, PARIS, output_type=[str, InputRequired])
    forecaster.tool = 'final_result_InputRequired'
    async with serving(forecaster.agent, results=ALLOWED) as client:
        task = await client.send(message_with_schema())
        assert state_of(task) == 'INPUT_REQUIRED'
        forecaster.tool = 'final_result_Weather'
        assert data_of(await client.send(message('The one in France.', taskId=task['id']))) == PARIS


@covers('data part')
@pytest.mark.parametrize('other', [False, True])
async def test_schema_applies_after_approval_unless_replaced(other: bool) -> None:
    agent = Agent(TestModel(custom_output_args={**PARIS, **({'more': 1} if other else {})}), output_type=[Pizza, str])

    @agent.tool(requires_approval=True)
    def look(ctx: RunContext[Any]) -> str:
        return 'looked'

    async with serving(agent, results=ALLOWED) as client:
        task = await client.send(message_with_schema())
        [call] = task['status']['message']['parts'][1]['data']['pending']
        wider = {**WEATHER, 'additionalProperties': True}
        metadata = {'metadata': {CLIENT_SCHEMA_URI: {'schema': wider}}} if other else {}
        done = await client.send(answer_message(task, approve(call['id']), **metadata))
    part = done['artifacts'][0]['parts'][0]
    assert part['metadata']['json_schema'] == (wider if other else WEATHER)
    assert part['data']['result'] == {**PARIS, **({'more': 1} if other else {})}


async def test_schema_is_kept_by_app_taking_over_task(tmp_path: Path) -> None:
    url = f'sqlite:///{tmp_path}/agent.db'
    agent = Agent(TestModel(custom_output_args=PARIS), name='agent')
    agent.tool_plain(requires_approval=True)(look_around)
    async with serving(agent, backend=url, results=ALLOWED) as client:
        task = await client.send(message_with_schema())
    async with serving(agent, backend=url, results=ALLOWED) as client:
        [call] = task['status']['message']['parts'][1]['data']['pending']
        assert data_of(await client.send(answer_message(task, approve(call['id'])))) == PARIS


def look_around() -> str:
    return 'looked'


@covers('data part')
async def test_schema_of_queued_message_applies_to_its_own_run() -> None:
    gates = GatedAgent()

    async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if isinstance(messages[-1].parts[-1], ToolReturnPart):
            return ModelResponse(parts=[ToolCallPart('final_result', PARIS)])
        await gates.answer(messages, info)
        if gates.began[-1] == 'one':
            return ModelResponse(parts=[ToolCallPart('look_around', {}, 'c1')])
        return ModelResponse(parts=[ToolCallPart('final_result', {**PARIS, 'more': 1})])

    agent = Agent(FunctionModel(model))
    agent.tool_plain(requires_approval=True)(look_around)
    wider = {**WEATHER, 'additionalProperties': True}
    async with serving(agent, results=ALLOWED) as client:
        task = await client.send(message_with_schema(text='one'), returnImmediately=True)
        await gates.reached('one')
        ids = {'taskId': task['id'], 'contextId': task['contextId']}
        await client.send(message_with_schema(wider, text='two', **ids), returnImmediately=True)
        async with client.subscribe(task['id']) as stream:
            gates.open('one', 'two')
            await stream.until('TASK_STATE_INPUT_REQUIRED')
        task = await client.get_task(task['id'])
        await client.send(answer_message(task, approve()), returnImmediately=True)
        done = await wait_until_ended(client, task['id'])
    parts = [part for artifact in done['artifacts'] for part in artifact['parts']]
    assert [(part['data']['result'], part['metadata']['json_schema']) for part in parts] == [
        (PARIS, WEATHER),
        ({**PARIS, 'more': 1}, wider),
    ]


@covers('data part')
async def test_schema_applies_only_to_its_own_message() -> None:
    forecaster = Forecaster(PARIS)
    async with serving(forecaster.agent, results=ALLOWED) as client:
        task = await client.send(message_with_schema(contextId='c'))
        assert data_of(task) == PARIS
        assert texts(await client.send(message('And in words?', contextId='c'))) == ['in words']


# Other ways to answer.


@covers('data part')
async def test_text_only_client_gets_data_as_text() -> None:
    async with serving(Forecaster(PARIS).agent, results=ALLOWED) as client:
        task = await client.send(message_with_schema(), acceptedOutputModes=['text/plain'])
        assert json.loads(texts(task)[0]) == PARIS
        error = await error_of_call(client.send(message_with_schema(), acceptedOutputModes=['image/png']))
    assert error.code == -32005


async def test_direct_reply_fits_client_schema() -> None:
    async with serving(Forecaster(PARIS).agent, results=ALLOWED, messages=Messages(reply='message')) as client:
        answer = await client.call('SendMessage', {'message': message_with_schema()})
    assert answer['message']['parts'][0]['data'] == {'result': PARIS}


@covers('data part')
async def test_stream_with_client_schema_sends_only_data() -> None:
    agent = Agent(TestModel(custom_output_args=PARIS))
    results = Results(client_schemas=True, progress=Progress(partial_data=True), interval=0)
    async with serving(agent, results=results) as client:
        async with client.send_streaming(message_with_schema()) as stream:
            events = [event.result for event in await stream.rest()]
        task = await wait_until_ended(client, events[0]['task']['id'])
    updates = [event['artifactUpdate']['artifact'] for event in events if 'artifactUpdate' in event]
    assert all('data' in artifact['parts'][0] for artifact in updates)
    assert updates[0]['metadata'] == {'progress': 'partial'}
    assert data_of(task) == PARIS


@covers('data part')
async def test_message_without_schema_gets_text_despite_partial_data() -> None:
    results = Results(client_schemas=True, progress=Progress(partial_data=True))
    async with serving(Forecaster().agent, results=results) as client:
        assert texts(await client.send('In words, please.')) == ['in words']


# Refusals.


@covers('data part')
async def test_schema_is_refused_by_server_without_schema_support() -> None:
    for agent, results in ((Agent('test'), Results()), (validating(), ALLOWED)):
        async with serving(agent, results=results) as client:
            card = (await client.get('/.well-known/agent-card.json')).json
            assert CLIENT_SCHEMA_URI not in {extension['uri'] for extension in card['capabilities']['extensions']}
            error = await error_of_call(client.send(message_with_schema()))
            assert await list_tasks(client) == []
        assert error.code == -32004
        assert str(error).startswith('-32004 The agent takes no JSON Schema of the client for its answer')


def validating() -> Agent[Any, str]:
    agent = Agent('test')
    agent.output_validator(lambda output: output)
    return agent


@covers('data part')
async def test_schema_is_refused_once_agent_has_output_validator() -> None:
    agent = Agent('test')
    async with serving(agent, results=ALLOWED) as client:
        agent.output_validator(lambda output: output)
        error = await error_of_call(client.send(message_with_schema()))
        assert await list_tasks(client) == []
    assert error.code == -32004


CIRCLE = {'type': 'object', 'properties': {'next': {'$ref': '#/$defs/N'}}}
BAD: dict[str, tuple[Any, str]] = {
    'no object': ({CLIENT_SCHEMA_URI: 1}, f'{FIELD}: must be an object with a "schema"'),
    'no schema': ({CLIENT_SCHEMA_URI: {}}, f'{FIELD}: must be an object with a "schema"'),
    'text': ({CLIENT_SCHEMA_URI: {'schema': {'type': 'string'}}}, f'{FIELD}.schema.type: must be "object"'),
    'another document': (
        {CLIENT_SCHEMA_URI: {'schema': {'type': 'object', 'properties': {'a': {'$ref': 'https://example.com'}}}}},
        f'{FIELD}.schema.properties.a.$ref: must be "#/$defs/" and the name of a schema in "$defs"',
    ),
    'recursion': (
        {CLIENT_SCHEMA_URI: {'schema': {**CIRCLE, '$defs': {'N': CIRCLE}}}},
        f'{FIELD}.schema.$defs.N: must not refer to itself: recursion is not supported',
    ),
    'too large': (
        {CLIENT_SCHEMA_URI: {'schema': {'type': 'object', 'description': 'x' * 33_000}}},
        f'{FIELD}.schema: must not have more than 32000 bytes of JSON',
    ),
    'a rule that is not checked': (
        {
            CLIENT_SCHEMA_URI: {
                'schema': {'type': 'object', 'properties': {'a': {'type': 'string', 'pattern': '(a+)+$'}}}
            }
        },
        f'{FIELD}.schema.properties.a.pattern: is not supported: remove the rule',
    ),
}


@covers('data part')
async def test_unusable_schema_is_refused_before_storing(subtests: pytest.Subtests) -> None:
    forecaster = Forecaster()
    async with serving(forecaster.agent, results=ALLOWED) as client:
        for case, (metadata, problem) in BAD.items():
            with subtests.test(case):
                error = await error_of_call(client.send(message(metadata=metadata)))
                assert await list_tasks(client) == []
                assert error.code == -32602
                assert str(error) == f'-32602 Invalid parameters: {problem}'
                assert forecaster.schemas == []


@covers('card')
async def test_agent_card_declares_client_schema_extension() -> None:
    async with serving(Agent('test'), results=ALLOWED) as client:
        card = (await client.get('/.well-known/agent-card.json')).json
    [declared] = [item for item in card['capabilities']['extensions'] if item['uri'] == CLIENT_SCHEMA_URI]
    assert declared['description'] == snapshot(
        'A message may have a JSON Schema in its metadata. The answer is then data that fits the schema.'
    )


def test_task_state_types_are_found_in_output_types() -> None:
    def ask(question: str) -> InputRequired:
        return InputRequired(question)

    tool = ToolOutput(InputRequired, name='ask')
    assert [*states_of(str)] == [*states_of([str, Pizza])] == []
    assert [*states_of([Pizza, InputRequired, [AuthRequired]])] == [InputRequired, AuthRequired]
    assert [*states_of([ask, tool, Pizza | InputRequired])] == [ask, tool, InputRequired]
    assert [*states_of(NativeOutput([Pizza, InputRequired]))] == [InputRequired]
