"""Who is let in, what one caller learns of another, and callers who share their tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel
from starlette.requests import Request
from starlette.types import ASGIApp

from pydantic_ai_a2a import A2AApp, Access, CallContext, Caller, Limits, Messages, Quotas, Rate, to_a2a
from pydantic_ai_a2a.server.auth.authenticator import Authenticate

from ...agents import GatedAgent, echo_prompts
from ...app_client import Client, message, rpc, state_of, texts
from ...serving import list_tasks, serving, wait_until_ended
from ..callers import caller_from_header, client_of_caller
from ..refusals import error_of_answer, error_of_call, send_body, serving_without_runs


async def by_header_later(request: Request) -> Caller | None:
    await asyncio.sleep(0)
    return caller_from_header(request)


def task_request(method: str, task_id: str) -> bytes:
    params = {'message': message(taskId=task_id)} if 'Message' in method else {'id': task_id}
    return rpc(method, params)


@pytest.mark.parametrize('authenticate', [caller_from_header, by_header_later])
async def test_unknown_caller_is_refused_before_request_is_parsed(authenticate: Authenticate) -> None:
    async with serving_without_runs(auth=authenticate) as client:
        error = error_of_answer(await client.post(send_body()), status=401, id=None)
        error_of_answer(await client.post(b'not even JSON', {'Content-Type': 'text/plain'}), status=401, id=None)
    assert (error.code, error.reason, error.message) == (-32000, 'UNAUTHENTICATED', 'Authentication is required.')


@pytest.mark.parametrize('authenticate', [caller_from_header, by_header_later])
async def test_known_caller_owns_the_created_task(authenticate: Authenticate) -> None:
    async with serving(Agent('test'), auth=authenticate) as client:
        task = await client_of_caller(client.app, 'ann').send()
        assert state_of(task) == 'COMPLETED'
        assert [each['id'] for each in await list_tasks(client, caller=Caller(id='ann'))] == [task['id']]
        assert await list_tasks(client, caller=Caller(id='bob')) == []


@pytest.mark.parametrize('method', ['GetTask', 'CancelTask', 'SubscribeToTask', 'SendMessage', 'SendStreamingMessage'])
async def test_task_of_another_owner_is_not_found(method: str) -> None:
    gates = GatedAgent()
    async with serving(gates.agent, auth=caller_from_header) as client:
        ann, bob = client_of_caller(client.app, 'ann'), client_of_caller(client.app, 'bob')
        task = await ann.send(returnImmediately=True)
        await gates.reached('hello')
        foreign = await bob.post(task_request(method, task['id']))
        missing = await bob.post(task_request(method, 'no-such-task'))
        tenant = await client_of_caller(client.app, 'ann', tenant='other').post(task_request(method, task['id']))
        gates.open('hello')
    errors = [error_of_answer(answer) for answer in (foreign, missing, tenant)]
    assert {(error.code, error.reason, error.message) for error in errors} == {
        (-32001, 'TASK_NOT_FOUND', 'Task not found.')
    }
    assert [each['status']['state'] for each in await list_tasks(client)] == ['completed']


async def test_list_tasks_returns_only_tasks_of_caller() -> None:
    async with serving(Agent('test'), auth=caller_from_header) as client:
        ann, bob = client_of_caller(client.app, 'ann'), client_of_caller(client.app, 'bob')
        mine = [(await ann.send())['id'] for _ in range(2)]
        page = await ann.call('ListTasks', {'pageSize': 1})
        error = await error_of_call(bob.call('ListTasks', {'pageSize': 1, 'pageToken': page['nextPageToken']}))
        assert (await bob.call('ListTasks'))['totalSize'] == 0
        assert {task['id'] for task in (await ann.call('ListTasks'))['tasks']} == set(mine)
    assert (error.code, error.fields) == (-32602, ['pageToken'])


async def test_anonymous_callers_share_tasks_and_contexts() -> None:
    async with serving(Agent(FunctionModel(echo_prompts))) as client:
        task = await client.send(message('one', contextId='shared'))
        assert await client.get_task(task['id']) == task
        following = await client.send(message('two', contextId='shared'))
    assert texts(following) == ['one + two']


# --- `Access.owner`: callers of a tenant who share their tasks ------------------------------------------------------

TEAMS = {'ann': 'red', 'bob': 'red', 'carol': 'blue'}


def by_name(request: Request) -> Caller:
    tenant, _, name = request.headers['x-caller'].rpartition('/')
    return Caller(id=name, tenant=tenant)


def team(caller: Caller) -> str:
    return TEAMS[caller.id]


@asynccontextmanager
async def serving_teams(**options: Any) -> AsyncGenerator[A2AApp]:
    async with serving(
        Agent(FunctionModel(echo_prompts)), auth=by_name, access=Access(owner=team), **options
    ) as client:
        yield client.a2a_app


def client_of(app: ASGIApp, who: str) -> Client:
    return Client(app, headers={'X-Caller': who})


async def test_team_shares_tasks_and_contexts() -> None:
    async with serving_teams() as app:
        first = await client_of(app, 'acme/ann').send('one')
        second = await client_of(app, 'acme/bob').send(message('two', contextId=first['contextId']))
        assert (await client_of(app, 'acme/bob').get_task(first['id']))['id'] == first['id']
    assert texts(second) == ['one + two']


@pytest.mark.parametrize('who', ['acme/carol', 'other/ann', 'other/bob', '/ann'])
async def test_task_of_another_team_or_tenant_is_not_found(who: str) -> None:
    async with serving_teams() as app:
        first = await client_of(app, 'acme/ann').send('one')
        error = await error_of_call(client_of(app, who).get_task(first['id']))
        own = await client_of(app, who).send(message('two', contextId=first['contextId']))
    assert error.code == -32001
    assert texts(own) == ['two']


async def test_list_tasks_counts_tasks_of_team() -> None:
    async with serving_teams() as app:
        for who in ('acme/ann', 'acme/bob', 'acme/carol', 'other/ann'):
            await client_of(app, who).send('one')
        sizes = [
            (await client_of(app, who).call('ListTasks'))['totalSize']
            for who in ('acme/ann', 'acme/bob', 'acme/carol', 'other/ann')
        ]
    assert sizes == [2, 2, 1, 1]


async def test_python_api_maps_callers_to_their_team() -> None:
    ann, bob, carol = (Caller(id=name, tenant='acme') for name in TEAMS)
    async with serving_teams() as app:
        task = await client_of(app, 'acme/ann').send('one')
        assert [len(await app.list_tasks(caller=who)) for who in (ann, bob, carol)] == [1, 1, 0]
        kept = await app.conversations(caller=bob).load(task['contextId'])
        assert kept is not None
        assert await app.erase_context(task['contextId'], caller=carol) is False
        assert await app.erase_context(task['contextId'], caller=bob) is True
        assert await app.list_tasks() == []


async def test_team_shares_a_quota() -> None:
    quotas = Quotas(rates=Rate(1, timedelta(hours=1)))
    async with serving_teams(limits=Limits(quotas=quotas)) as app:
        await client_of(app, 'acme/ann').send()
        await client_of(app, 'acme/carol').send()
        error_of_answer(await client_of(app, 'acme/bob').post(send_body()), status=429)


@pytest.mark.parametrize('named', ['', None, 7])
async def test_owner_function_must_return_non_empty_string(named: Any, caplog: pytest.LogCaptureFixture) -> None:
    def wrong(_: Caller) -> Any:
        return named

    async with serving_without_runs(auth=by_name, access=Access(owner=wrong)) as client:
        answer = await client.post(send_body(), {'X-Caller': 'acme/ann'})
    assert error_of_answer(answer, id=None).message == 'Internal error.'
    assert f'Access.owner must return a string that is not empty, not {named!r}.' in caplog.text


def test_owner_function_requires_auth() -> None:
    with pytest.raises(TypeError, match=r'Access\.owner needs auth='):
        to_a2a(Agent('test'), access=Access(owner=team))


def test_owners_of_distinct_tenant_and_name_pairs_differ() -> None:
    names = ['a', 'b', 'a/b', 'a%2Fb', '/', '%2F', ' ', 'ä', '']
    pairs = [(tenant, name) for tenant in names for name in names if name]
    owners = {Caller(id='x', tenant=tenant, owns_as=name).owner for tenant, name in pairs}
    assert len(owners) == len(pairs)
    assert owners == {Caller(id=name, tenant=tenant).owner for tenant, name in pairs}


async def test_message_runs_as_the_sending_team_member() -> None:
    told: list[tuple[str, str, list[str], str]] = []

    def known(request: Request) -> Caller:
        scopes = frozenset({'admin'}) if request.headers['x-caller'] == 'bob' else frozenset[str]()
        return Caller(id=request.headers['x-caller'], scopes=scopes)

    def note(call: CallContext) -> None:
        text = call.message['parts'][0].get('text', '')
        told.append((text, call.caller.id, sorted(call.caller.scopes), call.headers['x-caller']))

    gates = GatedAgent()
    async with serving(
        gates.agent,
        auth=known,
        access=Access(owner=team),
        deps_factory=note,
        messages=Messages(deps_headers=['x-caller']),
    ) as client:
        ann, bob = client_of(client.app, 'ann'), client_of(client.app, 'bob')
        await ann.send(message('first', contextId='c'), returnImmediately=True)
        await gates.reached('first')
        task = await ann.send(message('delete all', contextId='c'), returnImmediately=True)
        await bob.send(message('thanks', taskId=task['id']), returnImmediately=True)
        gates.open('first', 'delete all', 'thanks')
        await wait_until_ended(ann, task['id'])
    assert told[1:] == [('delete all', 'ann', [], 'ann'), ('thanks', 'bob', ['admin'], 'bob')]
