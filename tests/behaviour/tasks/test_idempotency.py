"""The same message, sent again: one task, one run, one bill."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import Approvals, Caller, Push, Retention

from ...agents import GatedAgent, echo_prompts, scripted_model
from ...app_client import Client, RpcError, message, state_of, texts
from ...serving import list_tasks, serving
from ..callers import caller_from_header, client_of_caller
from ..pending_calls import ApprovalAgent, answer_message, approve
from ..promised_behaviours import covers
from ..webhook_requests import list_configs

ROW = 'same message twice (messageId and content)'


@covers(ROW)
@pytest.mark.parametrize('fields', [{}, {'contextId': 'c'}])
async def test_repeated_message_returns_same_task_without_new_run(fields: dict[str, Any]) -> None:
    gates = GatedAgent()
    gates.open('hi')
    same = message('hi', **fields)
    async with serving(gates.agent) as client:
        first = await client.send(same)
        again = await client.send(same)
        assert len(await list_tasks(client)) == 1
    assert first == again
    assert gates.began == ['hi']


@covers(ROW)
async def test_repeated_message_waits_for_running_task() -> None:
    gates = GatedAgent()
    same = message('hi')
    async with serving(gates.agent) as client:
        first = asyncio.ensure_future(client.send(same))
        await gates.reached('hi')
        at_once = await client.send(same, returnImmediately=True)
        again = asyncio.ensure_future(client.send(same))
        async with client.send_streaming(same) as stream:
            joined = (await anext(stream)).result['task']
            assert not again.done()
            gates.open('hi')
            events = await stream.rest()
        tasks = await asyncio.gather(first, again)
    assert (state_of(at_once), state_of(joined)) == ('WORKING', 'WORKING')
    assert {task['id'] for task in (*tasks, at_once, joined)} == {joined['id']}
    assert [texts(task) for task in tasks] == [['hi'], ['hi']]
    assert events[-1].result['statusUpdate']['status']['state'] == 'TASK_STATE_COMPLETED'
    assert gates.began == ['hi']


@covers(ROW)
async def test_repeated_streaming_message_returns_finished_task() -> None:
    same = message('hi')
    async with serving(Agent(FunctionModel(echo_prompts))) as client:
        done = await client.send(same)
        async with client.send_streaming(same) as stream:
            events = await stream.rest()
    assert [event.result for event in events] == [{'task': done}]


@covers(ROW)
async def test_repeated_message_to_working_task_runs_once() -> None:
    gates = GatedAgent()
    gates.open('more')
    async with serving(gates.agent) as client:
        task = await client.send('hi', returnImmediately=True)
        await gates.reached('hi')
        more = message('more', taskId=task['id'])
        sends = [asyncio.ensure_future(client.send(more)) for _ in range(3)]
        await client.send(more, returnImmediately=True)
        gates.open('hi')
        tasks = await asyncio.gather(*sends)
        again = await client.send(more)
    assert [texts(each) for each in (*tasks, again)] == [['hi', 'hi + more']] * 4
    assert gates.began == ['hi', 'more']


@covers(ROW)
async def test_short_anonymous_message_id_is_never_a_repeat() -> None:
    async with serving(Agent(TestModel())) as client:
        ids = {
            (await client.send(message(messageId=message_id)))['id'] for message_id in ('1', '1', 'x' * 15, 'x' * 15)
        }
        assert len(ids) == 4
        ids = {(await client.send(message(messageId='x' * 16)))['id'] for _ in range(2)}
        assert len(ids) == 1


@covers(ROW)
async def test_anonymous_repeat_after_idempotency_window_is_new_task() -> None:
    same = message()
    retention = Retention(idempotency_window=timedelta(microseconds=1))
    async with serving(Agent(TestModel()), retention=retention) as client:
        first = await client.send(same)
        while (again := await client.send(same))['id'] == first['id']:
            pass  # within the same millisecond
    assert (state_of(first), state_of(again)) == ('COMPLETED', 'COMPLETED')


ID = 'an-id-of-one-message'
URL = 'https://example.com/hook'
OTHER_CONTENT: dict[str, dict[str, Any]] = {
    'parts': {'message': {'parts': [{'text': 'two'}]}},
    'metadata of the request': {'metadata': {'k': 1}},
    'accepted modes': {'configuration': {'acceptedOutputModes': ['text/plain']}},
    'push URL': {'configuration': {'taskPushNotificationConfig': {'url': URL}}},
}
SAME_CONTENT: dict[str, dict[str, Any]] = {
    'not blocking': {'configuration': {'returnImmediately': True}},
    'historyLength': {'configuration': {'historyLength': 1}},
    'empty metadata': {'metadata': {}},
    'no accepted modes': {'configuration': {'acceptedOutputModes': []}},
}


def sent(change: dict[str, Any]) -> dict[str, Any]:
    """The params of a message with a known id, and a change of them."""
    said = message('one', messageId=ID)
    return {**change, 'message': {**said, **change.get('message', {})}}


@pytest.mark.parametrize('change', OTHER_CONTENT.values(), ids=OTHER_CONTENT)
@pytest.mark.parametrize('swapped', [False, True], ids=['added', 'left out'])
async def test_known_message_id_with_different_content_is_no_repeat(change: dict[str, Any], swapped: bool) -> None:
    first, second = (sent(change), sent({})) if swapped else (sent({}), sent(change))
    async with serving(Agent('test'), auth=caller_from_header, push=Push()) as client:
        client.headers['X-Caller'] = 'ada'
        await client.call('SendMessage', first)
        with pytest.raises(RpcError) as refused:
            await client.call('SendMessage', second)
        assert (refused.value.code, refused.value.fields) == (-32602, ['message.messageId'])
    async with serving(Agent('test'), push=Push()) as client:
        tasks = [(await client.call('SendMessage', params))['task'] for params in (first, second)]
    assert tasks[0]['id'] != tasks[1]['id']


@pytest.mark.parametrize('change', SAME_CONTENT.values(), ids=SAME_CONTENT)
@pytest.mark.parametrize('user', ['ada', ''])
async def test_delivery_options_do_not_make_new_message(change: dict[str, Any], user: str) -> None:
    async with serving(Agent('test'), auth=caller_from_header if user else None) as client:
        client.headers['X-Caller'] = user
        first = (await client.call('SendMessage', sent({})))['task']
        again = (await client.call('SendMessage', sent(change), A2A_Extensions='https://example.com/x', X_Else='1'))[
            'task'
        ]
    assert again['id'] == first['id']


@pytest.mark.parametrize('user', ['ada', ''])
async def test_repeated_message_compares_webhook_by_url_only(user: str) -> None:
    def params(**target: Any) -> dict[str, Any]:
        return sent({'configuration': {'taskPushNotificationConfig': {'url': URL, **target}}})

    async with serving(Agent('test'), auth=caller_from_header if user else None, push=Push()) as client:
        client.headers['X-Caller'] = user
        first = (await client.call('SendMessage', params(token='one')))['task']
        again = (await client.call('SendMessage', params(token='two', id='mine')))['task']
        hooks = await list_configs(client, first['id'])
    assert again['id'] == first['id']
    assert [each['token'] for each in hooks] == ['one']


@pytest.mark.parametrize('user', ['ada', ''])
async def test_zero_idempotency_window_disables_deduplication(user: str) -> None:
    gates = GatedAgent()
    gates.open('hi', 'more')
    off = Retention(idempotency_window=timedelta(0))
    async with serving(gates.agent, retention=off, auth=caller_from_header if user else None) as client:
        client.headers['X-Caller'] = user
        same = message('hi', messageId=ID)
        tasks = [await client.send(same), await client.send(same), await client.send(message('more', messageId=ID))]
    assert len({task['id'] for task in tasks}) == 3
    assert gates.began == ['hi', 'hi', 'more']


def test_negative_idempotency_window_is_refused() -> None:
    with pytest.raises(ValueError, match=r'Retention\.idempotency_window must be 0 or more'):
        Retention(idempotency_window=timedelta(seconds=-1))


@pytest.mark.parametrize('user', ['ada', ''])
@pytest.mark.parametrize('message_id', ['1', ID])
async def test_repeated_answer_is_recognized_despite_short_message_id(user: str, message_id: str) -> None:
    tools = ApprovalAgent()
    retention = Retention(idempotency_window=timedelta(microseconds=1))
    async with serving(tools.agent, auth=caller_from_header if user else None, retention=retention) as client:
        client.headers['X-Caller'] = user
        task = await client.send('delete')
        answer = answer_message(task, approve(), messageId=message_id)
        done = await client.send(answer)
        again = await client.send(answer)
        streamed = [event async for event in aiter_of(client, answer)]
        after = await client.get_task(task['id'])
    assert done == again == after == streamed[-1]
    assert tools.deleted == [('a', True)]


async def aiter_of(client: Client, sent: dict[str, Any]) -> AsyncIterator[Any]:
    async with client.send_streaming(sent) as stream:
        async for event in stream:
            yield event.result['task']


async def test_repeated_answer_does_not_answer_next_question() -> None:
    deleted: list[str] = []

    agent = Agent(scripted_model(*(ToolCallPart('delete', {'path': path}) for path in 'ab'), 'done'))

    @agent.tool_plain(requires_approval=True)
    def delete(path: str) -> None:
        deleted.append(path)

    async with serving(agent, approvals=Approvals(plain_text_answers='all')) as client:
        task = await client.send('delete both')
        yes = message('yes', taskId=task['id'], messageId='1')
        asks_again = await client.send(yes)
        assert (state_of(asks_again), deleted) == ('INPUT_REQUIRED', ['a'])
        assert await client.send(yes) == asks_again
        assert deleted == ['a']
        done = await client.send(message('yes', taskId=task['id'], messageId='2'))
    assert (state_of(done), deleted) == ('COMPLETED', ['a', 'b'])


@covers(ROW)
async def test_caller_reusing_message_id_for_different_content_is_refused() -> None:
    async with serving(Agent(FunctionModel(echo_prompts)), auth=caller_from_header) as client:
        ada, bob = (client_of_caller(client.app, name) for name in ('ada', 'bob'))
        first = await ada.send(message('one', messageId='1'))
        assert await ada.send(message('one', messageId='1')) == first
        for other in (message('two', messageId='1'), message('one', messageId='1', contextId='elsewhere')):
            with pytest.raises(RpcError) as refused:
                await ada.send(other)
            assert (refused.value.code, refused.value.fields) == (-32602, ['message.messageId'])
        assert len(await list_tasks(client, caller=Caller(id='ada'))) == 1
        strangers = await bob.send(message('one', messageId='1'))
    assert strangers['id'] != first['id']


@covers(ROW)
async def test_message_id_of_refused_message_can_be_reused() -> None:
    async with serving(Agent(TestModel()), auth=caller_from_header) as client:
        ada = client_of_caller(client.app, 'ada')
        with pytest.raises(RpcError):
            await ada.send(message(messageId='1', taskId='nowhere'))
        assert state_of(await ada.send(message(messageId='1'))) == 'COMPLETED'
