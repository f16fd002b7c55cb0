"""The client of tests: scripted answers, waits, recordings and snapshots."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from itertools import groupby, repeat
from typing import Any, cast

import pytest
from fasta2a.schema import Task
from inline_snapshot import snapshot
from pydantic_ai import Agent, FunctionToolset, ToolApproved, ToolDenied
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import A2AClient, Approvals, AuthRequired, InputRequired, Messages, catalogue, to_a2a
from pydantic_ai_a2a.client.questions import PendingRemoteCall
from pydantic_ai_a2a.errors import InternalError
from pydantic_ai_a2a.testing import A2ATestClient, Answers, ClientFactory, ServerFactory, dump, record

from ..agents import model_that_calls, scripted_model
from ..behaviour.callers import caller_from_header
from ..bounds import LIMIT
from ..client.agents.canned_tasks import DONE, task_waiting_with
from ..client.agents.sample_agents import agent_calling_tools, asking_agent
from ..client.canned_agent import TASK, CannedAgent, result_response, stream_response

DELETE = 'delete_file', {'path': 'a.txt'}
ASK = 'ask', {'what': 'pizza'}


@pytest.mark.parametrize('binding', ['JSONRPC', 'HTTP+JSON'])
async def test_scripted_answers_cover_all_pending_calls(a2a_client: ClientFactory, binding: str) -> None:
    client = await a2a_client(agent_calling_tools(DELETE, ASK), binding=binding)
    result = await client.send('Go.', answers=Answers({'delete_file': True, 'ask': 'salami'}))
    assert result.text == 'a.txt is deleted, salami'


def is_harmless(call: PendingRemoteCall) -> bool:
    return call.get('args') == {'path': 'a.txt'}


@pytest.mark.parametrize(
    ('answer', 'outcome'),
    [
        (False, 'The tool call was denied.'),
        (ToolDenied('Keep it.'), 'Keep it.'),
        (ToolApproved(override_args={'path': 'b.txt'}), 'b.txt is deleted'),
        (is_harmless, 'a.txt is deleted'),
    ],
    ids=['false', 'reason', 'other arguments', 'function'],
)
async def test_scripted_answer_decides_approval(a2a_client: ClientFactory, answer: Any, outcome: str) -> None:
    client = await a2a_client(agent_calling_tools(DELETE))
    assert (await client.send('Go.', answers=Answers({'delete_file': answer}))).text == outcome


async def test_answers_keyed_by_tool_approve_sign_in(a2a_client: ClientFactory) -> None:
    client = await a2a_client(agent_calling_tools(('mail', {})))
    assert (await client.send('Go.', answers=Answers({'mail': True}))).text == 'Lunch?'


async def test_script_with_refused_sign_in_fails(a2a_client: ClientFactory) -> None:
    def sign_in() -> str:
        raise AuthRequired('Please sign in.')

    agent = Agent(model_that_calls([ToolCallPart('mail', {}), ToolCallPart('calendar', {})]))
    for name in ('mail', 'calendar'):
        agent.tool_plain(name=name)(sign_in)
    client = await a2a_client(agent)
    with pytest.raises(AssertionError, match='False is no answer to'):
        await client.send('Go.', answers=Answers({'mail': True, 'calendar': False}))


async def test_question_without_tool_is_answered_by_script(a2a_client: ClientFactory) -> None:
    client = await a2a_client(asking_agent())
    assert (await client.send('Go.', answers=Answers(question='Salami'))).text == 'With salami.'


async def test_stream_continues_after_scripted_answer(a2a_client: ClientFactory) -> None:
    client = await a2a_client(agent_calling_tools(DELETE))
    states = [
        update.task['status']['state']
        async for update in client.stream('Go.', answers=Answers({'delete_file': True}))
        if update.task is not None
    ]
    assert [state for state, _ in groupby(states)] == [
        'submitted',
        'working',
        'input-required',
        'working',
        'completed',
    ]


async def approver_of(a2a_client: ClientFactory, *messages: str) -> A2ATestClient:
    """An approver, after somebody else has sent messages."""
    app = to_a2a(agent_calling_tools(DELETE, ASK), auth=caller_from_header, approvals=Approvals(approvers='approve'))
    ann = await a2a_client(app, headers={'X-Caller': 'ann'})
    for text in messages:
        await ann.send(text)
    return await a2a_client(app, headers={'X-Caller': 'bob', 'X-Scopes': 'approve'})


async def test_script_answers_inbox_of_approver(a2a_client: ClientFactory) -> None:
    bob = await approver_of(a2a_client, 'One.', 'Two.')
    await bob.send('Three.')
    results = await bob.answer_inbox(Answers({'delete_file': True, 'ask': 'salami'}))
    assert [result.state for result in results] == ['completed', 'input-required', 'input-required']
    with pytest.raises(AssertionError, match='The inbox is empty: no task waits for the caller'):
        await bob.answer_inbox(Answers({'delete_file': True}))


async def test_question_limit_counts_per_inbox_task() -> None:
    tasks = [{**task_waiting_with(), 'id': f't{n}'} for n in range(101)]
    pages = [result_response({'tasks': page, 'nextPageToken': ''}) for page in (tasks, [])]
    async with asyncio.timeout(LIMIT):
        async with A2ATestClient(CannedAgent(*pages, result_response({'task': DONE})).app) as client:
            results = await client.answer_inbox(Answers(question='salami'))
    assert [result.state for result in results] == ['completed'] * 101


@pytest.mark.parametrize(
    ('answers', 'error'),
    [
        (Answers({}), "No answer to the approval 'delete_file'"),
        (Answers({'delete_file': True, 'aks': 'salami'}), 'The agent has not asked about aks'),
    ],
)
async def test_script_for_inbox_names_missing_call(a2a_client: ClientFactory, answers: Answers, error: str) -> None:
    bob = await approver_of(a2a_client, 'One.')
    with pytest.raises(AssertionError, match=error):
        await bob.answer_inbox(answers)


@pytest.mark.parametrize(
    ('agent', 'answers', 'error'),
    [
        (
            agent_calling_tools(DELETE, ASK),
            Answers({'delete_file': True}),
            "No answer to the question 'ask' with the arguments {'what': 'pizza'}. Add 'ask' to Answers.",
        ),
        (
            agent_calling_tools(ASK),
            Answers({'aks': 'salami'}),
            "No answer to the question 'ask' with the arguments {'what': 'pizza'}. Add 'ask' to Answers. "
            "Not used so far: ['aks'].",
        ),
        (
            agent_calling_tools(ASK),
            Answers({'delete_file': True, 'ask': 'salami'}),
            'The agent has not asked about delete_file. The task is completed.',
        ),
        (asking_agent(), Answers(), "No answer to the question 'Which pizza?'. Add `question=` to Answers."),
        (
            asking_agent(),
            Answers(question=False),
            "False is no answer to 'Which pizza?'. Cancel the task with `cancel`.",
        ),
    ],
    ids=['not scripted', 'misspelt', 'not asked', 'question', 'denial'],
)
async def test_unsuitable_scripted_answers_raise_assertion_error(
    a2a_client: ClientFactory, agent: Agent[Any, Any], answers: Answers, error: str
) -> None:
    client = await a2a_client(agent)
    with pytest.raises(AssertionError) as raised:
        await client.send('Go.', answers=answers)
    assert str(raised.value) == error


async def test_unused_answers_fail_if_agent_replies_without_task(a2a_client: ClientFactory) -> None:
    client = await a2a_client(to_a2a(Agent(TestModel()), messages=Messages(reply='message')))
    with pytest.raises(AssertionError, match=r'not asked about ask\. The agent has answered without a task\.'):
        await client.send('Go.', answers=Answers({'ask': 'salami'}))
    answer = await client.send('Go.', answers=Answers(), context_id='talk')
    assert (
        dump(answer)
        == dump(answer.outcome)
        == {
            'role': 'ROLE_AGENT',
            'parts': [{'text': 'success (no tool calls)', 'mediaType': 'text/plain'}],
            'messageId': '<id 1>',
            'contextId': 'talk',
        }
    )


async def test_endless_questions_fail_after_100_answers(a2a_client: ClientFactory) -> None:
    agent = Agent(FunctionModel(lambda messages, info: ModelResponse(parts=[ToolCallPart('ask', {})])))

    @agent.tool_plain
    def ask() -> str:
        raise InputRequired('Which pizza?')

    client = await a2a_client(agent)
    with pytest.raises(AssertionError, match=r'still asks after 100 answers: .*Which pizza'):
        await client.send('Go.', answers=Answers({'ask': 'salami'}))


async def test_waiting_task_without_answers_is_returned(a2a_client: ClientFactory) -> None:
    client = await a2a_client(agent_calling_tools(DELETE))
    task = cast('Task', (await client.send('Go.')).task)
    assert task['status']['state'] == 'input-required'
    unanswered = await client.send('Go.', return_immediately=True, answers=Answers({'delete_file': True}))
    assert unanswered.state == 'submitted'


def blocked_agent(release: asyncio.Event) -> Agent:
    """An agent that works until the release."""
    agent = Agent(TestModel())

    @agent.tool_plain
    async def wait() -> str:
        await release.wait()
        return 'released'

    return agent


async def test_until_waits_for_task_state(a2a_client: ClientFactory) -> None:
    release = asyncio.Event()
    client = await a2a_client(blocked_agent(release))
    task = cast('Task', (await client.send('Go.', return_immediately=True)).task)
    assert (await client.until(task['id'], 'working')).state == 'working'
    release.set()
    assert (await client.until(task['id'], 'completed', 'failed')).state == 'completed'


async def test_until_fails_after_task_end_or_timeout(a2a_client: ClientFactory) -> None:
    client = await a2a_client(blocked_agent(asyncio.Event()))
    task = cast('Task', (await client.send('Go.', return_immediately=True)).task)
    with pytest.raises(AssertionError, match=r'not become input-required\. .*\. 0\.2 seconds are over\.'):
        await client.until(task['id'], 'input-required', max_wait=0.2)
    with pytest.raises(AssertionError, match=r'not become input-required. No event has come. 0 seconds are over.'):
        await client.until(task['id'], 'input-required', max_wait=0)
    await client.cancel(task['id'])
    with pytest.raises(AssertionError, match=r'not become completed or failed. The task is canceled.*\.$'):
        await client.until(task['id'], 'completed', 'failed')


async def test_recording_leaves_out_unfinished_event(a2a_client: ClientFactory) -> None:
    event = {'jsonrpc': '2.0', 'id': 1, 'result': {'task': TASK}}
    canned = CannedAgent(stream_response(f'data: {json.dumps(event)}\n\ndata: {{"jsonrpc"'))
    client = await a2a_client(canned.app)
    recording = record(client)
    async with asyncio.timeout(LIMIT):
        async for _ in client.stream('Go.'):
            assert recording.exchanges[-1].answer == [event]


async def test_recording_has_events_and_json(a2a_client: ClientFactory) -> None:
    client = await a2a_client(Agent(scripted_model('Ha!')), binding='HTTP+JSON')
    await client.send('Before.')
    recording = record(client)
    updates = [update async for update in client.stream('Tell me a joke.', context_id='jokes')]
    task = (await client.get(cast('Task', updates[-1].task)['id'])).outcome
    assert dump(recording.events) == snapshot(
        [
            {
                'task': {
                    'id': '<id 1>',
                    'contextId': 'jokes',
                    'status': {'state': 'TASK_STATE_SUBMITTED', 'timestamp': '<time>'},
                    'history': [
                        {
                            'parts': [{'text': 'Tell me a joke.'}],
                            'role': 'ROLE_USER',
                            'messageId': '<id 2>',
                            'contextId': 'jokes',
                            'taskId': '<id 1>',
                        }
                    ],
                }
            },
            {
                'statusUpdate': {
                    'taskId': '<id 1>',
                    'contextId': 'jokes',
                    'status': {'state': 'TASK_STATE_WORKING', 'timestamp': '<time>'},
                }
            },
            {
                'artifactUpdate': {
                    'taskId': '<id 1>',
                    'contextId': 'jokes',
                    'artifact': {
                        'parts': [{'text': 'Ha!', 'mediaType': 'text/plain'}],
                        'artifactId': '<id 1>.1.result',
                        'name': 'result',
                    },
                    'lastChunk': True,
                }
            },
            {
                'statusUpdate': {
                    'taskId': '<id 1>',
                    'contextId': 'jokes',
                    'status': {'state': 'TASK_STATE_COMPLETED', 'timestamp': '<time>'},
                }
            },
        ]
    )
    stream, read = recording.exchanges
    assert dump([stream.method, stream.path, stream.request]) == snapshot(
        [
            'POST',
            '/message:stream',
            {
                'message': {
                    'role': 'ROLE_USER',
                    'parts': [{'text': 'Tell me a joke.'}],
                    'messageId': '<id 1>',
                    'contextId': 'jokes',
                }
            },
        ]
    )
    assert stream.answer == recording.events
    assert dump([read.method, read.path, read.request, read.response.status_code]) == snapshot(
        ['GET', '/tasks/<id 1>', None, 200]
    )
    assert (
        dump(read.answer)
        == dump(task)
        == snapshot(
            {
                'id': '<id 1>',
                'contextId': 'jokes',
                'status': {'state': 'TASK_STATE_COMPLETED', 'timestamp': '<time>'},
                'artifacts': [
                    {
                        'parts': [{'text': 'Ha!', 'mediaType': 'text/plain'}],
                        'artifactId': '<id 1>.1.result',
                        'name': 'result',
                    }
                ],
                'history': [
                    {
                        'parts': [{'text': 'Tell me a joke.'}],
                        'role': 'ROLE_USER',
                        'messageId': '<id 2>',
                        'contextId': 'jokes',
                        'taskId': '<id 1>',
                    },
                    {
                        'parts': [{'text': 'Ha!', 'mediaType': 'text/plain'}],
                        'role': 'ROLE_AGENT',
                        'messageId': '<id 1>.1.answer',
                        'contextId': 'jokes',
                        'taskId': '<id 1>',
                    },
                ],
            }
        )
    )


async def test_recording_includes_requests_to_served_agent(
    a2a_client: ClientFactory, a2a_server: ServerFactory
) -> None:
    client = await a2a_client(a2a_server(Agent(TestModel(custom_output_text='Ha!'))))
    recording = record(client)
    await client.send('Tell me a joke.')
    card, sent = recording.exchanges
    assert (card.path, card.answer['name']) == ('/.well-known/agent-card.json', 'test_client')
    assert sent.answer['result']['task']['status']['state'] == 'TASK_STATE_COMPLETED'


async def test_model_override_of_agent_applies_in_app(a2a_client: ClientFactory) -> None:
    agent = Agent('openai:gpt-5.2', defer_model_check=True)
    with agent.override(model=TestModel(custom_output_text='Ha!')):
        client = await a2a_client(agent)
        assert (await client.send('Tell me a joke.')).text == 'Ha!'


def test_dump_replaces_generated_ids_and_times() -> None:
    task, code = '019abc0012345678901234567890abcd', '0123456789abcdef'
    digest = code * 4
    value = {'id': task, 'artifactId': f'{task}.result', 'at': '2026-01-02T03:04:05.678Z', 'n': 1, 'files': [digest]}
    assert dump({**value, 'text': f'Error {code}.'}) == {
        'id': '<id 1>',
        'artifactId': '<id 1>.result',
        'at': '<time>',
        'n': 1,
        'files': [digest],
        'text': 'Error <id 2>.',
    }


async def test_client_works_as_context_manager_without_pytest() -> None:
    async with A2ATestClient(agent_calling_tools(ASK)) as client:
        assert (await client.send('Go.', answers=Answers({'ask': 'salami'}))).text == 'salami'


# --- agents that cannot be entered


@pytest.mark.parametrize('way', ['agent', 'mounted', 'http_json'])
async def test_request_raises_startup_error_of_agent(a2a_client: ClientFactory, way: str) -> None:
    agent = Agent('unknown:model', name='keyless', defer_model_check=True)
    target: Any = catalogue([to_a2a(agent)]) if way == 'mounted' else agent
    options: Any = {
        'mounted': {'card_url': '/keyless/.well-known/agent-card.json'},
        'http_json': {'binding': 'HTTP+JSON'},
    }
    client = await a2a_client(target, **options.get(way, {}))
    assert (await client.card())['name'] == 'keyless'
    with pytest.raises(UserError, match='Unknown model'):
        await client.send('Hello')
    with pytest.raises(UserError, match='Unknown model'):
        await anext(client.stream('Hello'))
    with pytest.raises(UserError, match='Unknown model'):
        await client.get('unknown')


async def test_client_does_not_retry_agent_startup_error() -> None:
    entered: list[int] = []

    class Keyless(FunctionToolset[object]):
        async def __aenter__(self) -> Keyless:
            entered.append(1)
            raise UserError('Set the KEY.')

    app = to_a2a(Agent('test', toolsets=[Keyless()]))
    app.hosting.pauses = partial(repeat, 3600.0)
    for binding in ('JSONRPC', 'HTTP+JSON'):
        async with A2AClient(app, binding=binding) as client:
            with pytest.raises(InternalError, match='The agent cannot be started') as refused:
                await client.send('Hello')
            assert refused.value.correlation_id
            assert len(entered) == 2  # at the start, and at the request
            entered.clear()
