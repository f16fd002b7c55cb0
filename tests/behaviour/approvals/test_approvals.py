"""Calls of tools that wait for somebody outside: what clients are asked, and what an answer does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fasta2a.storage import InMemoryStorage
from inline_snapshot import Is, snapshot
from pydantic_ai import Agent, FunctionToolset, RunContext
from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Approvals, AuthRequired, Push
from pydantic_ai_a2a.wire.extensions.pending_calls_extension import MEDIA_TYPE, PENDING_CALLS_URI

from ...agents import scripted_model
from ...app_client import Client, message, rpc, state_of, texts
from ...cases import each_case
from ...dialects import only_in
from ...serving import list_tasks, serving, wait_until_ended
from ...webhooks import webhook
from ..pending_calls import (
    DEFERRED_ROW,
    ApprovalAgent,
    answer_message,
    approve,
    call_by_prompt,
    pending_call_ids,
    pending_calls,
)
from ..promised_behaviours import covering
from ..refusals import error_of_call

pytestmark = covering(DEFERRED_ROW)


async def test_call_needing_approval_is_shown_with_answer_schema() -> None:
    async with serving(ApprovalAgent().agent) as client:
        task = await client.send('delete')
        assert await client.get_task(task['id']) == task
    assert state_of(task) == 'INPUT_REQUIRED'
    assert task['status']['message']['parts'][0]['text'].splitlines()[0] == 'May I call delete {"path":"a"}?'
    assert task['status']['message']['parts'][1]['metadata'] == {
        'type': 'application/vnd.pydantic-ai.pending-calls+json'
    }
    [call] = pending_calls(task)
    assert call['id'] != 'c1'
    assert pending_calls(task) == snapshot(
        [
            {
                'id': Is(call['id']),
                'toolCallId': 'c1',
                'kind': 'approval',
                'tool': 'delete',
                'text': 'May I call delete {"path":"a"}?',
                'args': {'path': 'a'},
                'answerSchema': {
                    'oneOf': [
                        {
                            'type': 'object',
                            'properties': {
                                'id': {'const': Is(call['id'])},
                                'decision': {'const': 'approve'},
                                'args': {
                                    'additionalProperties': False,
                                    'properties': {'path': {'type': 'string'}},
                                    'required': ['path'],
                                    'type': 'object',
                                },
                            },
                            'required': ['id', 'decision'],
                            'additionalProperties': False,
                        },
                        {
                            'type': 'object',
                            'properties': {
                                'id': {'const': Is(call['id'])},
                                'decision': {'const': 'deny'},
                                'reason': {'type': 'string', 'minLength': 1},
                            },
                            'required': ['id', 'decision'],
                            'additionalProperties': False,
                        },
                    ]
                },
            }
        ]
    )
    assert 'artifacts' not in task


@pytest.mark.parametrize(
    ('answer', 'said', 'deleted'),
    [
        (approve(), 'delete + deleted a', [('a', True)]),
        (approve(args={'path': 'z'}), 'delete + deleted z', [('z', True)]),
        ({'id': 'c1', 'decision': 'deny'}, 'delete + The tool call was denied.', []),
        ({'id': 'c1', 'decision': 'deny', 'reason': 'Too risky.'}, 'delete + Too risky.', []),
    ],
    ids=['approved', 'changed', 'denied', 'denied with a reason'],
)
async def test_approval_or_denial_continues_the_same_task(
    answer: dict[str, Any], said: str, deleted: list[Any]
) -> None:
    tools = ApprovalAgent()
    async with serving(tools.agent) as client:
        task = await client.send('delete')
        assert tools.deleted == []
        done = await client.send(answer_message(task, answer))
        after = await client.send(message('and now', contextId=task['contextId']))
    assert (done['id'], state_of(done), texts(done)) == (task['id'], 'COMPLETED', [said])
    assert tools.deleted == deleted
    assert texts(after) == ['delete + and now']
    assert [each['role'] for each in done['history']] == ['ROLE_USER', 'ROLE_AGENT', 'ROLE_USER', 'ROLE_AGENT']


async def test_pending_calls_are_shown_without_activating_extension() -> None:
    async with serving(ApprovalAgent().agent) as client:
        header = client.dialect.extensions_header
        sent = rpc('SendMessage', {'message': message('delete')})
        plain, active = await client.post(sent), await client.post(sent, {header: PENDING_CALLS_URI})
    assert header.lower() not in plain.headers
    assert active.headers[header.lower()] == PENDING_CALLS_URI
    assert [MEDIA_TYPE in answer.body.decode() for answer in (plain, active)] == [True, True]


async def test_pending_calls_can_be_answered_separately() -> None:
    tools = ApprovalAgent()
    async with serving(tools.agent) as client:
        task = await client.send('delete two')
        half = await client.send(answer_message(task, approve('c2')))
        assert (state_of(half), pending_call_ids(half), tools.deleted) == ('INPUT_REQUIRED', ['c1'], [])
        twice = await error_of_call(client.send(answer_message(task, approve('c2'))))
        done = await client.send(answer_message(task, {'id': 'c1', 'decision': 'deny', 'reason': 'No.'}))
    assert (twice.code, twice.fields) == (-32602, ['message.parts[0].data.callAnswers[0].id'])
    assert texts(done) == ['delete two + No. + deleted b']
    assert tools.deleted == [('b', True)]


async def test_pending_calls_are_listed_in_model_order() -> None:
    async with serving(ApprovalAgent().agent) as client:
        task = await client.send('mixed')
    assert [(call['toolCallId'], call['kind']) for call in pending_calls(task)] == [
        ('x1', 'external'),
        ('c1', 'approval'),
        ('q1', 'question'),
        ('c2', 'approval'),
    ]
    assert [line.split()[0] for line in task['status']['message']['parts'][0]['text'].splitlines()[:4]] == [
        'Waiting',
        'May',
        'Please',
        'May',
    ]


async def test_approval_does_not_rerun_finished_tools() -> None:
    tools = ApprovalAgent()
    async with serving(tools.agent) as client:
        task = await client.send('delete and look')
        assert pending_call_ids(task) == ['c2']
        done = await client.send(answer_message(task, approve('c2')))
    assert texts(done) == ['delete and look + looked + deleted a']


@pytest.mark.parametrize(
    ('prompt', 'answer', 'said'),
    [
        ('fetch', {'id': 'x1', 'decision': 'result', 'result': {'page': 1}}, "fetch + {'page': 1}"),
        ('fetch', {'id': 'x1', 'decision': 'retry', 'reason': 'Another one.'}, 'Another one.'),
        ('ask', {'id': 'q1', 'decision': 'result', 'result': 'large'}, 'ask + large'),
    ],
    ids=['external', 'retry', 'question'],
)
async def test_client_result_is_return_value_of_tool(prompt: str, answer: dict[str, Any], said: str) -> None:
    async with serving(ApprovalAgent().agent) as client:
        task = await client.send(prompt)
        done = await client.send(answer_message(task, answer))
    assert said in texts(done)[0]


async def test_repeated_answer_is_applied_once() -> None:
    tools = ApprovalAgent()
    async with serving(tools.agent) as client:
        task = await client.send('delete two')
        first = answer_message(task, approve('c1'))
        await client.send(first)
        half = await client.send(first)
        assert pending_call_ids(half) == ['c2']
        last = answer_message(task, approve('c2'))
        assert await client.send(last) == await client.send(last)
    assert tools.deleted == [('a', True), ('b', True)]


async def test_new_task_of_context_does_not_see_paused_turn() -> None:
    async with serving(ApprovalAgent().agent) as client:
        first = await client.send('one')
        context = first['contextId']
        task = await client.send(message('delete', contextId=context))
        between = await client.send(message('two', contextId=context))
        done = await client.send(answer_message(task, approve()))
        after = await client.send(message('three', contextId=context))
        kept = await client.a2a_app.conversations().load(context)
    assert texts(between) == ['one + two']
    assert texts(done) == ['one + delete + deleted a']
    assert texts(after) == ['one + two + delete + three']
    assert kept is not None
    assert kept.usage.requests == 5


async def test_context_continues_after_paused_task_is_canceled() -> None:
    tools = ApprovalAgent()
    async with serving(tools.agent) as client:
        task = await client.send('delete')
        await client.call('CancelTask', {'id': task['id']})
        error = await error_of_call(client.send(answer_message(task, approve())))
        after = await client.send(message('after', contextId=task['contextId']))
        [canceled] = await list_tasks(client, state='canceled')
    assert (error.code, tools.deleted, canceled['id']) == (-32004, [], task['id'])
    assert texts(after) == ['delete + after']


async def test_message_before_pause_runs_as_next_turn() -> None:
    began, release = asyncio.Event(), asyncio.Event()

    async def slow(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        began.set()
        await release.wait()
        return call_by_prompt(messages, info)

    tools = ApprovalAgent()
    with tools.agent.override(model=FunctionModel(slow)):
        async with serving(tools.agent, approvals=Approvals(plain_text_answers='all')) as client:
            task = await client.send('delete', returnImmediately=True)
            await began.wait()
            async with client.send_streaming(message('yes', taskId=task['id'])) as early:
                await anext(early)
                release.set()
                await early.rest()
            waiting = await client.get_task(task['id'])
            assert (state_of(waiting), tools.deleted) == ('INPUT_REQUIRED', [])
            done = await client.send(answer_message(waiting, {'id': 'c1', 'decision': 'deny', 'reason': 'No.'}))
    assert (texts(done), tools.deleted) == (['delete + No.', 'delete + yes'], [])


async def test_agent_with_output_validator_can_pause() -> None:
    tools = ApprovalAgent()
    tools.agent.output_validator(lambda output: f'valid: {output}')
    async with serving(tools.agent) as client:
        task = await client.send('delete')
        assert texts(await client.send(answer_message(task, approve()))) == ['valid: delete + deleted a']


async def test_toolset_approval_rule_pauses_only_matching_tools() -> None:
    tools = ApprovalAgent()
    toolset = FunctionToolset[object]([tools.delete, tools.look])
    asking = toolset.approval_required(lambda ctx, tool, args: tool.name == 'delete')
    async with serving(Agent(FunctionModel(call_by_prompt), toolsets=[asking])) as client:
        task = await client.send('delete and look')
        assert [(call['toolCallId'], call['kind'], call['args']) for call in pending_calls(task)] == [
            ('c2', 'approval', {'path': 'a'})
        ]
        done = await client.send(answer_message(task, approve('c2', args={'path': 'b'})))
    assert texts(done) == ['delete and look + looked + deleted b']
    assert tools.deleted == [('b', True)]


async def test_hide_arguments_option_hides_call_arguments() -> None:
    async with serving(ApprovalAgent().agent, approvals=Approvals(hide_arguments=['delete'])) as client:
        task = await client.send('delete')
    assert task['status']['message']['parts'][0]['text'].splitlines()[0] == 'May I call delete?'
    assert '"a"' not in json.dumps(task)
    assert [call.keys() for call in pending_calls(task)] == [
        {'id', 'toolCallId', 'kind', 'tool', 'text', 'answerSchema'}
    ]


async def test_custom_storage_supports_pending_calls() -> None:
    tools = ApprovalAgent()
    async with serving(tools.agent, storage=InMemoryStorage()) as client:
        task = await client.send('delete two')
        half = await client.send(answer_message(task, approve('c1')))
        assert state_of(half) == 'INPUT_REQUIRED'
        done = await client.send(answer_message(task, {'id': 'c2', 'decision': 'deny', 'reason': 'No.'}))
        other = await client.send(message('delete', contextId=task['contextId']))
        canceled = await client.call('CancelTask', {'id': other['id']})
        after = await client.send(message('after', contextId=task['contextId']))
    assert (texts(done), tools.deleted) == (['delete two + deleted a + No.'], [('a', True)])
    assert (state_of(canceled), texts(after)) == ('CANCELED', ['delete two + delete + after'])


async def test_approved_call_is_not_repeated_after_restart(tmp_path: Path) -> None:
    reached, stay = asyncio.Event(), True

    async def slow() -> str:
        reached.set()
        if stay:
            await asyncio.Event().wait()
        return 'slow'

    def and_then(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        response = call_by_prompt(messages, info)
        returned = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        if returned and returned[0].tool_name == 'delete':
            return ModelResponse(parts=[ToolCallPart('slow', {}, 's1')])
        return response

    tools = ApprovalAgent()
    tools.agent.tool_plain(slow)
    options: dict[str, Any] = {'backend': f'sqlite:///{tmp_path}/agent.db'}
    with tools.agent.override(model=FunctionModel(and_then)):
        async with serving(tools.agent, drain_grace=0.01, **options) as client:
            task = await client.send('delete')
            await client.send(answer_message(task, approve()), returnImmediately=True)
            await reached.wait()
        stay = False
        async with serving(tools.agent, **options) as client:
            done = await wait_until_ended(client, task['id'])
            after = await client.send(message('after', contextId=task['contextId']))
    assert (texts(done), tools.deleted) == (['delete + deleted a + slow'], [('a', True)])
    assert texts(after) == ['delete + after']


async def test_concurrent_duplicate_answers_are_accepted_once() -> None:
    tools = ApprovalAgent()
    async with serving(tools.agent) as client:
        task = await client.send('delete two')
        sent = [client.send(answer_message(task, approve('c1'))), client.send(answer_message(task, approve('c1')))]
        results = await asyncio.gather(*sent, return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ['RpcError', 'dict']


async def test_stream_ends_with_pending_calls() -> None:
    async with serving(ApprovalAgent().agent) as client:
        async with client.send_streaming('delete') as stream:
            *_, last = await stream.rest()
        status = last.result['statusUpdate']
        assert (status['status']['state'], pending_call_ids(status)) == (
            'TASK_STATE_INPUT_REQUIRED',
            ['c1'],
        )
        async with client.send_streaming(answer_message({**status, 'id': status['taskId']}, approve())) as stream:
            *_, last = await stream.rest()
    assert last.result['statusUpdate']['status']['state'] == 'TASK_STATE_COMPLETED'


@only_in('1.0', 'webhooks of older versions are told in their own spelling')
async def test_webhook_receives_every_input_required_status() -> None:
    async with webhook() as hook, serving(ApprovalAgent().agent, push=Push(private_hosts=['127.0.0.1'])) as client:
        task = await client.send('delete two', taskPushNotificationConfig={'url': hook.url})
        half = await client.send(answer_message(task, approve('c1')))
        events = [each.json['statusUpdate'] for each in await hook.got(3)]
    assert [event['status'] for event in events[1:]] == [task['status'], half['status']]


# --- calls that wait again after their approval ---------------------------------------------------------------------

HIDDEN: dict[str, Any] = {'approvals': Approvals(hide_arguments=['delete'], change_arguments=['delete'])}


def waiting(agent: Agent[object, Any], error: Callable[[], Exception], times: int = 2) -> list[str]:
    """Give an agent a tool that raises an error in its first calls once they are approved; return what it deletes."""
    deleted: list[str] = []
    raised: list[Exception] = []

    @agent.tool(requires_approval=True)
    async def delete(ctx: RunContext[object], path: str) -> str:
        assert ctx.tool_call_approved
        if len(raised) < times:
            raised.append(error())
            raise raised[-1]
        deleted.append(path)
        return f'deleted {path}'

    return deleted


async def go_on(client: Client, task: dict[str, Any]) -> dict[str, Any]:
    """Sign in, or approve the call without other arguments."""
    if state_of(task) == 'AUTH_REQUIRED':
        return await client.send(message('I have signed in', taskId=task['id']))
    return await client.send(answer_message(task, approve()))


@each_case('error', [lambda: AuthRequired('Sign in.'), ApprovalRequired], ids=['sign-in', 'approval'])
@each_case('options', [{}, HIDDEN], ids=['shown', 'hidden'])
@each_case('backend', ['memory', 'sqlite'])
async def test_second_pause_keeps_the_approved_arguments(
    error: Callable[[], Exception], options: dict[str, Any], backend: str, tmp_path: Any
) -> None:
    agent: Agent[object, Any] = Agent(FunctionModel(call_by_prompt), name='agent')
    deleted = waiting(agent, error)
    url = backend if backend == 'memory' else f'sqlite:///{tmp_path}/a.db'
    async with serving(agent, backend=url, **options) as client:
        task = await client.send('delete')
        again = await client.send(answer_message(task, approve(args={'path': 'z'})))
        assert [call.get('args') for call in pending_calls(again)] == [None if options else {'path': 'z'}]
        done = await go_on(client, await go_on(client, again))
    assert (state_of(done), deleted) == ('COMPLETED', ['z'])


async def test_reused_tool_call_id_does_not_keep_edited_arguments() -> None:
    first, second = (ToolCallPart('delete', {'path': path}, 'c1') for path in 'ab')
    agent: Agent[object, Any] = Agent(scripted_model(first, second, 'done'), name='agent')
    deleted = waiting(agent, ApprovalRequired, times=0)
    async with serving(agent) as client:
        task = await client.send('delete')
        again = await client.send(answer_message(task, approve(args={'path': 'z'})))
        assert [call['args'] for call in pending_calls(again)] == [{'path': 'b'}]
        done = await go_on(client, again)
    assert (state_of(done), deleted) == ('COMPLETED', ['z', 'b'])


async def test_infinite_number_is_shown_as_text_and_passed_unchanged() -> None:
    paid: list[float] = []

    def pay(amount: float) -> None:
        paid.append(amount)

    agent = Agent(scripted_model(ToolCallPart('pay', '{"amount": 1e400}', 'c1'), 'Paid.'), name='payer')
    agent.tool_plain(requires_approval=True)(pay)
    async with serving(agent) as client:
        task = await client.send('Pay.')
        [item] = pending_calls(task)
        assert item['args'] == {'amount': 'Infinity'}
        assert ['args' in choice['properties'] for choice in item['answerSchema']['oneOf']] == [False, False]
        await error_of_call(client.send(answer_message(task, approve(item['id'], args=item['args']))))
        await client.send(answer_message(task, approve(item['id'])))
    assert paid == [float('inf')]
