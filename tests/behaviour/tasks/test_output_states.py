"""States that an agent chooses for its task: it asks, sends its user to sign in, or declines."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import pytest
from inline_snapshot import Is, snapshot
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import AuthRequired, InputRequired, Rejected
from pydantic_ai_a2a.errors import TaskNotFoundError, UnsupportedOperationError

from ...agents import user_prompts
from ...app_client import RpcError, message, state_of, texts
from ...serving import list_tasks, serving, wait_until_ended
from ..faulty_queues import BeforeSubmit
from ..pending_calls import answer_message, approve, pending_calls


class Pizza(BaseModel):
    kind: str


def order_pizza(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Asks for the kind by the output tool that is for it, until something else than a pizza is named."""
    said = user_prompts(messages)
    names = {tool.name: tool for tool in info.output_tools}
    if 'pizza' in said[-1]:
        asking = next(name for name in names if 'Pizza' not in name)
        [field] = names[asking].parameters_json_schema['properties']
        return ModelResponse(parts=[ToolCallPart(asking, {field: 'What kind?'})])
    done = next(name for name in names if 'Pizza' in name)
    return ModelResponse(parts=[ToolCallPart(done, {'kind': said[-1]})])


def ask_user(question: str) -> InputRequired:
    return InputRequired(question)


def raise_question(question: str) -> str:
    raise InputRequired(question)


def status_text(task: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each['role'].removeprefix('ROLE_'), each['parts'][0].get('text', '')) for each in task['history']]


@pytest.mark.parametrize('asks', [InputRequired, ask_user, raise_question], ids=['type', 'function', 'raised'])
async def test_question_answer_and_result_share_a_task(asks: Any) -> None:
    async with serving(Agent(FunctionModel(order_pizza), output_type=[Pizza, asks])) as client:
        task = await client.send('I want a pizza')
        assert (state_of(task), task['status']['message']['parts'][0]['text']) == ('INPUT_REQUIRED', 'What kind?')
        done = await client.send(message('Margherita', taskId=task['id']))
    assert (done['id'], state_of(done)) == (task['id'], 'COMPLETED')
    assert done['artifacts'][0]['parts'][0]['data'] == {'result': {'kind': 'Margherita'}}
    assert status_text(done) == [('USER', 'I want a pizza'), ('AGENT', 'What kind?'), ('USER', 'Margherita')]


async def test_state_output_types_have_description_and_single_field() -> None:
    model = TestModel()
    agent = Agent(model, output_type=[Pizza, InputRequired, AuthRequired, Rejected])
    await agent.run('hi')
    assert model.last_model_request_parameters is not None
    shown = [
        (tool.description, tool.parameters_json_schema['properties'])
        for tool in model.last_model_request_parameters.output_tools
    ]
    assert shown[1:] == snapshot(
        [
            ('Ask the user for something that you need to go on.', {'question': {'type': 'string'}}),
            ('Ask the user to sign in where you have no access.', {'message': {'type': 'string'}}),
            ('Decline to do the task at all.', {'reason': {'type': 'string'}}),
        ]
    )


def test_state_exceptions_survive_pickling() -> None:
    for state in (InputRequired('What?', {'type': 'string'}), AuthRequired('Sign in.', ['sso'], 'https://a.example')):
        again = pickle.loads(pickle.dumps(state))
        assert (repr(again), again.metadata) == (repr(state), state.metadata)
    assert repr(pickle.loads(pickle.dumps(Rejected('No.')))) == repr(Rejected('No.'))


