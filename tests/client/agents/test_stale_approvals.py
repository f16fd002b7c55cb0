"""Remote agents that ask twice under one id: an answer of an approver to the first question decides about no other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ToolCallPart
from pydantic_ai.models.function import AgentInfo

from pydantic_ai_a2a import A2AClient, A2AError, A2AToolset, RemoteResult, to_a2a
from pydantic_ai_a2a.errors import InvalidParamsError

from ...agents import scripted_model
from ...bounds import LIMIT
from ...cases import each_case
from ...serving import running_app
from ..canned_agent import CannedAgent, stream_response
from ..servers import clients_of_approvers
from .canned_tasks import DONE, adk_confirmation, adk_response, pending_call, task_waiting_with, task_with_confirmations
from .sample_agents import MakeAgent, agent_with_remote_tool, each_middle_agent

PLACE = 'message.parts[0].data.callAnswers[0].id'


def payment_call(cents: int, call_id: str = 'local-1') -> dict[str, Any]:
    return pending_call('approval', id=call_id, tool='pay', text=f'Pay {cents}?', args={'cents': cents})


async def next_pause(ann: A2AClient, task_id: str, before: RemoteResult) -> RemoteResult:
    """The task of ann once it waits again or has ended."""
    async for update in ann.subscribe(task_id):
        last = update.result
        if last.state == 'completed' or (last.pending and last.pending[0]['id'] != before.pending[0]['id']):
            return last
    raise AssertionError


def sent_decisions(canned: CannedAgent) -> list[Any]:
    """The data of the answers that a remote agent has got."""
    return [part['data'] for message in canned.messages for part in message['parts'] if 'data' in part]


@each_middle_agent
async def test_approval_of_earlier_call_does_not_approve_next_call(between: MakeAgent) -> None:
    asked = [stream_response({'task': task_waiting_with(pending=[payment_call(cents)])}) for cents in (5, 1_000_000)]
    canned = CannedAgent(*asked, stream_response({'task': DONE}))
    async with clients_of_approvers(between(canned.app, 'middle'), approvers='approve') as (ann, bob, eve):
        task = await ann.send('Pay.')
        assert task.task_id
        seen = [await approver.get(task.task_id) for approver in (bob, eve)]
        await seen[0].approve()
        waiting = await next_pause(ann, task.task_id, task)
        with pytest.raises(InvalidParamsError, match='Now the task waits with: Pay 1000000') as error:
            await seen[1].approve()
        assert [violation.field for violation in error.value.violations] == [PLACE]
        with pytest.raises(A2AError):
            await eve.send('yes', task_id=task.task_id)
        assert canned.methods == ['SendStreamingMessage'] * 2
        [known] = waiting.pending
        await (await eve.get(task.task_id)).approve()
        await next_pause(ann, task.task_id, waiting)
    assert len({'local-1', known['id'], task.pending[0]['id']}) == 3
    assert sent_decisions(canned) == [{'callAnswers': [{'id': 'local-1', 'decision': 'approve'}]}] * 2


@each_middle_agent
async def test_plain_text_cannot_approve_next_call(between: MakeAgent) -> None:
    asked = [stream_response({'task': task_waiting_with(pending=[payment_call(cents)])}) for cents in (5, 1_000_000)]
    canned = CannedAgent(*asked, stream_response({'task': DONE}))
    middle = between(canned.app, 'middle')
    async with clients_of_approvers(middle, approvers='approve', plain_text_answers='all') as (ann, bob, eve):
        task = await ann.send('Pay.')
        assert task.task_id
        await bob.send('yes', task_id=task.task_id)
        waiting = await next_pause(ann, task.task_id, task)
        with pytest.raises(InvalidParamsError, match='Plain words cannot approve it'):
            await eve.send('yes', task_id=task.task_id)
        assert 'Plain words cannot approve it' in str(waiting.task)
        assert canned.methods == ['SendStreamingMessage'] * 2
        await eve.send('no', task_id=task.task_id)
        await next_pause(ann, task.task_id, waiting)
    assert sent_decisions(canned)[1:] == [{'callAnswers': [{'id': 'local-1', 'decision': 'deny'}]}]


@each_middle_agent
async def test_remote_calls_get_new_ids_in_each_pause(between: MakeAgent) -> None:
    asked = [
        task_waiting_with(pending=[payment_call(cents, 'a'), payment_call(cents + 1, 'b')]) for cents in (5, 1_000_000)
    ]
    canned = CannedAgent(*[stream_response({'task': task}) for task in asked], stream_response({'task': DONE}))
    async with clients_of_approvers(between(canned.app, 'middle'), approvers='approve') as (ann, bob, eve):
        task = await ann.send('Pay.')
        assert task.task_id
        seen = [await approver.get(task.task_id) for approver in (bob, eve)]
        half = await seen[0].approve(call_id=seen[0].pending[0]['id'])
        assert half.pending == seen[0].pending[1:]
        await half.deny('No.')
        waiting = await next_pause(ann, task.task_id, task)
        for item in seen[1].pending:
            with pytest.raises(InvalidParamsError, match='Pay 1000000'):
                await seen[1].approve(call_id=item['id'])
        await (await eve.get(task.task_id)).approve()
        await next_pause(ann, task.task_id, waiting)
    assert len({item['id'] for result in (task, waiting) for item in result.pending}) == 4
    approved = [{'id': name, 'decision': 'approve'} for name in ('a', 'b')]
    denied = {'id': 'b', 'decision': 'deny', 'reason': 'No.'}
    assert sent_decisions(canned) == [{'callAnswers': [approved[0], denied]}, {'callAnswers': approved}]


async def test_model_call_with_id_of_remote_call_fails_task() -> None:
    """Else an approval of the small payment would approve the large one, of another agent, too."""
    several = task_waiting_with(pending=[payment_call(5, '1'), payment_call(6, '2')])
    one, two = (
        CannedAgent(stream_response({'task': task}), stream_response({'task': DONE}))
        for task in (several, task_waiting_with(pending=[payment_call(7)]))
    )

    def call_both(_: list[ModelMessage], info: AgentInfo) -> list[ToolCallPart]:
        tools = zip(info.function_tools, ('c', 'c.1'), strict=True)
        return [ToolCallPart(tool.name, {'message': 'Pay.'}, call_id) for tool, call_id in tools]

    toolsets = [A2AToolset(app, id=name).prefixed(name) for name, app in (('one', one.app), ('two', two.app))]
    agent = Agent(scripted_model(call_both), toolsets=toolsets)
    async with asyncio.timeout(LIMIT), A2AClient(to_a2a(agent)) as client:
        result = await client.send('Pay.')
    assert (result.state, result.pending) == ('failed', [])
    assert one.methods == two.methods == ['SendStreamingMessage']


@each_middle_agent
@each_case('prefix', ['adk', 'kagent'])
async def test_function_response_keeps_id_of_function_call(between: MakeAgent, prefix: str) -> None:
    asked = [task_with_confirmations(adk_confirmation(prefix, hint=hint)) for hint in ('One.', 'Two.')]
    canned = CannedAgent(*[stream_response({'task': task}) for task in asked], stream_response({'task': DONE}))
    async with clients_of_approvers(between(canned.app, 'middle'), approvers='approve') as (ann, bob, eve):
        task = await ann.send('Tidy up.')
        assert task.task_id
        seen = [await approver.get(task.task_id) for approver in (bob, eve)]
        await seen[0].approve()
        await next_pause(ann, task.task_id, task)
        with pytest.raises(InvalidParamsError, match=r'Two\.'):
            await seen[1].approve()
    assert canned.methods == ['SendStreamingMessage'] * 2
    assert canned.messages[-1]['parts'] == [adk_response(prefix, confirmed=True)]


@each_middle_agent
async def test_stale_approval_does_not_reach_inner_server(between: MakeAgent) -> None:
    paid: list[int] = []

    calls = [ToolCallPart('pay', {'cents': cents}, 'local-1') for cents in (5, 1_000_000)]
    inner: Agent[None, Any] = Agent(scripted_model(*calls, 'Paid.'), name='cashier')

    @inner.tool_plain(requires_approval=True)
    def pay(cents: int) -> str:
        paid.append(cents)
        return 'paid'

    async with (
        running_app(inner) as app,
        clients_of_approvers(between(app, 'middle'), approvers='approve') as (ann, bob, eve),
    ):
        task = await ann.send('Pay.')
        assert task.task_id
        seen = [await approver.get(task.task_id) for approver in (bob, eve)]
        await seen[0].approve(args=None)
        waiting = await next_pause(ann, task.task_id, task)
        with pytest.raises(InvalidParamsError, match='1000000'):
            await seen[1].approve()
        assert paid == [5]
        await (await eve.get(task.task_id)).approve()
        done = await next_pause(ann, task.task_id, waiting)
    assert (done.state, paid) == ('completed', [5, 1_000_000])


async def test_conversation_answers_only_current_call() -> None:
    asked = [stream_response({'task': task_waiting_with(pending=[payment_call(cents)])}) for cents in (5, 1_000_000)]
    canned = CannedAgent(*asked, stream_response({'task': DONE}))
    async with asyncio.timeout(LIMIT), A2AClient(to_a2a(agent_with_remote_tool(canned.app, 'middle'))) as client:
        conversation = client.conversation()
        first = await conversation.send('Pay.')
        second = await first.approve()
        with pytest.raises(InvalidParamsError, match='Pay 1000000'):
            await first.approve()
        [item] = second.pending
        answer = {'callAnswers': [{'id': item['id'], 'decision': 'deny'}]}
        assert item.get('toolCallId') == first.pending[0].get('toolCallId') == 'outer-call'
        assert (await conversation.send([{'data': answer}])).state == 'completed'
