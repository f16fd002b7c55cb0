"""Remote tasks that wait for their client: approvals, questions and sign-ins become deferred calls of the caller."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from pydantic import TypeAdapter
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.capabilities import RequestInput
from pydantic_ai.exceptions import CallDeferred, ModelAPIError, ModelRetry, UserError
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import RunContext

from pydantic_ai_a2a import (
    A2A,
    A2AApp,
    A2AClient,
    A2AModel,
    A2AToolset,
    Approvals,
    AuthRequired,
    InputRequired,
    Progress,
    RemoteAgent,
    Results,
    remote_results,
    serve,
    to_a2a,
)
from pydantic_ai_a2a.client.agents import toolset
from pydantic_ai_a2a.client.question_answers import answer_to
from pydantic_ai_a2a.client.questions import question_of_task
from pydantic_ai_a2a.errors import InvalidParamsError
from pydantic_ai_a2a.server.conversion.forwarded_questions import calls_for_clients
from pydantic_ai_a2a.server.conversion.pending_calls import PendingCall
from pydantic_ai_a2a.wire.extensions.remote_calls import WAITING

from ...agents import echo_tool_returns, scripted_model
from ...bounds import LIMIT
from ...cases import each_case
from ...serving import running_app
from ..canned_agent import (
    TASK,
    CannedAgent,
    agent_message,
    result_response,
    serve_canned,
    stream_response,
    task_in_state,
)
from .canned_tasks import DONE
from .sample_agents import (
    agent_of_remote,
    agent_with_remote_tool,
    calling_agent,
    deleting_agent,
    each_middle_agent,
    last_prompt,
    last_tool_results,
)
from .test_toolset import task_states

WAITS = task_in_state('INPUT_REQUIRED', agent_message('Which one?'))


def remote_task_of(ended: Any) -> tuple[DeferredToolRequests, Any]:
    """The requests of a run that waits, and the remote task."""
    assert isinstance(ended.output, DeferredToolRequests)
    assert [call.tool_call_id for call in ended.output.approvals] == ['outer-call']
    return ended.output, ended.output.metadata['outer-call']['a2a_waiting']


async def continue_run(agent: Any, ended: Any, results: DeferredToolResults | Mapping[str, Any], **options: Any) -> Any:
    """Go on with a run that waits; answers by call id are those of the remote agent."""
    if not isinstance(results, DeferredToolResults):
        results = remote_results(ended.output, results)
    return await agent.run(message_history=ended.all_messages(), deferred_tool_results=results, **options)


async def answer_calls(client: A2AClient, task: Any, *answers: dict[str, Any]) -> Any:
    """Answer calls of a task that waits, and return the task afterwards."""
    parts: list[Any] = [{'data': {'callAnswers': [*answers]}}]
    return (await client.send(parts, task_id=task['id'], context_id=task['context_id'])).outcome


@pytest.mark.parametrize(
    ('answer', 'told', 'gone'),
    [
        (True, 'deleted a.txt', ['a.txt']),
        (ToolApproved(override_args={'path': 'b.txt'}), 'deleted b.txt', ['b.txt']),
        (ToolDenied('Not this one.'), 'Not this one.', []),
        (False, 'The tool call was denied.', []),
        ({'the id': True}, 'deleted a.txt', ['a.txt']),
    ],
)
async def test_approval_or_denial_reaches_remote_agent(answer: Any, told: str, gone: list[str]) -> None:
    deleted: list[str] = []
    async with running_app(deleting_agent(deleted)) as app:
        agent = calling_agent(toolsets=[A2AToolset(app)])
        ended = await agent.run('a.txt')
        _, waiting = remote_task_of(ended)
        assert (waiting['agent'], waiting['state']) == ('files', 'input-required')
        [call] = waiting['pending']
        assert (call['kind'], call['tool'], call['args']) == ('approval', 'delete_file', {'path': 'a.txt'})
        assert (deleted, call.get('toolCallId')) == ([], 'inner-call')
        by_id = {call['id']: True} if answer == {'the id': True} else answer
        again = await continue_run(agent, ended, {'outer-call': by_id})
        assert told in again.output
        assert deleted == gone
        assert await task_states(app) == ['completed']


async def test_approval_survives_restart_of_caller() -> None:
    deleted: list[str] = []
    with serve(deleting_agent(deleted)) as server:
        async with asyncio.timeout(LIMIT):
            ended = await calling_agent(capabilities=[A2A(server.url)]).run('a.txt')
            requests, _ = remote_task_of(ended)
            stored = ended.all_messages_json(), TypeAdapter(DeferredToolRequests).dump_json(requests)
            restored = TypeAdapter(DeferredToolRequests).validate_json(stored[1])
            results = remote_results(restored, {'outer-call': True})
            results = TypeAdapter(DeferredToolResults).validate_json(
                TypeAdapter(DeferredToolResults).dump_json(results)
            )
            again = await calling_agent(capabilities=[A2A(server.url)]).run(
                message_history=ModelMessagesTypeAdapter.validate_json(stored[0]), deferred_tool_results=results
            )
    assert again.output == 'deleted a.txt'
    assert deleted == ['a.txt']


async def test_input_handler_approves_remote_call_within_run() -> None:
    def ask(ctx: RunContext[Any], requests: DeferredToolRequests, token: str) -> DeferredToolResults:
        return remote_results(requests, {call.tool_call_id: True for call in requests.approvals})

    deleted: list[str] = []
    ended = await calling_agent(capabilities=[A2A(deleting_agent(deleted)), RequestInput(ask)]).run('a.txt')
    assert ended.output == 'deleted a.txt'


async def test_decision_without_remote_results_reaches_task_in_same_process() -> None:
    deleted: list[str] = []
    async with running_app(deleting_agent(deleted)) as app:
        agent = calling_agent(capabilities=[A2A(app)])
        for answer, told in ((True, 'deleted a.txt'), (ToolDenied('No.'), 'No.')):
            ended = await agent.run('a.txt')
            again = await continue_run(agent, ended, DeferredToolResults(approvals={'outer-call': answer}))
            assert again.output == told
        assert deleted == ['a.txt']
        assert sorted(await task_states(app)) == ['canceled', 'completed']


async def test_denial_of_forgotten_task_cancels_no_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(toolset, 'MOST_WAITING', 0)
    async with running_app(deleting_agent([])) as app:
        agent = calling_agent(capabilities=[A2A(app)])
        ended = await agent.run('a.txt')
        denied = DeferredToolResults(approvals={'outer-call': False})
        await continue_run(agent, ended, denied)
        assert await task_states(app) == ['input-required']


async def test_decisions_with_equal_call_ids_reach_their_own_tasks() -> None:
    deleted: list[str] = []
    async with running_app(deleting_agent(deleted)) as app:
        agent = calling_agent(capabilities=[A2A(app)])
        bob, alice = [await agent.run(name) for name in ('bob.txt', 'alice.txt')]
        for ended in (bob, alice):
            assert isinstance(ended.output, DeferredToolRequests)
        await continue_run(agent, bob, DeferredToolResults(approvals={'outer-call': True}))
        assert deleted == ['bob.txt']
        await continue_run(agent, alice, DeferredToolResults(approvals={'outer-call': False}))
        assert deleted == ['bob.txt']
        assert sorted(await task_states(app)) == ['canceled', 'completed']


async def test_denied_task_is_canceled_with_credentials_of_run() -> None:
    canned = CannedAgent(stream_response({'task': WAITS}), result_response(task_in_state('CANCELED')))
    with serve_canned(canned) as server:
        agent = calling_agent(
            capabilities=[A2A[str](server.url, auth=lambda ctx: f'token-of-{ctx.deps}')], deps_type=str
        )
        async with asyncio.timeout(LIMIT):
            ended = await agent.run('hello', deps='ann')
            denied = DeferredToolResults(approvals={'outer-call': False})
            await continue_run(agent, ended, denied, deps='ann')
    assert canned.methods == ['SendStreamingMessage', 'CancelTask']
    assert {headers['authorization'] for _, _, headers, _ in canned.requests} == {'Bearer token-of-ann'}


def agent_raising(question: Any) -> Agent[None, Any]:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if returned := last_tool_results(messages):
            return ModelResponse(parts=[TextPart(f'{last_prompt(messages)}: {returned[0].content}')])
        return ModelResponse(parts=[ToolCallPart('ask', {}, 'inner-call')])

    agent: Agent[None, Any] = Agent(FunctionModel(model), name='asking')
    asked: list[bool] = []

    @agent.tool_plain
    def ask() -> str:
        """Ask the user."""
        if isinstance(question, AuthRequired) and asked:
            return 'signed in'
        asked.append(True)
        raise question

    return agent


@pytest.mark.parametrize(
    ('question', 'answer', 'told'),
    [
        (InputRequired('Which pizza?'), 'salami', 'pizza: salami'),
        (InputRequired('How many?', schema={'type': 'integer'}), 3, 'pizza: 3'),
        (InputRequired('Which pizza?'), ModelRetry('Ask for pasta.'), 'Ask for pasta.'),
        (InputRequired('Which pizza?'), False, 'No answer was given.'),
        (AuthRequired('Please sign in.', schemes=['sso'], url='https://sso.example.com/'), True, ': signed in'),
    ],
)
async def test_question_or_sign_in_of_remote_tool_is_answered(question: Any, answer: Any, told: str) -> None:
    async with running_app(agent_raising(question)) as app:
        agent = calling_agent(toolsets=[A2AToolset(app)])
        ended = await agent.run('pizza')
        _, waiting = remote_task_of(ended)
        assert question.args or waiting['text']
        again = await continue_run(agent, ended, {'outer-call': answer})
        assert told in str(again.output)


async def test_denied_sign_in_cancels_remote_task() -> None:
    async with running_app(
        agent_raising(AuthRequired('Please sign in.', schemes=['sso'], url='https://sso.example.com/'))
    ) as app:
        agent = calling_agent(toolsets=[A2AToolset(app)])
        ended = await agent.run('pizza')
        remote_task_of(ended)
        again = await continue_run(agent, ended, {'outer-call': ToolDenied('I have no account.')})
        assert 'I have no account.' in again.output
        assert await task_states(app) == ['canceled']


async def test_answer_to_ended_task_is_refused_with_reason() -> None:
    app = to_a2a(deleting_agent([]))
    async with asyncio.timeout(LIMIT), A2AClient(app) as client:
        agent = calling_agent(toolsets=[A2AToolset(app)])
        ended = await agent.run('a.txt')
        remote_task_of(ended)
        for told in ('deleted a.txt', 'has refused the request: The task is completed and accepts no more messages'):
            again = await continue_run(agent, ended, {'outer-call': True})
            assert told in again.output
        remote = RemoteAgent(app, [str, DeferredToolRequests])
        waits = await remote.run('a.txt')
        await client.cancel((waits.response.provider_details or {})['taskId'])
        assert isinstance(waits.output, DeferredToolRequests)
        approvals = DeferredToolResults(approvals={call.tool_call_id: True for call in waits.output.approvals})
        with pytest.raises(ModelAPIError, match='The task is canceled and accepts no more messages'):
            await continue_run(remote, waits, approvals)


async def test_approval_without_remote_results_is_refused_for_question() -> None:
    async with running_app(agent_raising(InputRequired('Which pizza?'))) as app:
        agent = calling_agent(toolsets=[A2AToolset(app)])
        ended = await agent.run('pizza')
        remote_task_of(ended)
        approval = DeferredToolResults(approvals={'outer-call': True})
        with pytest.raises(UserError, match='answer with `remote_results`'):
            await continue_run(agent, ended, approval)
        again = await continue_run(agent, ended, {'outer-call': 'salami'})
        assert again.output == 'pizza: salami'


async def test_a2a_model_without_remote_agent_refuses_questions() -> None:
    typed = Agent(A2AModel(A2AClient(output_question_agent(InputRequired('Which kind?')))), output_type=int)
    for agent in (Agent(A2AModel(A2AClient(deleting_agent([])))), typed):
        with pytest.raises(UserError, match='Use RemoteAgent'):
            await agent.run('a.txt')


async def test_arguments_locked_by_remote_server_cannot_be_changed() -> None:
    innermost = to_a2a(deleting_agent([]), approvals=Approvals(change_arguments=False))
    for between in (agent_with_remote_tool, agent_of_remote):
        async with asyncio.timeout(LIMIT), A2AClient(to_a2a(between(innermost, 'middle'))) as client:
            task: Any = (await client.send('a.txt')).outcome
            [call] = question_of_task('', task)['pending']
            assert 'args' not in call.get('answerSchema', {})['oneOf'][0]['properties']
            with pytest.raises(InvalidParamsError, match='may not be changed'):
                await answer_calls(client, task, {'id': call['id'], 'decision': 'approve', 'args': {'path': 'b.txt'}})


async def test_plain_question_is_answered_with_text_or_data() -> None:
    for answer, parts in (('the red one', [{'text': 'the red one'}]), ({'n': 1}, [{'data': {'n': 1}}])):
        canned = CannedAgent(stream_response({'task': WAITS}), stream_response({'task': DONE}))
        agent = calling_agent(toolsets=[A2AToolset(canned.app)])
        ended = await agent.run('hello')
        _, waiting = remote_task_of(ended)
        assert (waiting['text'], waiting['pending']) == ('Which one?', [])
        assert (await continue_run(agent, ended, {'outer-call': answer})).output == 'Done.'
        message = canned.messages[-1]
        assert (message['taskId'], message['contextId'], message['parts']) == ('t', 'c', parts)


def test_answers_not_matching_pending_calls_are_refused() -> None:
    call: Any = {'id': 'a', 'kind': 'approval', 'tool': 'x', 'text': 'May I?'}
    waiting: Any = {'agent': 'a', 'task': 't', 'context': 'c', 'state': 'input-required', 'text': '', 'pending': [call]}
    with pytest.raises(UserError, match='waits for an approval'):
        answer_to(waiting, 'yes')
    several: Any = {**waiting, 'pending': [call, {**call, 'id': 'b'}]}
    with pytest.raises(UserError, match=r"mapping of call ids: \['a', 'b'\]"):
        answer_to(several, 'yes')
    [part] = answer_to(several, {'b': False}).get('parts', [])
    assert part.get('data') == {'callAnswers': [{'id': 'b', 'decision': 'deny'}]}
    with pytest.raises(UserError, match='waits for no remote task'):
        remote_results(DeferredToolRequests(), {'c': True})


def test_malformed_pending_calls_are_ignored() -> None:
    kind = 'application/vnd.pydantic-ai.pending-calls+json'
    parts: list[Any] = [
        {'data': {'pending': 3, 'authorization': {'url': 'https://x.example'}}, 'media_type': kind},
        {'data': 'text', 'media_type': kind},
        {'data': {'pending': [{'id': 'a', 'kind': [], 'tool': 'x', 'text': ''}, 3]}, 'media_type': kind},
        {'data': {'pending': [3]}},
    ]
    message: Any = {'role': 'agent', 'message_id': 'm', 'parts': parts}
    waiting = question_of_task(
        'a', {'id': 't', 'context_id': 'c', 'status': {'state': 'auth-required', 'message': message}}
    )
    assert waiting['pending'] == []
    assert waiting.get('authorization') == {'url': 'https://x.example'}
    nothing = question_of_task('a', {'id': 't', 'context_id': 'c', 'status': {'state': 'input-required'}})
    assert nothing['text'] == ''


def server_chain(inner: Any, between: Any, outside: Any) -> A2AApp:
    """The outermost of three servers."""
    return to_a2a(outside(to_a2a(between(inner, 'middle')), 'outer'))


def question_agent(_: list[str]) -> Agent[None, Any]:
    return agent_raising(InputRequired('Which?'))


@pytest.mark.parametrize('outside', [agent_with_remote_tool, agent_of_remote])
@each_middle_agent
@pytest.mark.parametrize(
    ('inner', 'answer', 'shown', 'told'),
    [
        (deleting_agent, {'decision': 'approve'}, 'delete_file', 'deleted a.txt'),
        (deleting_agent, {'decision': 'approve', 'args': {'path': 'b.txt'}}, 'delete_file', 'deleted b.txt'),
        (deleting_agent, {'decision': 'deny', 'reason': 'Too dear.'}, 'delete_file', 'Too dear.'),
        (question_agent, {'decision': 'result', 'result': 'red'}, 'ask', 'a.txt: red'),
        (question_agent, {'decision': 'retry', 'reason': 'Guess.'}, 'ask', 'Guess.'),
    ],
)
async def test_decision_reaches_innermost_of_three_servers(
    *, inner: Any, answer: Any, shown: str, told: str, between: Any, outside: Any
) -> None:
    async with running_app(inner([])) as innermost, A2AClient(server_chain(innermost, between, outside)) as client:
        task: Any = (await client.send('a.txt')).outcome
        assert task['status']['state'] == 'input-required'
        [call] = question_of_task('outer', task)['pending']
        assert call['tool'] == shown
        assert 'metadata' not in call
        ended = await answer_calls(client, task, {'id': call['id'], **answer})
        assert ended['status']['state'] == 'completed'
        assert told in str(ended['artifacts'])
        assert await task_states(innermost) == ['completed']


@each_middle_agent
async def test_hidden_arguments_of_remote_calls_are_not_shown(between: Any) -> None:
    middle = to_a2a(
        between(deleting_agent([]), 'middle'),
        approvals=Approvals(hide_arguments=['delete_file', 'files']),
        results=Results(progress=Progress(tools=True)),
    )
    async with asyncio.timeout(LIMIT), A2AClient(middle) as client:
        events = [event.event async for event in client.stream('secret.txt')]
        text = str([event for event in events if 'task' not in event])
        assert 'May I call delete_file?' in text
        assert 'secret.txt' not in text
        [task] = [listed.task async for listed in client.list()]
        assert task is not None
        decision = {'callAnswers': [{'id': pending_ids(task)[0], 'decision': 'approve'}]}
        answer = client.stream([{'data': decision}], task_id=task['id'], context_id=task['context_id'])
        shown = [str(update.event) async for update in answer if 'status_update' in update.event]
        assert "'phase': 'return'" in str(shown)
        assert 'secret.txt' not in str(shown)


def pending_ids(task: Any) -> list[str]:
    return [call['id'] for call in question_of_task('', task)['pending']]


@each_middle_agent
@pytest.mark.parametrize('outside', [agent_with_remote_tool, agent_of_remote])
async def test_each_remote_call_gets_its_own_decision(between: Any, outside: Any) -> None:
    calls = [ToolCallPart('delete', {'path': path}, f'call-{path}') for path in 'abc']
    model = scripted_model([*calls, ToolCallPart('weigh', {}, 'call-d')], echo_tool_returns)
    inner: Agent[None, Any] = Agent(model, name='files')

    @inner.tool_plain(requires_approval=True)
    def delete(path: str) -> str:
        return f'deleted {path}'

    @inner.tool_plain
    def weigh() -> int:
        raise CallDeferred

    async with asyncio.timeout(LIMIT), A2AClient(server_chain(inner, between, outside)) as client:
        task: Any = (await client.send('all')).outcome
        pending = question_of_task('', task)['pending']
        assert [(call['kind'], call['tool'], call.get('args')) for call in pending] == [
            ('approval', 'delete', {'path': 'a'}),
            ('approval', 'delete', {'path': 'b'}),
            ('approval', 'delete', {'path': 'c'}),
            ('external', 'weigh', {}),
        ]
        decisions: list[dict[str, Any]] = [
            {'decision': 'approve'},
            {'decision': 'approve', 'args': {'path': 'x'}},
            {'decision': 'deny', 'reason': 'Not c.'},
            {'decision': 'result', 'result': 7},
        ]
        answers = [{'id': call['id'], **decision} for call, decision in zip(pending, decisions, strict=True)]
        task = await answer_calls(client, task, *answers[:2])
        assert pending_ids(task) == [answer['id'] for answer in answers[2:]]
        task = await answer_calls(client, task, *answers[2:])
        assert task['status']['state'] == 'completed'
        assert 'deleted a, deleted x, Not c., 7' in str(task['artifacts'])


def output_question_agent(question: InputRequired | AuthRequired) -> Agent[None, Any]:
    """An agent that asks a question of its own, without a call of a tool."""
    prompts: list[str] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        prompts.append(str(messages[-1]))
        if len(prompts) == 1:
            return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {})])
        return ModelResponse(parts=[TextPart(f'With {last_prompt(messages)}.')])

    def ask() -> InputRequired | AuthRequired:
        raise question

    return Agent(FunctionModel(model), output_type=[str, ask], name='pizzeria')


@pytest.mark.parametrize('outside', [agent_with_remote_tool, agent_of_remote])
@each_middle_agent
@pytest.mark.parametrize('streamed', [False, True])
@each_case(
    ('question', 'state', 'answer', 'told'),
    [
        (InputRequired('Which kind?'), 'input-required', 'salami', 'With salami.'),
        (InputRequired('How many?', schema={'type': 'integer'}), 'input-required', '3', 'With'),
        (AuthRequired('Please sign in.', schemes=['sso'], url='https://sso.example/'), 'auth-required', 'Done', 'With'),
    ],
    ids=['words', 'schema', 'sign-in'],
)
async def test_question_of_agent_passes_through_three_servers(
    *,
    question: InputRequired | AuthRequired,
    state: str,
    answer: str,
    told: str,
    streamed: bool,
    between: Any,
    outside: Any,
) -> None:
    outer = server_chain(output_question_agent(question), between, outside)
    async with asyncio.timeout(LIMIT), A2AClient(outer) as client:
        if streamed:
            async for update in client.stream('a pizza'):
                assert 'artifact_update' not in update.event
            [task] = [listed.outcome async for listed in client.list()]
        else:
            task: Any = (await client.send('a pizza')).outcome
        assert task['status']['state'] == state
        text = question.message if isinstance(question, AuthRequired) else question.question
        assert text in str(task['status']['message']['parts'][0])
        if isinstance(question, AuthRequired):
            assert 'https://sso.example/' in str(task['status']['message']['parts'])
            assert "['sso']" in str(task['status']['message']['parts'])
        else:
            assert ("'integer'" in str(task['status'])) == (question.schema is not None)
        task = (await client.send(answer, task_id=task['id'], context_id=task['context_id'])).outcome
        assert task['status']['state'] == 'completed'
        assert told in str(task['artifacts'])


@pytest.mark.parametrize(
    ('question', 'answer'),
    [
        (InputRequired('How many?', schema={'type': 'integer'}), {'decision': 'result', 'result': 7}),
        (InputRequired('How many?'), {'decision': 'result', 'result': '7'}),
        (InputRequired('How many?'), {'decision': 'retry', 'reason': '7'}),
        (AuthRequired('Please sign in.'), None),
    ],
)
async def test_question_passes_through_server_of_typed_remote_agent(question: Any, answer: Any) -> None:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        ask, give = sorted((tool.name for tool in info.output_tools), key=len)
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart(ask, {})])
        return ModelResponse(parts=[ToolCallPart(give, {'response': 7})])

    def ask() -> InputRequired:
        raise question

    inner = Agent(FunctionModel(model), output_type=[ask, int], name='counter')
    async with asyncio.timeout(LIMIT), A2AClient(to_a2a(RemoteAgent(inner, int))) as client:
        task: Any = (await client.send('Count.')).outcome
        [call] = question_of_task('', task)['pending']
        asked = question.message if isinstance(question, AuthRequired) else question.question
        assert call['text'].startswith(asked)
        assert call['kind'] == ('authorization' if answer is None else 'question')
        parts: Any = 'Done.' if answer is None else [{'data': {'callAnswers': [{'id': call['id'], **answer}]}}]
        task = (await client.send(parts, task_id=task['id'], context_id=task['context_id'])).outcome
        assert task['status']['state'] == 'completed'
        assert task['artifacts'][0]['parts'][0]['data'] == {'result': 7}


@pytest.mark.parametrize(
    ('answer', 'state', 'told'),
    [
        ({'decision': 'result', 'result': 'the red one'}, 'completed', 'Done.'),
        ({'decision': 'result', 'result': {'n': 1}}, 'completed', 'Done.'),
        ({'decision': 'retry', 'reason': 'Nobody knows.'}, 'completed', 'Nobody knows.'),
    ],
)
async def test_question_of_foreign_agent_is_answered_through_server(answer: Any, state: str, told: str) -> None:
    follow = result_response(TASK) if answer['decision'] == 'retry' else stream_response({'task': DONE})
    app = to_a2a(calling_agent(capabilities=[A2A(CannedAgent(stream_response({'task': WAITS}), follow).app)]))
    async with asyncio.timeout(LIMIT), A2AClient(app) as client:
        task: Any = (await client.send('hello')).outcome
        [call] = question_of_task('caller', task)['pending']
        assert (call['kind'], call['text']) == ('question', 'Which one?')
        ended = await answer_calls(client, task, {'id': call['id'], **answer})
        assert ended['status']['state'] == state
        assert told in str(ended['artifacts'])


async def test_sign_in_of_remote_agent_makes_task_auth_required() -> None:
    inner = agent_raising(AuthRequired('Please sign in.', schemes=['sso'], url='https://sso.example.com/'))
    app = to_a2a(calling_agent(capabilities=[A2A(inner)]))
    async with asyncio.timeout(LIMIT), A2AClient(app) as client:
        task: Any = (await client.send('mail')).outcome
        assert task['status']['state'] == 'auth-required'
        ended: Any = (await client.send('I am in.', task_id=task['id'], context_id=task['context_id'])).outcome
        assert 'signed in' in str(ended['artifacts'])


def test_malformed_answer_schema_of_remote_call_is_tolerated() -> None:
    call = PendingCall(id='c', kind='approval', tool='x', text='')

    def schema(answer: Any) -> Any:
        remote = {'id': 'r', 'kind': 'approval', 'tool': 'y', 'text': 'May I?', 'answerSchema': answer}
        waiting = {'state': 'input-required', 'text': '', 'pending': [remote]}
        [shown] = calls_for_clients(ToolCallPart('x', {}), replace(call, metadata={WAITING: waiting}), ())
        return shown.schema

    assert schema({'oneOf': [3, {'properties': 3}, {'properties': {'args': {'$ref': '#'}}}], '$defs': {}}) == {
        '$ref': '#',
        '$defs': {},
    }
    assert schema({'oneOf': 3}) is None
