"""Who is let in, and what one caller learns of another: nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from starlette.requests import Request

from pydantic_ai_a2a import Caller, to_a2a
from pydantic_ai_a2a.auth.callers import Authenticate

from ...client import LIMIT, Client, RpcError, lifespan, message, rpc, state_of, texts
from ...dialects import json_rpc, spoken
from ..refused import refusal, send, untouched
from ..rows import covers


def by_header(request: Request) -> Caller | None:
    name = request.headers.get('x-caller')
    return Caller(id=name, tenant=request.headers.get('x-tenant', '')) if name else None


async def by_header_later(request: Request) -> Caller | None:
    await asyncio.sleep(0)
    return by_header(request)


def caller(app: Any, name: str, **headers: str) -> Client:
    return Client(app, headers={'X-Caller': name, **headers})


def about(method: str, task_id: str) -> bytes:
    params = {'message': message(taskId=task_id)} if 'Message' in method else {'id': task_id}
    return rpc(method, params)


def recall(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Answers with all that the user has said in this conversation."""
    said = [part.content for each in messages for part in each.parts if isinstance(part, UserPromptPart)]
    return ModelResponse(parts=[TextPart(repr(said))])


@pytest.mark.parametrize('authenticate', [by_header, by_header_later])
@json_rpc('the bodies are JSON-RPC')
async def test_a_caller_that_is_not_known_is_refused_before_anything_else(authenticate: Authenticate) -> None:
    async with untouched(auth=authenticate) as client:
        error = refusal(await client.post(send()), status=401, id=None)
        refusal(await client.post(b'not even JSON', {'Content-Type': 'text/plain'}), status=401, id=None)
    assert (error.code, error.reason, error.message) == (
        -32000,
        'UNAUTHENTICATED',
        spoken().text('Authentication is required.'),
    )


@pytest.mark.parametrize('authenticate', [by_header, by_header_later])
async def test_a_caller_that_is_known_is_served(authenticate: Authenticate) -> None:
    app = to_a2a(Agent('test'), auth=authenticate)
    async with lifespan(app):
        task = await caller(app, 'ann').send()
        assert state_of(task) == 'COMPLETED'
        assert [each['id'] for each in await app.list_tasks(caller=Caller(id='ann'))] == [task['id']]
        assert await app.list_tasks(caller=Caller(id='bob')) == []


async def test_the_card_is_public() -> None:
    async with untouched(auth=by_header) as client:
        assert (await client.get('/.well-known/agent-card.json')).status == 200


@pytest.mark.parametrize('method', ['GetTask', 'CancelTask', 'SubscribeToTask', 'SendMessage', 'SendStreamingMessage'])
async def test_anothers_task_is_answered_like_one_that_there_is_not(method: str) -> None:
    started, release = asyncio.Event(), asyncio.Event()

    async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        started.set()
        await release.wait()
        return ModelResponse(parts=[TextPart('done')])

    app = to_a2a(Agent(FunctionModel(answer)), auth=by_header)
    async with lifespan(app), asyncio.timeout(LIMIT):
        task = await caller(app, 'ann').send(returnImmediately=True)
        await started.wait()
        foreign = await caller(app, 'bob').post(about(method, task['id']))
        missing = await caller(app, 'bob').post(about(method, 'no-such-task'))
        tenant = await caller(app, 'ann', **{'X-Tenant': 'other'}).post(about(method, task['id']))
        release.set()
    errors = [refusal(answer) for answer in (foreign, missing, tenant)]
    assert {(error.code, error.reason, error.message) for error in errors} == {
        (-32001, 'TASK_NOT_FOUND', spoken().text('Task not found.'))
    }
    assert [each['status']['state'] for each in await app.list_tasks()] == ['completed']


async def test_a_list_shows_the_callers_own_tasks_only() -> None:
    app = to_a2a(Agent('test'), auth=by_header)
    async with lifespan(app):
        ann, bob = caller(app, 'ann'), caller(app, 'bob')
        mine = [(await ann.send())['id'] for _ in range(2)]
        page = await ann.call('ListTasks', {'pageSize': 1})
        with pytest.raises(RpcError) as refused:
            await bob.call('ListTasks', {'pageSize': 1, 'pageToken': page['nextPageToken']})
        assert (await bob.call('ListTasks'))['totalSize'] == 0
        assert {task['id'] for task in (await ann.call('ListTasks'))['tasks']} == set(mine)
    assert (refused.value.code, refused.value.fields) == (-32602, ['pageToken'])


@covers('same contextId from two callers')
async def test_the_same_context_id_names_two_contexts_that_know_nothing_of_each_other() -> None:
    app = to_a2a(Agent(FunctionModel(recall)), auth=by_header)
    async with lifespan(app):
        for name in ('ann', 'bob', 'ann'):
            task = await caller(app, name).send(message(f'I am {name}', contextId='shared'))
            assert task['contextId'] == 'shared'
        of_bob = await caller(app, 'bob').send(message('Who am I?', contextId='shared'))
        of_ann = await caller(app, 'ann').send(message('Who am I?', contextId='shared'))
    assert texts(of_bob) == ["['I am bob', 'Who am I?']"]
    assert texts(of_ann) == ["['I am ann', 'I am ann', 'Who am I?']"]


async def test_the_same_message_id_from_two_callers_is_two_messages() -> None:
    app = to_a2a(Agent('test'), auth=by_header)
    async with lifespan(app):
        sent = message('hello')
        mine, yours = await caller(app, 'ann').send(sent), await caller(app, 'bob').send(sent)
        again = await caller(app, 'ann').send(sent)
    assert mine['id'] == again['id'] != yours['id']


async def test_anonymous_callers_are_one_owner() -> None:
    app = to_a2a(Agent(FunctionModel(recall)))
    async with lifespan(app):
        task = await Client(app).send(message('one', contextId='shared'))
        assert await Client(app).get_task(task['id']) == task
        following = await Client(app).send(message('two', contextId='shared'))
    assert texts(following) == ["['one', 'two']"]
