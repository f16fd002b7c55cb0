"""The same message, sent again: one task, one run, one bill."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel
from starlette.requests import Request

from pydantic_ai_a2a import Caller, Retention

from ..client import Client, RpcError, message, state_of, texts
from .rows import covers
from .stage import Stage, heard, serving, tasks_of

ROW = 'same message twice (messageId and content)'


def authenticate(request: Request) -> Caller:
    return Caller(id=request.headers['x-user'])


@covers(ROW)
@pytest.mark.parametrize('fields', [{}, {'contextId': 'c'}])
async def test_a_message_sent_twice_is_one_task_and_one_run(fields: dict[str, Any]) -> None:
    stage = Stage()
    stage.open('hi')
    same = message('hi', **fields)
    async with serving(stage.agent) as client:
        first = await client.send(same)
        again = await client.send(same)
        assert len(await tasks_of(client)) == 1
    assert first == again
    assert stage.began == ['hi']


@covers(ROW)
async def test_a_message_sent_again_waits_for_the_run_of_the_first() -> None:
    stage = Stage()
    same = message('hi')
    async with serving(stage.agent) as client:
        first = asyncio.ensure_future(client.send(same))
        await stage.reached('hi')
        at_once = await client.send(same, returnImmediately=True)
        again = asyncio.ensure_future(client.send(same))
        async with client.send_streaming(same) as stream:
            joined = (await anext(stream)).result['task']
            assert not again.done()
            stage.open('hi')
            events = await stream.rest()
        tasks = await asyncio.gather(first, again)
    assert (state_of(at_once), state_of(joined)) == ('WORKING', 'WORKING')
    assert {task['id'] for task in (*tasks, at_once, joined)} == {joined['id']}
    assert [texts(task) for task in tasks] == [['hi'], ['hi']]
    assert events[-1].result['statusUpdate']['status']['state'] == 'TASK_STATE_COMPLETED'
    assert stage.began == ['hi']


@covers(ROW)
async def test_a_streaming_send_of_what_is_done_is_answered_with_the_whole_task() -> None:
    same = message('hi')
    async with serving(Agent(FunctionModel(heard))) as client:
        done = await client.send(same)
        async with client.send_streaming(same) as stream:
            events = await stream.rest()
    assert [event.result for event in events] == [{'task': done}]


@covers(ROW)
async def test_a_message_to_a_working_task_sent_twice_is_run_once() -> None:
    stage = Stage()
    stage.open('more')
    async with serving(stage.agent) as client:
        task = await client.send('hi', returnImmediately=True)
        await stage.reached('hi')
        more = message('more', taskId=task['id'])
        sends = [asyncio.ensure_future(client.send(more)) for _ in range(3)]
        await client.send(more, returnImmediately=True)
        stage.open('hi')
        tasks = await asyncio.gather(*sends)
        again = await client.send(more)
    assert [texts(each) for each in (*tasks, again)] == [['hi + more']] * 4
    assert stage.began == ['hi', 'more']


@covers(ROW)
async def test_an_anonymous_message_with_the_same_id_and_other_content_is_a_task_of_its_own() -> None:
    async with serving(Agent(FunctionModel(heard))) as client:
        first = await client.send(message('one', messageId='an-id-of-two-clients'))
        second = await client.send(message('two', messageId='an-id-of-two-clients'))
    assert (texts(first), texts(second)) == (['one'], ['two'])
    assert first['id'] != second['id']
    assert first['contextId'] != second['contextId']


@covers(ROW)
async def test_an_anonymous_message_with_a_short_id_is_never_taken_for_another() -> None:
    async with serving(Agent(TestModel())) as client:
        ids = {
            (await client.send(message(messageId=message_id)))['id'] for message_id in ('1', '1', 'x' * 15, 'x' * 15)
        }
        assert len(ids) == 4
        ids = {(await client.send(message(messageId='x' * 16)))['id'] for _ in range(2)}
        assert len(ids) == 1


@covers(ROW)
async def test_an_anonymous_message_sent_again_after_the_window_is_a_new_one() -> None:
    same = message()
    retention = Retention(idempotency_window=timedelta(microseconds=1))
    async with serving(Agent(TestModel()), retention=retention) as client:
        first = await client.send(same)
        while (again := await client.send(same))['id'] == first['id']:
            pass  # within the same millisecond
    assert (state_of(first), state_of(again)) == ('COMPLETED', 'COMPLETED')


@covers(ROW)
async def test_a_callers_message_with_the_same_id_and_other_content_is_refused() -> None:
    async with serving(Agent(FunctionModel(heard)), authenticate=authenticate) as client:
        ada, bob = (Client(client.app, headers={'X-User': name}) for name in ('ada', 'bob'))
        first = await ada.send(message('one', messageId='1'))
        assert await ada.send(message('one', messageId='1')) == first
        for other in (message('two', messageId='1'), message('one', messageId='1', contextId='elsewhere')):
            with pytest.raises(RpcError) as refused:
                await ada.send(other)
            assert (refused.value.code, refused.value.fields) == (-32602, ['message.messageId'])
        assert len(await tasks_of(client, caller=Caller(id='ada'))) == 1
        strangers = await bob.send(message('one', messageId='1'))
    assert strangers['id'] != first['id']


@covers(ROW)
async def test_what_is_refused_may_be_sent_again_once_it_is_right() -> None:
    async with serving(Agent(TestModel()), authenticate=authenticate) as client:
        ada = Client(client.app, headers={'X-User': 'ada'})
        with pytest.raises(RpcError):
            await ada.send(message(messageId='1', taskId='nowhere'))
        assert state_of(await ada.send(message(messageId='1'))) == 'COMPLETED'