@dataclass
class AskingToolAgent:
    """An agent with one tool that asks; and what it was asked for."""

    state: Exception | None
    calls: int = 0

    @property
    def agent(self) -> Agent[object, str]:
        agent = Agent(FunctionModel(self._model))
        agent.tool_plain(self.work)
        return agent

    async def work(self) -> str:
        self.calls += 1
        if self.state is not None:
            raise self.state
        return 'worked'

    def _model(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        returned = [part for sent in messages for part in sent.parts if isinstance(part, ToolReturnPart)]
        if returned:
            return ModelResponse(parts=[TextPart(f'{user_prompts(messages)} {returned[-1].content}')])
        return ModelResponse(parts=[ToolCallPart('work', {}, 'c1')])


async def test_answer_to_tool_must_fit_requested_schema() -> None:
    desk = AskingToolAgent(InputRequired('How many?', {'type': 'integer', 'minimum': 1}))
    async with serving(desk.agent) as client:
        task = await client.send('hi')
        refused: list[Any] = []
        for answer in ({'result': 0}, {'result': 'many'}):
            with pytest.raises(RpcError) as error:
                await client.send(answer_message(task, {'id': 'c1', 'decision': 'result', **answer}))
            refused.append((error.value.code, error.value.fields))
        done = await client.send(answer_message(task, {'id': 'c1', 'decision': 'result', 'result': 3}))
    assert task['status']['message']['parts'][0]['text'] == 'How many?\nWrite a whole number.'
    assert refused == [(-32602, ['message.parts[0].data.callAnswers[0].result'])] * 2
    assert (texts(done), desk.calls) == (["['hi'] 3"], 1)


async def test_text_sent_with_sign_in_survives_tool_question() -> None:
    desk = AskingToolAgent(AuthRequired('Sign in.'))
    async with serving(desk.agent) as client:
        task = await client.send('hi')
        desk.state = InputRequired('How many?')
        waiting = await client.send(message('Signed in.', taskId=task['id']))
        done = await client.send(answer_message(waiting, {'id': 'c1', 'decision': 'result', 'result': 3}))
    assert texts(done) == ["['hi', 'Signed in.'] 3"]


@pytest.mark.parametrize('way', ['call', 'message'])
async def test_tool_reruns_after_sign_in(way: str) -> None:
    desk = AskingToolAgent(AuthRequired('Sign in.', schemes=['sso'], url='https://sso.example/'))
    async with serving(desk.agent) as client:
        task = await client.send('hi')
        desk.state = None
        if way == 'call':
            assert (await client.a2a_app.resume_task(task['id']))['id'] == task['id']
            done = await wait_until_ended(client, task['id'])
            assert texts(done) == ["['hi', 'Access was granted.'] worked"]
        else:
            done = await client.send(message('Signed in.', taskId=task['id']))
            assert texts(done) == ["['hi', 'Signed in.'] worked"]
        with pytest.raises(UnsupportedOperationError):
            await client.a2a_app.resume_task(task['id'])
        with pytest.raises(TaskNotFoundError):
            await client.a2a_app.resume_task('nowhere')
    assert (state_of(task), desk.calls) == ('AUTH_REQUIRED', 2)
    [call] = pending_calls(task)
    assert [part.get('text') or part['data'] for part in task['status']['message']['parts']] == snapshot(
        [
            'Sign in.',
            {
                'pending': [
                    {
                        'id': Is(call['id']),
                        'toolCallId': 'c1',
                        'kind': 'authorization',
                        'tool': 'work',
                        'text': 'Sign in.',
                        'args': {},
                        'metadata': {'schemes': ['sso'], 'url': 'https://sso.example/'},
                    }
                ]
            },
        ]
    )


async def test_approval_of_a_sign_in_is_refused() -> None:
    desk = AskingToolAgent(AuthRequired('Sign in.'))
    async with serving(desk.agent) as client:
        task = await client.send('hi')
        with pytest.raises(RpcError) as refused:
            await client.send(answer_message(task, {'id': 'c1', 'decision': 'approve'}))
        assert await client.get_task(task['id']) == task
    assert (refused.value.code, refused.value.fields) == (-32602, ['message.parts[0].data.callAnswers[0].id'])


async def test_second_concurrent_resume_of_task_is_refused() -> None:
    desk = AskingToolAgent(AuthRequired('Sign in.'))
    async with serving(desk.agent) as client:
        app = client.a2a_app
        task = await client.send('hi')
        desk.state = None
        app.backend.queue = BeforeSubmit(app.backend.queue, lambda: app.resume_task(task['id']))
        with pytest.raises(UnsupportedOperationError):
            await app.resume_task(task['id'])
        assert texts(await wait_until_ended(client, task['id'])) == ["['hi', 'Access was granted.'] worked"]
    assert desk.calls == 2


async def test_resume_does_not_answer_auth_request_made_meanwhile() -> None:
    desk = AskingToolAgent(AuthRequired('Sign in.'))
    async with serving(desk.agent) as client:
        app = client.a2a_app
        task = await client.send('hi')
        first = message('Signed in.', taskId=task['id'])
        app.backend.queue = BeforeSubmit(app.backend.queue, lambda: client.send(first))
        with pytest.raises(UnsupportedOperationError, match='auth-required, and no longer waits for this answer'):
            await app.resume_task(task['id'])
        assert desk.calls == 2
        desk.state = None
        await app.resume_task(task['id'])
        done = await wait_until_ended(client, task['id'])
    assert [text for role, text in status_text(done) if role == 'USER'] == ['hi', 'Signed in.', 'Access was granted.']


async def test_resume_does_not_answer_question_asked_meanwhile() -> None:
    states = [InputRequired('Which pizza?'), AuthRequired('Sign in.')]

    def ask(_: str) -> InputRequired | AuthRequired:
        return states.pop()

    async with serving(Agent(FunctionModel(order_pizza), output_type=[Pizza, ask])) as client:
        app = client.a2a_app
        task = await client.send('I want a pizza')
        first = message('A pizza, as I said', taskId=task['id'])
        app.backend.queue = BeforeSubmit(app.backend.queue, lambda: client.send(first))
        with pytest.raises(UnsupportedOperationError, match='input-required, and no longer waits for this answer'):
            await app.resume_task(task['id'])
        asked = await client.get_task(task['id'])
    assert (state_of(task), state_of(asked)) == ('AUTH_REQUIRED', 'INPUT_REQUIRED')


async def test_missing_credentials_are_requested_repeatedly() -> None:
    desk = AskingToolAgent(AuthRequired('Sign in.'))
    async with serving(desk.agent) as client:
        task = await client.send('hi')
        again = await client.send(message('Signed in.', taskId=task['id']))
    assert (state_of(again), desk.calls) == ('AUTH_REQUIRED', 2)


async def test_agent_output_may_require_sign_in() -> None:
    def sign_in(question: str) -> AuthRequired:
        return AuthRequired(question, url='https://sso.example/')

    async with serving(Agent(FunctionModel(order_pizza), output_type=[Pizza, sign_in])) as client:
        task = await client.send('I want a pizza')
        await client.a2a_app.resume_task(task['id'], 'Margherita')
        done = await wait_until_ended(client, task['id'])
    assert (state_of(task), state_of(done)) == ('AUTH_REQUIRED', 'COMPLETED')
    assert task['status']['message']['parts'][1]['data'] == {
        'pending': [],
        'authorization': {'url': 'https://sso.example/'},
    }


async def test_tool_or_output_may_reject_task() -> None:
    desk = AskingToolAgent(Rejected('Not here.'))
    async with serving(desk.agent) as client:
        task = await client.send('hi')
        after = await client.send(message('hi', contextId=task['contextId']))
        assert len(await list_tasks(client, state='rejected')) == 2
    async with serving(Agent(FunctionModel(order_pizza), output_type=[Pizza, Rejected])) as client:
        other = await client.send('I want a pizza')
    assert [(state_of(each), each['status']['message']['parts'][0]['text']) for each in (task, after, other)] == [
        ('REJECTED', 'Not here.'),
        ('REJECTED', 'Not here.'),
        ('REJECTED', 'What kind?'),
    ]
    assert desk.calls == 2


async def test_sign_in_call_reruns_once_approvals_are_answered() -> None:
    desk = AskingToolAgent(AuthRequired('Sign in.'))
    agent = Agent(
        FunctionModel(
            lambda messages, _: ModelResponse(
                parts=[TextPart('done')]
                if isinstance(messages[-1].parts[-1], ToolReturnPart)
                else [ToolCallPart('work', {}, 'c1'), ToolCallPart('sign', {}, 'c2')]
            )
        )
    )
    agent.tool_plain(desk.work)

    @agent.tool_plain(requires_approval=True)
    async def sign() -> str:
        return 'signed'

    async with serving(agent) as client:
        task = await client.send('hi')
        desk.state = None
        done = await client.send(answer_message(task, approve('c2')))
    assert (state_of(task), texts(done), desk.calls) == ('INPUT_REQUIRED', ['done'], 2)
