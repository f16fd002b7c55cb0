"""Answers of clients that write plain text, or data without this package's envelope: which count, and what is asked."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Approvals, AuthRequired, InputRequired, Limits
from pydantic_ai_a2a.server.audit import LOGGER
from pydantic_ai_a2a.server.conversion.answers_in_words import instruction
from pydantic_ai_a2a.wire.schemas.value_validation import problem

from ...agents import call_output_tool, echo_prompts, scripted_model, tool_returns, user_prompts
from ...app_client import Client, RpcError, message, state_of, texts
from ...cases import each_case
from ...logs import audit_records
from ...serving import serving
from ..faulty_queues import run_before_submit
from ..pending_calls import (
    DEFERRED_ROW,
    ApprovalAgent,
    answer_message,
    approve,
    message_with_call_ids,
    pending_call_ids,
    pending_calls,
)
from ..promised_behaviours import covering

pytestmark = covering(DEFERRED_ROW)

TEXT_APPROVES: dict[str, Any] = {'approvals': Approvals(plain_text_answers='all')}
DENIAL_HINT = (
    'Write "no" or "no: reason" to deny the call. Plain words cannot approve it; approving takes data that fits'
    ' "messageSchema" beside this text.'
)


def question_text(task: dict[str, Any]) -> str:
    """What a person reads."""
    return task['status']['message']['parts'][0]['text']


def message_schema(task: dict[str, Any]) -> dict[str, Any]:
    """JSON Schema of the message that answers."""
    [data] = [part['data'] for part in task['status']['message']['parts'] if 'data' in part]
    return data['messageSchema']


async def refused(client: Client, sent: dict[str, Any]) -> RpcError:
    with pytest.raises(RpcError) as error:
        await client.send(sent)
    assert error.value.code == -32602
    return error.value


@pytest.mark.parametrize(
    ('words', 'said'),
    [
        ('no', 'delete + The tool call was denied.'),
        ('No: keep it', 'delete + keep it'),
    ],
)
async def test_plain_text_denies_by_default(words: str, said: str) -> None:
    tools = ApprovalAgent()
    async with serving(tools.agent) as client:
        task = await client.send('delete')
        assert texts(await client.send(message(words, taskId=task['id']))) == [said]
    assert tools.deleted == []


@pytest.mark.parametrize(
    'option', [{}, {'approvals': Approvals(plain_text_answers=['look'])}], ids=['default', 'another tool']
)
async def test_plain_text_does_not_approve_by_default(option: dict[str, Any]) -> None:
    tools = ApprovalAgent()
    async with serving(tools.agent, **option) as client:
        task = await client.send('delete')
        error = await refused(client, message('yes', taskId=task['id']))
        assert await client.get_task(task['id']) == task
    first, what = question_text(task).splitlines()
    assert (first, what) == ('May I call delete {"path":"a"}?', DENIAL_HINT)
    assert what.removesuffix('.') in str(error)
    assert (error.fields, tools.deleted) == (['message.parts'], [])


@each_case('option', [TEXT_APPROVES, {'approvals': Approvals(plain_text_answers=['delete'])}], ids=['all', 'named'])
async def test_plain_text_approves_with_the_option(option: dict[str, Any]) -> None:
    tools = ApprovalAgent()
    async with serving(tools.agent, **option) as client:
        task = await client.send('delete')
        assert question_text(task).endswith('Write "yes" to approve the call, or "no" or "no: reason" to deny it.')
        assert texts(await client.send(message('yes', taskId=task['id']))) == ['delete + deleted a']
    assert tools.deleted == [('a', True)]


async def test_unclear_plain_text_repeats_question_without_longer_wait() -> None:
    tools, words = ApprovalAgent(), 'yes, but only a'
    async with serving(tools.agent, **TEXT_APPROVES) as client:
        task = await client.send('delete')
        again = await client.send(message(words, taskId=task['id']))
        assert (state_of(again), pending_calls(again), tools.deleted) == ('INPUT_REQUIRED', pending_calls(task), [])
        assert question_text(again) == f'The answer is not clear.\n{question_text(task)}'
        assert again['status']['timestamp'] == task['status']['timestamp']
        done = await client.send(message('yes', taskId=task['id']))
    assert texts(done) == ['delete + deleted a']
    said = [each['parts'][0].get('text') for each in done['history']]
    assert said[:5] == ['delete', question_text(task), words, question_text(again), 'yes']


async def test_unclear_answers_count_against_the_message_limit() -> None:
    tools = ApprovalAgent()
    async with serving(tools.agent, limits=Limits(messages=2), **TEXT_APPROVES) as client:
        task = await client.send('delete')
        await client.send(message('maybe', taskId=task['id']))
        again = await client.send(message('maybe', taskId=task['id']))
        error = await refused(client, message('maybe', taskId=task['id']))
        assert await client.get_task(task['id']) == again
        assert texts(await client.send(message('yes', taskId=task['id']))) == ['delete + deleted a']
    assert question_text(task).splitlines()[1].removesuffix('.') in str(error)


@each_case(
    ('prompt', 'option', 'what'),
    [
        ('delete two', TEXT_APPROVES, 'The task needs several answers'),
        ('fetch', TEXT_APPROVES, 'Plain words cannot answer this.'),
        ('delete', {'approvals': Approvals(plain_text_answers='none')}, 'Plain words cannot answer this.'),
        ('ask', {'approvals': Approvals(plain_text_answers='none')}, 'Plain words cannot answer this.'),
    ],
    ids=['several', 'external', 'none, approval', 'none, question'],
)
@each_case('words', ['yes', 'no', 'large'])
async def test_inapplicable_plain_text_is_refused(prompt: str, option: dict[str, Any], what: str, words: str) -> None:
    tools = ApprovalAgent()
    async with serving(tools.agent, **option) as client:
        task = await client.send(prompt)
        error = await refused(client, message(words, taskId=task['id']))
        assert await client.get_task(task['id']) == task
    assert what in question_text(task)
    assert question_text(task).splitlines()[-1].removesuffix('.') in str(error)
    assert tools.deleted == []


async def test_plain_text_decides_the_last_pending_call() -> None:
    async with serving(ApprovalAgent().agent, **TEXT_APPROVES) as client:
        task = await client.send('delete two')
        half = await client.send(answer_message(task, approve('c2')))
        assert 'Write "yes"' in question_text(half)
        done = await client.send(message('no', taskId=task['id']))
    assert texts(done) == ['delete two + The tool call was denied. + deleted b']


async def test_plain_text_to_new_task_does_not_decide() -> None:
    tools = ApprovalAgent()
    async with serving(tools.agent, **TEXT_APPROVES) as client:
        task = await client.send('delete')
        await client.send(message('yes', contextId=task['contextId']))
        assert await client.get_task(task['id']) == task
    assert tools.deleted == []


async def test_overtaken_plain_text_does_not_approve_next_call() -> None:
    """A `yes` was accepted while the first call waited; another client has answered that meanwhile."""

    tools, calls = ApprovalAgent(), [ToolCallPart('delete', {'path': path}, f'c{n}') for n, path in enumerate('ab')]
    with tools.agent.override(model=scripted_model(*calls, 'done')):
        async with serving(tools.agent, **TEXT_APPROVES) as client:
            task = await client.send('delete both')
            late, first = message('yes', taskId=task['id']), answer_message(task, approve('c0'))
            run_before_submit(client.a2a_app, lambda: client.send(first))
            again = await client.send(late)
    assert (state_of(again), pending_call_ids(again)) == ('INPUT_REQUIRED', ['c1'])
    assert question_text(again).startswith('The answer is not clear.')
    assert tools.deleted == [('a', True)]


@pytest.mark.parametrize(
    ('words', 'decision', 'deleted'),
    [
        ('Fine with me.', 'approve', [('a', True)]),
        ('yes', 'approve', [('a', True)]),
        ('no', 'approve', None),
        ('No: keep it', 'approve', None),
        ('yes', 'deny', None),
        ('no', 'deny', []),
    ],
)
async def test_data_decides_and_contradicting_text_repeats_question(
    words: str, decision: str, deleted: list[Any] | None
) -> None:
    tools = ApprovalAgent()
    async with serving(tools.agent) as client:
        task = await client.send('delete')
        data = {'data': {'callAnswers': [{'id': 'c1', 'decision': decision}]}}
        after = await client.send(message_with_call_ids(task, [{'text': words}, data]))
    if deleted is None:
        assert (state_of(after), pending_calls(after), tools.deleted) == ('INPUT_REQUIRED', pending_calls(task), [])
    else:
        assert (state_of(after), tools.deleted) == ('COMPLETED', deleted)
        assert words not in texts(after)[0]


async def test_unclear_answer_is_not_audited(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    async with serving(ApprovalAgent().agent, **TEXT_APPROVES) as client:
        task = await client.send('delete')
        again = await client.send(message('maybe', taskId=task['id']))
        assert [each.get('metadata') for each in again['history'] if each['role'] == 'ROLE_USER'] == [None, None]
        assert not caplog.records
        await client.send(message('no', taskId=task['id']))
    assert [record['decisions'] for record in audit_records(caplog)] == [{'c1': 'deny'}]


# --- the schema of the whole message --------------------------------------------------------------------------------


class Place(BaseModel):
    name: str


class Number:
    """Has another type of the same name."""

    class Place(BaseModel):
        name: int


async def test_message_schema_accepts_valid_and_rejects_invalid_answers() -> None:
    calls = [
        ToolCallPart('go', {'to': {'name': 'x'}, 'by': 'bus'}, 'g'),
        ToolCallPart('dial', {'to': {'name': 1}, 'by': 'phone'}, 'd'),
    ]
    agent = Agent(scripted_model(calls, 'done'))

    @agent.tool_plain(requires_approval=True)
    def go(to: Place, by: str) -> str:
        return to.name

    @agent.tool_plain(requires_approval=True)
    def dial(to: Number.Place, by: str) -> str:
        return by

    async with serving(agent) as client:
        task = await client.send('go')
        schema = message_schema(task)
        good = [approve('g', args={'to': {'name': 'y'}, 'by': 'car'}), approve('d', args={'to': {'name': 2}, 'by': ''})]
        for bad in ([approve('g', args={'to': {'name': 1}, 'by': 'car'})], [approve('x')], [], [*good, *good]):
            assert problem(answer_message(task, *bad), schema, 'message') is not None
        assert problem({**answer_message(task, *good), 'taskId': 'another'}, schema, 'message') is not None
        sent = answer_message(task, *good)
        assert problem(sent, schema, 'message') is None
        assert state_of(await client.send(sent)) == 'COMPLETED'


# --- questions ------------------------------------------------------------------------------------------------------


def agent_asking_by_tool(schema: dict[str, Any] | None, seen: list[Any]) -> Agent[object, str]:
    """An agent whose tool asks how many, and what it is told."""

    def answer(messages: list[ModelMessage], _: AgentInfo) -> str:
        seen.extend(part.content for part in tool_returns(messages))
        return 'done'

    agent = Agent(scripted_model(ToolCallPart('work', {}, 'c1'), answer))

    @agent.tool_plain
    def work() -> str:
        raise InputRequired('How many?', schema)

    return agent


EMPTY: dict[str, Any] = {}
THREE: dict[str, Any] = {'id': 'c1', 'decision': 'result', 'result': 3}
INTEGER: dict[str, Any] = {'type': 'integer', 'minimum': 1}
NUMBER: dict[str, Any] = {'type': 'number'}
STRING: dict[str, Any] = {'type': 'string', 'minLength': 2}
ONE_OF: dict[str, Any] = {'type': 'string', 'enum': ['few', 'many']}
OBJECT: dict[str, Any] = {'type': 'object', 'properties': {'n': {'type': 'integer'}}, 'required': ['n']}


@each_case(
    ('schema', 'parts', 'value'),
    [
        (None, [{'text': 'three'}], 'three'),
        (INTEGER, [{'text': ' 3 '}], 3),
        (INTEGER, [{'text': '1e3'}], 1000),
        (INTEGER, [{'data': 3.0}], 3),
        (INTEGER, [{'data': {'callAnswers': [{'id': 'c1', 'decision': 'result', 'result': 3.0}]}}], 3),
        (NUMBER, [{'text': '1e3'}], 1000.0),
        (NUMBER, [{'text': '2.5'}], 2.5),
        (STRING, [{'text': 'three'}], 'three'),
        (ONE_OF, [{'text': 'many'}], 'many'),
        (INTEGER, [{'data': 3}], 3),
        (OBJECT, [{'data': {'n': 3}}], {'n': 3}),
        (OBJECT, [{'data': {'n': 3}}, {'text': 'Three, please.'}], {'n': 3}),
        (INTEGER, [{'text': '3'}, {'data': 3}], 3),
        (
            INTEGER,
            [{'text': 'Three, please.'}, {'data': {'callAnswers': [{'id': 'c1', 'decision': 'result', 'result': 3}]}}],
            3,
        ),
    ],
)
async def test_question_accepts_matching_data_or_plain_text(
    schema: dict[str, Any] | None, parts: list[Any], value: Any
) -> None:
    seen: list[Any] = []
    async with serving(agent_asking_by_tool(schema, seen)) as client:
        task = await client.send('hi')
        assert state_of(await client.send(message_with_call_ids(task, parts))) == 'COMPLETED'
    assert repr(seen) == repr([value])


@each_case(
    ('schema', 'parts'),
    [
        (INTEGER, [{'text': 'three'}]),
        (INTEGER, [{'text': '0'}]),
        (INTEGER, [{'text': '2.5'}]),
        (NUMBER, [{'text': 'true'}]),
        (NUMBER, [{'text': '1e999'}]),
        (STRING, [{'text': 'x'}]),
        (ONE_OF, [{'text': 'some'}]),
        (ONE_OF, [{'text': 'few'}, {'data': 'many'}]),
        (INTEGER, [{'text': '4'}, {'data': 3}]),
        (INTEGER, [{'text': '4'}, {'data': {'callAnswers': [THREE]}}]),
    ],
)
async def test_unfitting_or_contradicting_text_repeats_the_question(schema: dict[str, Any], parts: list[Any]) -> None:
    seen: list[Any] = []
    async with serving(agent_asking_by_tool(schema, seen)) as client:
        task = await client.send('hi')
        again = await client.send(message_with_call_ids(task, parts))
    assert (state_of(again), question_text(again)) == (
        'INPUT_REQUIRED',
        f'The answer is not clear.\n{question_text(task)}',
    )
    assert seen == []


@pytest.mark.parametrize(
    ('schema', 'parts', 'field'),
    [
        (OBJECT, [{'text': 'three'}], 'message.parts'),
        (OBJECT, [{'data': EMPTY}], 'message.parts[0].data.n'),
        (INTEGER, [{'text': '3'}, {'data': 'three'}], 'message.parts[1].data'),
        (INTEGER, [{'data': 3}, {'data': 3}], 'message.parts'),
        (None, [{'data': 3}], 'message.parts'),
    ],
)
async def test_data_outside_the_question_schema_is_refused(
    schema: dict[str, Any] | None, parts: list[Any], field: str
) -> None:
    async with serving(agent_asking_by_tool(schema, [])) as client:
        task = await client.send('hi')
        error = await refused(client, message(parts=parts, taskId=task['id']))
        assert await client.get_task(task['id']) == task
    assert error.fields == [field]


def test_question_explains_the_accepted_plain_text() -> None:
    said = [instruction('question', 'work', schema, Approvals()) for schema in (None, INTEGER, NUMBER, STRING, ONE_OF)]
    assert said == snapshot(['', 'Write a whole number.', 'Write a number.', '', 'Write one of these: few, many.'])


def agent_asking_by_output(schema: dict[str, Any]) -> Agent[object, Any]:
    """An agent that asks by an output type, and says at last what it was told."""

    def which(question: str) -> InputRequired:
        return InputRequired(question, schema)

    return Agent(scripted_model(call_output_tool(question='How many?'), echo_prompts), output_type=[str, which])


@each_case(
    ('schema', 'parts', 'told'),
    [
        (INTEGER, [{'text': '3'}], 'COMPLETED'),
        (INTEGER, [{'data': 3}], 'COMPLETED'),
        (OBJECT, [{'data': {'n': 3}}, {'text': 'Three, please.'}], 'COMPLETED'),
        (INTEGER, [{'text': 'three'}], 'INPUT_REQUIRED'),
        (INTEGER, [{'text': '4'}, {'data': 3}], 'INPUT_REQUIRED'),
        (OBJECT, [{'text': 'three'}], ['message.parts']),
        (OBJECT, [{'data': EMPTY}], ['message.parts[0].data.n']),
        (INTEGER, [{'data': {'callAnswers': [approve()]}}], ['message.parts[0].data.callAnswers[0].id']),
    ],
)
async def test_schema_of_an_output_question_is_enforced(
    schema: dict[str, Any], parts: list[Any], told: str | list[str]
) -> None:
    async with serving(agent_asking_by_output(schema)) as client:
        task = await client.send('hi')
        [data] = [part['data'] for part in task['status']['message']['parts'] if 'data' in part]
        assert (data['pending'], data['schema']) == ([], schema)
        sent = message(parts=parts, taskId=task['id'])
        if isinstance(told, list):
            assert (await refused(client, sent)).fields == told
            assert await client.get_task(task['id']) == task
        else:
            after = await client.send(sent)
            assert state_of(after) == told
            if told == 'INPUT_REQUIRED':
                assert question_text(after) == f'The answer is not clear.\n{question_text(task)}'
            else:
                assert len(parts) == 2 or problem(sent, data['messageSchema'], 'message') is None


def agent_asking_twice(how: str, seen: list[Any]) -> Agent[object, Any]:
    """An agent that asks for two numbers, by a tool or by an output type, and what it is told."""

    def which(question: str) -> InputRequired:
        return InputRequired(question, INTEGER)

    def work() -> str:
        raise InputRequired('How many?', INTEGER)

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        returned = [part.content for each in messages for part in each.parts if isinstance(part, ToolReturnPart)]
        told = returned if how == 'tool' else user_prompts(messages)[1:]
        seen[:] = told
        if len(told) == 2:
            return ModelResponse(parts=[TextPart('done')])
        call = ToolCallPart('work', {}, f'c{len(told)}')
        output = ToolCallPart(info.output_tools[0].name, {'question': 'How many?'}) if how == 'output' else call
        return ModelResponse(parts=[output])

    return Agent(FunctionModel(answer), output_type=[str, which], tools=[work])


@pytest.mark.parametrize('how', ['tool', 'output'])
async def test_overtaken_data_does_not_answer_next_question(how: str) -> None:
    """The data was accepted while the first question waited; another client has answered that question meanwhile."""
    seen: list[Any] = []
    async with serving(agent_asking_twice(how, seen)) as client:
        task = await client.send('hi')
        first, late = (message(parts=[{'data': number}], taskId=task['id']) for number in (3, 4))
        run_before_submit(client.a2a_app, lambda: client.send(first))
        again = await client.send(late)
        assert (state_of(again), len(seen)) == ('INPUT_REQUIRED', 1)
        assert question_text(again).startswith('The answer is not clear.')
        done = await client.send(message(parts=[{'data': 5}], taskId=task['id']))
    assert (state_of(done), len(seen), '4' in str(seen)) == ('COMPLETED', 2, False)


@pytest.mark.parametrize('schema', [INTEGER, None])
async def test_overtaken_plain_text_does_not_answer_next_question(
    schema: dict[str, Any] | None,
) -> None:
    """The words were accepted while the first question waited; another client has answered that question meanwhile."""
    questions = [InputRequired('Who pays?'), InputRequired('How many?', schema)]

    def ask(_: str) -> InputRequired:
        return questions.pop()

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if not questions:
            return ModelResponse(parts=[TextPart(' + '.join(user_prompts(messages)))])
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {'_': ''})])

    async with serving(Agent(FunctionModel(answer), output_type=[str, ask]), **TEXT_APPROVES) as client:
        task = await client.send('hi')
        first, late = (message(words, taskId=task['id']) for words in ('3', '4'))
        run_before_submit(client.a2a_app, lambda: client.send(first))
        assert 'was sent before the task asked its current question' in (await refused(client, late)).message
        waiting = await client.get_task(task['id'])
        assert (state_of(waiting), question_text(waiting)) == ('INPUT_REQUIRED', 'Who pays?')
        done = await client.send(message('I', taskId=task['id']))
    assert texts(done) == ['hi + 3 + I']


async def test_plain_text_sent_before_pause_does_not_approve() -> None:
    """The `yes` was accepted while the task was still running."""
    asks = asyncio.Event()

    async def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        await asks.wait()
        return ModelResponse(parts=[ToolCallPart('delete', {'path': 'a'}, 'c1')])

    tools = ApprovalAgent()
    with tools.agent.override(model=FunctionModel(model)):
        async with serving(tools.agent, **TEXT_APPROVES) as client:
            app = client.a2a_app
            task = await client.send('delete', returnImmediately=True)

            async def ask() -> None:
                asks.set()
                await app.backend.events.wait(task['id'], 0)

            run_before_submit(app, ask)
            again = await client.send(message('yes', taskId=task['id']))
    assert (state_of(again), tools.deleted) == ('INPUT_REQUIRED', [])
    assert question_text(again).startswith('The answer is not clear.')


async def test_plain_text_off_refuses_text_for_output_question() -> None:
    async with serving(agent_asking_by_output(INTEGER), approvals=Approvals(plain_text_answers='none')) as client:
        task = await client.send('hi')
        error = await refused(client, message('3', taskId=task['id']))
    assert question_text(task).splitlines()[-1].removesuffix('.') in str(error)


async def test_plain_text_does_not_sign_in() -> None:
    calls: list[str] = []

    agent = Agent(scripted_model(ToolCallPart('work', {}, 'c1')))

    @agent.tool_plain
    def work() -> str:
        calls.append('work')
        raise AuthRequired('Please sign in.')

    async with serving(agent, **TEXT_APPROVES) as client:
        task = await client.send('hi')
        after = await client.send(message('yes', taskId=task['id']))
    assert (state_of(task), state_of(after), calls) == ('AUTH_REQUIRED', 'AUTH_REQUIRED', ['work', 'work'])
