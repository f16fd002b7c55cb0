"""Remote agents that ask twice under one id: an answer of an approver to the first question decides about no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import A2AClient, A2AError, A2AToolset, Approvals, RemoteResult, to_a2a
from pydantic_ai_a2a.errors import InvalidParamsError
from pydantic_ai_a2a.settings import PlainText

from ...behaviour.callers import by_header
from ...bounds import LIMIT
from ...tables import each_case
from ..canned import Canned, stream
from .test_hostile_questions import DONE, call, waits
from .test_places import confirmation, confirming, response
from .test_three_servers import Between, by_a_tool, in_between

PLACE = 'message.parts[0].data.callAnswers[0].id'


def pay(cents: int, call_id: str = 'local-1') -> dict[str, Any]:
    return call('approval', id=call_id, tool='pay', text=f'Pay {cents}?', args={'cents': cents})


@asynccontextmanager
async def served(agent: Any, words: PlainText = 'deny') -> AsyncGenerator[tuple[A2AClient, A2AClient, A2AClient]]:
    """The clients of ann, who sends tasks to a server, and of the approvers bob and eve."""
    app = to_a2a(agent, auth=by_header, approvals=Approvals(approvers='approve', plain_text_answers=words))
    async with asyncio.timeout(LIMIT), AsyncExitStack() as stack:
        await stack.enter_async_context(app.router.lifespan_context(app))
        headers = [{'X-Caller': name, 'X-Scopes': scopes} for name, scopes in (('ann', ''), *APPROVERS)]
        clients = [await stack.enter_async_context(A2AClient(app, headers=each)) for each in headers]
        yield clients[0], clients[1], clients[2]


APPROVERS = (('bob', 'approve'), ('eve', 'approve'))


async def asks_again(ann: A2AClient, task_id: str, before: RemoteResult) -> RemoteResult:
    """The task of ann once it waits again or has ended."""
    async for update in ann.subscribe(task_id):
        last = update.result
        if last.state == 'completed' or (last.pending and last.pending[0]['id'] != before.pending[0]['id']):
            return last
    raise AssertionError


def answers_to(canned: Canned) -> list[Any]:
    """The data of the answers that a remote agent has got."""
    messages = [body['params']['message'] for _, _, _, body in canned.requests if body]
    return [part['data'] for sent in messages for part in sent['parts'] if 'data' in part]


@in_between
async def test_approval_of_earlier_call_does_not_approve_next_call(between: Between) -> None:
    asked = [stream({'task': waits(pending=[pay(cents)])}) for cents in (5, 1_000_000)]
    canned = Canned(*asked, stream({'task': DONE}))
    async with served(between(canned.app, 'middle')) as (ann, bob, eve):
        task = await ann.send('Pay.')
        assert task.task_id
        seen = [await approver.get(task.task_id) for approver in (bob, eve)]
        await seen[0].approve()
        waiting = await asks_again(ann, task.task_id, task)
        with pytest.raises(InvalidParamsError, match='Now the task waits with: Pay 1000000') as error:
            await seen[1].approve()
        assert [violation.field for violation in error.value.violations] == [PLACE]
        with pytest.raises(A2AError):
            await eve.send('yes', task_id=task.task_id)
        assert canned.methods == ['SendStreamingMessage'] * 2
        [known] = waiting.pending
        await (await eve.get(task.task_id)).approve()
        await asks_again(ann, task.task_id, waiting)
    assert len({'local-1', known['id'], task.pending[0]['id']}) == 3
    assert answers_to(canned) == [{'callAnswers': [{'id': 'local-1', 'decision': 'approve'}]}] * 2


@in_between
async def test_plain_text_cannot_approve_next_call(between: Between) -> None:
    asked = [stream({'task': waits(pending=[pay(cents)])}) for cents in (5, 1_000_000)]
    canned = Canned(*asked, stream({'task': DONE}))
    async with served(between(canned.app, 'middle'), 'all') as (ann, bob, eve):
        task = await ann.send('Pay.')
        assert task.task_id
        await bob.send('yes', task_id=task.task_id)
        waiting = await asks_again(ann, task.task_id, task)
        with pytest.raises(InvalidParamsError, match='Plain words cannot approve it'):
            await eve.send('yes', task_id=task.task_id)
        assert 'Plain words cannot approve it' in str(waiting.task)
        assert canned.methods == ['SendStreamingMessage'] * 2
        await eve.send('no', task_id=task.task_id)
        await asks_again(ann, task.task_id, waiting)
    assert answers_to(canned)[1:] == [{'callAnswers': [{'id': 'local-1', 'decision': 'deny'}]}]


@in_between
async def test_remote_calls_get_new_ids_in_each_pause(between: Between) -> None:
    asked = [waits(pending=[pay(cents, 'a'), pay(cents + 1, 'b')]) for cents in (5, 1_000_000)]
    canned = Canned(*[stream({'task': task}) for task in asked], stream({'task': DONE}))
    async with served(between(canned.app, 'middle')) as (ann, bob, eve):
        task = await ann.send('Pay.')
        assert task.task_id
        seen = [await approver.get(task.task_id) for approver in (bob, eve)]
        half = await seen[0].approve(call_id=seen[0].pending[0]['id'])
        assert half.pending == seen[0].pending[1:]
        await half.deny('No.')
        waiting = await asks_again(ann, task.task_id, task)
        for item in seen[1].pending:
            with pytest.raises(InvalidParamsError, match='Pay 1000000'):
                await seen[1].approve(call_id=item['id'])
        await (await eve.get(task.task_id)).approve()
        await asks_again(ann, task.task_id, waiting)
    assert len({item['id'] for result in (task, waiting) for item in result.pending}) == 4
    approved = [{'id': name, 'decision': 'approve'} for name in ('a', 'b')]
    denied = {'id': 'b', 'decision': 'deny', 'reason': 'No.'}
    assert answers_to(canned) == [{'callAnswers': [approved[0], denied]}, {'callAnswers': approved}]


async def test_model_call_with_id_of_remote_call_fails_task() -> None:
    """Else an approval of the small payment would approve the large one, of another agent, too."""
    several = waits(pending=[pay(5, '1'), pay(6, '2')])
    one, two = (Canned(stream({'task': task}), stream({'task': DONE})) for task in (several, waits(pending=[pay(7)])))

    def model(_: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        names = [tool.name for tool in info.function_tools]
        return ModelResponse(
            parts=[
                ToolCallPart(name, {'message': 'Pay.'}, call_id)
                for name, call_id in zip(names, ('c', 'c.1'), strict=True)
            ]
        )

    toolsets = [A2AToolset(app, id=name).prefixed(name) for name, app in (('one', one.app), ('two', two.app))]
    agent = Agent(FunctionModel(model), toolsets=toolsets)
    async with asyncio.timeout(LIMIT), A2AClient(to_a2a(agent)) as client:
        result = await client.send('Pay.')
    assert (result.state, result.pending) == ('failed', [])
    assert one.methods == two.methods == ['SendStreamingMessage']


@in_between
@each_case('prefix', ['adk', 'kagent'])
async def test_function_response_keeps_id_of_function_call(between: Between, prefix: str) -> None:
    asked = [confirming(confirmation(prefix, hint=hint)) for hint in ('One.', 'Two.')]
    canned = Canned(*[stream({'task': task}) for task in asked], stream({'task': DONE}))
    async with served(between(canned.app, 'middle')) as (ann, bob, eve):
        task = await ann.send('Tidy up.')
        assert task.task_id
        seen = [await approver.get(task.task_id) for approver in (bob, eve)]
        await seen[0].approve()
        await asks_again(ann, task.task_id, task)
        with pytest.raises(InvalidParamsError, match=r'Two\.'):
            await seen[1].approve()
    assert canned.methods == ['SendStreamingMessage'] * 2
    assert canned.requests[-1][3]['params']['message']['parts'] == [response(prefix, confirmed=True)]


@in_between
async def test_stale_approval_does_not_reach_inner_server(between: Between) -> None:
    paid: list[int] = []

    def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        returned = [part for sent in messages for part in sent.parts if isinstance(part, ToolReturnPart)]
        if len(returned) == 2:
            return ModelResponse(parts=[TextPart('Paid.')])
        return ModelResponse(parts=[ToolCallPart('pay', {'cents': (5, 1_000_000)[len(returned)]}, 'local-1')])

    inner: Agent[None, Any] = Agent(FunctionModel(model), name='cashier')

    @inner.tool_plain(requires_approval=True)
    def pay(cents: int) -> str:
        paid.append(cents)
        return 'paid'

    app = to_a2a(inner)
    async with app.router.lifespan_context(app), served(between(app, 'middle')) as (ann, bob, eve):
        task = await ann.send('Pay.')
        assert task.task_id
        seen = [await approver.get(task.task_id) for approver in (bob, eve)]
        await seen[0].approve(args=None)
        waiting = await asks_again(ann, task.task_id, task)
        with pytest.raises(InvalidParamsError, match='1000000'):
            await seen[1].approve()
        assert paid == [5]
        await (await eve.get(task.task_id)).approve()
        done = await asks_again(ann, task.task_id, waiting)
    assert (done.state, paid) == ('completed', [5, 1_000_000])


async def test_conversation_answers_only_current_call() -> None:
    asked = [stream({'task': waits(pending=[pay(cents)])}) for cents in (5, 1_000_000)]
    canned = Canned(*asked, stream({'task': DONE}))
    async with asyncio.timeout(LIMIT), A2AClient(to_a2a(by_a_tool(canned.app, 'middle'))) as client:
        conversation = client.conversation()
        first = await conversation.send('Pay.')
        second = await first.approve()
        with pytest.raises(InvalidParamsError, match='Pay 1000000'):
            await first.approve()
        [item] = second.pending
        answer = {'callAnswers': [{'id': item['id'], 'decision': 'deny'}]}
        assert item.get('toolCallId') == first.pending[0].get('toolCallId') == 'outer-call'
        assert (await conversation.send([{'data': answer}])).state == 'completed'
