"""Messages that name a task which cannot take them."""

from __future__ import annotations

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel
from starlette.requests import Request

from pydantic_ai_a2a import Caller

from ...client import Client, RpcError, message, state_of, texts
from ..rows import covers
from ..stage import Stage, ended, heard, serving, tasks_of

ROW = 'message to a finished / unknown / other-context task'


@covers(ROW)
async def test_a_message_to_a_finished_task_is_refused_and_its_context_goes_on_without_it() -> None:
    async with serving(Agent(FunctionModel(heard))) as client:
        done = await client.send('one')
        with pytest.raises(RpcError) as refused:
            await client.send(message('two', taskId=done['id']))
        with pytest.raises(RpcError) as refused_stream:
            async with client.send_streaming(message('two', taskId=done['id'], contextId=done['contextId'])):
                pass
        assert await client.get_task(done['id']) == done
        assert len(await tasks_of(client)) == 1
        following = await client.send(message('three', contextId=done['contextId']))
    assert texts(following) == ['one + three']
    assert [(each.value.code, each.value.reason) for each in (refused, refused_stream)] == [
        (-32004, 'UNSUPPORTED_OPERATION')
    ] * 2
    assert 'completed' in refused.value.message


@covers(ROW)
async def test_a_message_to_a_task_that_there_is_not_is_refused_and_creates_none() -> None:
    def authenticate(request: Request) -> Caller:
        return Caller(id=request.headers['x-user'])

    async with serving(Agent(FunctionModel(heard)), auth=authenticate) as client:
        ada, bob = (Client(client.app, headers={'X-User': name}) for name in ('ada', 'bob'))
        task = await bob.send()
        for task_id in ('nowhere', task['id']):
            with pytest.raises(RpcError) as refused:
                await ada.send(message(taskId=task_id))
            assert (refused.value.code, refused.value.reason) == (-32001, 'TASK_NOT_FOUND')
        assert await tasks_of(client, caller=Caller(id='ada')) == []


@covers(ROW)
async def test_a_message_to_a_task_of_another_context_is_refused() -> None:
    stage = Stage()
    async with serving(stage.agent) as client:
        task = await client.send('hi', returnImmediately=True)
        await stage.reached('hi')
        with pytest.raises(RpcError) as refused:
            await client.send(message('more', taskId=task['id'], contextId='elsewhere'))
        assert (refused.value.code, refused.value.fields) == (-32602, ['message.contextId'])
        assert len((await client.get_task(task['id']))['history']) == 1
        more = message('more', taskId=task['id'], contextId=task['contextId'])
        assert (await client.send(more, returnImmediately=True))['id'] == task['id']
        stage.open('hi', 'more')
        done = await ended(client, task['id'])
    assert (state_of(done), texts(done)) == ('COMPLETED', ['hi', 'hi + more'])
