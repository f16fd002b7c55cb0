"""Tenants that requests name, in the path or in their params: what belongs to one is nowhere in another."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai import Agent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from pydantic_ai_a2a import Access, APIKeyAuth, Caller, Limits, Push, Quotas, Rate, mount, to_a2a

from ...app_client import Answer, Client, Exchange, RpcError, lifespan, message, rpc, state_of
from ...dialects import PATHS, Call
from ...logs import audit_records
from ...serving import list_tasks, serving
from ..refusals import error_of_answer, serving_without_runs

ANN, BOB = 'the-key-of-ann-1234', 'the-key-of-bob-1234'
AUTH = APIKeyAuth({ANN: 'ann', BOB: Caller(id='bob', tenant='acme')})
CARD = '/.well-known/agent-card.json'
NONE = 'Invalid parameters: tenant: is not a tenant of this caller'
BOTH = pytest.mark.parametrize('path', ['/acme', '/acme/'])


def client_in_tenant(app: Any, key: str, tenant: str = '') -> Client:
    """A client that reaches a tenant by its path."""
    return Client(app, path=f'/{tenant}', headers={'X-API-Key': key})


@BOTH
async def test_path_selects_the_tenant(path: str) -> None:
    app = to_a2a(Agent('test'), auth=AUTH, access=Access(tenants=['acme', 'umbrella']))
    async with lifespan(app):
        client = Client(app, path=path, headers={'X-API-Key': ANN})
        task = await client.send(message('hello', contextId='c'))
        async with client.send_streaming() as stream:
            events = await stream.rest()
        seen = await client.get_task(task['id'])
        others = [await refused(client_in_tenant(app, ANN, tenant), task['id']) for tenant in ('umbrella', '')]
        owned = await app.list_tasks(caller=Caller(id='ann', tenant='acme'))
    assert (state_of(task), seen['id'], others) == ('COMPLETED', task['id'], [-32001, -32001])
    assert {each['id'] for each in owned} == {task['id'], events[0].result['task']['id']}


async def refused(client: Client, task_id: str) -> int:
    with pytest.raises(RpcError) as error:
        await client.get_task(task_id)
    return error.value.code


async def test_params_select_the_tenant() -> None:
    app = to_a2a(Agent('test'), auth=AUTH, access=Access(tenants=True))
    async with lifespan(app):
        client = client_in_tenant(app, ANN)
        task = (await client.call('SendMessage', {'message': message(), 'tenant': 'acme'}))['task']
        by_path = await client_in_tenant(app, ANN, 'acme').get_task(task['id'])
        listed = await client.call('ListTasks', {'tenant': 'acme'})
        elsewhere = await client.call('ListTasks', {'tenant': 'umbrella'})
        with pytest.raises(RpcError) as ended:
            await client.call('CancelTask', {'id': task['id'], 'tenant': 'acme'})
        missing = await refused(client, task['id'])
    assert by_path == task
    assert ([each['id'] for each in listed['tasks']], elsewhere['tasks']) == ([task['id']], [])
    assert (ended.value.code, missing) == (-32002, -32001)


@pytest.mark.parametrize('tenant', ['umbrella', 'a' * 257, 'a\x01', '%2e%2e'])
async def test_unknown_and_foreign_tenants_get_same_refusal(tenant: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, 'pydantic_ai_a2a.audit')
    async with serving_without_runs(auth=AUTH, access=Access(tenants=['acme', 'other'])) as client:
        known = {'X-API-Key': ANN}
        path = f'/{tenant}/' if tenant == 'umbrella' else '/nobody/'
        unknown = await client.post(rpc('GetTask', {'id': 't'}), known, path=path)
        foreign = await client.post(rpc('GetTask', {'id': 't'}), {'X-API-Key': BOB}, path='/other/')
    errors = [error_of_answer(each) for each in (unknown, foreign)]
    assert [(each.code, each.message) for each in errors] == [(-32602, NONE)] * 2
    records = audit_records(caplog)
    assert [(each['event'], each['caller'], each.get('tenant'), each['named']) for each in records] == [
        ('forbidden', 'ann', None, path.strip('/')),
        ('forbidden', 'bob', 'acme', 'other'),
    ]


def not_umbrella(caller: Caller, name: str) -> bool:
    return name != 'umbrella'


@pytest.mark.parametrize('tenant', ['umbrella', 'tasks', 'message:x', '..', 'a' * 257, 'a\u2028b', 'v1', 'health'])
async def test_invalid_or_forbidden_tenant_in_params_is_refused(tenant: str) -> None:
    async with serving_without_runs(auth=AUTH, access=Access(tenants=not_umbrella)) as client:
        answers = [
            await client.post(rpc('SendMessage', {'message': message(), 'tenant': tenant}), {'X-API-Key': key})
            for key in (ANN, BOB)
        ]
    assert [(error.code, error.message) for error in map(error_of_answer, answers)] == [(-32602, NONE)] * 2


async def test_tenants_in_path_and_params_must_agree() -> None:
    async with serving_without_runs(access=Access(tenants=True)) as client:
        said = {'message': message(), 'tenant': 'umbrella'}
        error = error_of_answer(await client.post(rpc('SendMessage', said), path='/acme/'))
    assert (error.code, error.fields) == (-32602, ['tenant'])


@pytest.mark.parametrize(
    ('verb', 'path'),
    [
        ('GET', '/tasks'),
        ('GET', '/tasks/t'),
        ('GET', '/extendedAgentCard'),
        ('GET', '/tasks/t/pushNotificationConfigs'),
        ('DELETE', '/tasks/t/pushNotificationConfigs/c'),
    ],
)
async def test_tenants_in_path_and_query_must_agree(verb: str, path: str) -> None:
    access = Access(tenants=True, extended_card={'version': '2'})
    async with serving_without_runs(auth=AUTH, access=access, push=Push()) as client:
        known = {'X-API-Key': ANN}
        answer = await client.get(f'/acme{path}?tenant=umbrella', known, method=verb)
        agrees = await client.get('/acme/extendedAgentCard?tenant=acme', known)
    assert (answer.status, violated_fields(answer)) == (400, ['tenant'])
    assert agrees.status == 200


def violated_fields(answer: Answer) -> list[str]:
    return [each['field'] for each in answer.json['error']['details'][1]['fieldViolations']]


async def test_tenant_of_the_credentials_needs_no_path() -> None:
    async with serving(Agent('test'), auth=AUTH, access=Access(tenants=['umbrella'])) as client:
        task = await client_in_tenant(client.app, BOB).send()
        same = await client_in_tenant(client.app, BOB, 'acme').get_task(task['id'])
        [owned] = await list_tasks(client, caller=Caller(id='bob', tenant='acme'))
    assert same['id'] == owned['id'] == task['id']


async def test_tenants_function_decides_per_caller() -> None:
    async def allowed(caller: Caller, name: str) -> bool:
        return name == f'{caller.id}s-company'

    async with serving(Agent('test'), auth=AUTH, access=Access(tenants=allowed)) as client:
        task = await client_in_tenant(client.app, ANN, 'anns-company').send()
        with pytest.raises(RpcError, match='is not a tenant of this caller'):
            await client_in_tenant(client.app, ANN, 'bobs-company').send()
        [owned] = await list_tasks(client)
    assert (state_of(task), owned['id']) == ('COMPLETED', task['id'])


async def test_owner_function_receives_the_selected_tenant() -> None:
    async with serving(
        Agent('test'), auth=AUTH, access=Access(tenants=True, owner=lambda caller: f'team of {caller.tenant}')
    ) as client:
        task = await client_in_tenant(client.app, ANN, 'acme').send()
        same = await client_in_tenant(client.app, BOB, 'acme').get_task(task['id'])
        other = await refused(client_in_tenant(client.app, ANN, 'umbrella'), task['id'])
    assert (same['id'], other) == (task['id'], -32001)


async def test_rate_is_shared_by_all_tenants_of_caller() -> None:
    async with serving(
        Agent('test'),
        auth=AUTH,
        access=Access(tenants=True),
        limits=Limits(quotas=Quotas(rates={'GetTask': Rate(1, timedelta(days=1))})),
    ) as client:
        codes = [await refused(client_in_tenant(client.app, ANN, tenant), 't') for tenant in ('acme', 'umbrella')]
        other = await refused(client_in_tenant(client.app, BOB), 't')
    assert (codes, other) == ([-32001, -32000], -32001)


async def test_anonymous_callers_of_two_tenants_have_separate_tasks() -> None:
    async with serving(Agent('test'), access=Access(tenants=['a', 'b'])) as client:
        task = await Client(client.app, path='/a/').send()
        assert (await Client(client.app, path='/a').get_task(task['id']))['id'] == task['id']
        assert [await refused(Client(client.app, path=path), task['id']) for path in ('/b/', '/')] == [-32001] * 2


@pytest.mark.parametrize('names', [{}, {'tenant': 'acme'}])
async def test_tenants_false_ignores_params_and_hides_tenant_paths(names: Mapping[str, str]) -> None:
    async with serving(Agent('test'), auth=AUTH, access=Access(tenants=False)) as client:
        task = (await client_in_tenant(client.app, ANN).call('SendMessage', {'message': message(), **names}))['task']
        [owned] = await list_tasks(client, caller=Caller(id='ann'))
        nothing = await client.post(rpc('GetTask', {'id': 't'}), {'X-API-Key': ANN}, path='/acme/')
    assert (owned['id'], nothing.status) == (task['id'], 404)


async def test_named_tenant_is_ignored_by_default() -> None:
    async with serving(Agent('test'), auth=AUTH) as client:
        known = {'X-API-Key': ANN}

        async def ask(verb: str, path: str, **body: Any) -> Answer:
            return await client.post(Call.to(verb, path, json.dumps(body).encode() if body else b''), known)

        framed = await client.post(rpc('SendMessage', {'message': message(), 'tenant': 'acme'}), known)
        in_body = await ask('POST', '/message:send', message=message(), tenant='acme')
        in_path = await ask('POST', '/acme/message:send', message=message())
        streamed = await ask('POST', '/acme/message:stream', message=message())
        task_id = in_path.json['task']['id']
        plain, below = [await ask('GET', f'{tenant}/tasks/{task_id}') for tenant in ('', '/acme')]
        reserved = await ask('GET', f'/health/tasks/{task_id}')
        unsaid = await client.post(Call.to('GET', f'/acme/tasks/{task_id}', b''))
    assert [framed.status, in_path.status, in_body.status, streamed.status] == [200] * 4
    assert plain.json == below.json == in_path.json['task']
    assert [reserved.status, unsaid.status] == [404, 401]


async def test_app_paths_cannot_be_tenants() -> None:
    own = [Route('/own/{rest:path}', PlainTextResponse('own')), Mount('/app', PlainTextResponse('app'))]
    async with serving(Agent('test'), access=Access(tenants=True), routes=own) as client:
        paths = ('/own/tasks', '/app/tasks', '/health/live', CARD)
        answers = [(await client.get(path)).body[:3] for path in paths]
        # Names of the app's paths are no tenants': what is below them stays unknown.
        statuses = [(await client.get(path)).status for path in ('/tasks/tasks/x', '/v1/tasks', '/health/tasks')]
        posted = await client.post(rpc('GetTask', {'id': 't'}), path='/health/')
        named = await client.get('/acme/other')
    assert answers[:2] == [b'own', b'app']
    assert (statuses, posted.status, named.status) == ([404, 400, 404], 404, 404)
    for name in ('own', 'app', 'health', '.well-known', 'tasks', 'extendedAgentCard', 'message:send', '', 'a\nb'):
        with pytest.raises(ValueError, match='cannot be the name of a tenant'):
            to_a2a(Agent('test'), access=Access(tenants=['fine', name]), routes=own)
    with pytest.raises(TypeError, match=r'tenants takes True or False, a list or a set of strings, .* not a string'):
        to_a2a(Agent('test'), access=Access(tenants='acme'))


@pytest.mark.parametrize(('docs_url', 'name'), [('/docs', 'docs'), ('/try/it', 'try')])
async def test_path_of_playground_is_no_tenant(docs_url: str, name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' cannot be the name of a tenant"):
        to_a2a(Agent('test'), access=Access(tenants=['acme', name]), docs_url=docs_url)
    async with serving(Agent('test'), access=Access(tenants=True), docs_url=docs_url) as client:
        assert (await client.post(rpc('GetTask', {'id': 't'}), path=f'/{name}')).status == 404


async def test_agent_card_of_tenant_names_tenant() -> None:
    app, parent = to_a2a(Agent('test', name='joker'), access=Access(tenants=['acme'])), Starlette()
    mount(parent, '/agent', app)
    async with lifespan(parent):
        client = Client(parent)
        plain = (await client.get(f'/agent{CARD}')).json
        card = (await client.get(f'/agent/a%20b{CARD}')).json
    url = 'http://testserver/agent/'
    assert card['supportedInterfaces'] == [
        {'url': url, 'protocolBinding': 'JSONRPC', 'protocolVersion': '1.0', 'tenant': 'a b'},
        {'url': url, 'protocolBinding': 'HTTP+JSON', 'protocolVersion': '1.0', 'tenant': 'a b'},
        {'url': f'{url}a%20b/', 'protocolBinding': 'JSONRPC', 'protocolVersion': '0.3'},
    ]
    assert card['url'] == f'{url}a%20b/'
    same = ('supportedInterfaces', 'url')
    assert {name: card[name] for name in card if name not in same} == {
        name: plain[name] for name in plain if name not in same
    }
    assert 'tenant' not in str(plain)


async def test_tenant_is_encoded_in_card_url() -> None:
    async with serving(Agent('test'), access=Access(tenants=['a/b'])) as client:
        card = (await client.get(f'/a%2Fb{CARD}')).json
        assert card['url'] == 'http://testserver/a%2Fb/'
        await Client(client.app, path='/a%2Fb/').send()
        [task] = await list_tasks(client, caller=Caller(id='', tenant='a/b'))
    assert task['status']['state'] == 'completed'


async def test_extended_agent_card_is_built_for_tenant() -> None:
    async with serving(
        Agent('test'),
        auth=AUTH,
        access=Access(tenants=True, extended_card=lambda caller, card: {'version': caller.tenant}),
    ) as client:
        answer = await client.post(rpc('GetExtendedAgentCard'), {'X-API-Key': ANN}, path='/acme/')
        card = answer.json['result']
    assert (card['version'], card['supportedInterfaces'][0]['tenant']) == ('acme', 'acme')


@pytest.mark.parametrize('method', ['GetExtendedAgentCard', 'GetTaskPushNotificationConfig'])
async def test_card_and_webhook_operations_refuse_forbidden_tenant(method: str) -> None:
    async with serving_without_runs(
        auth=AUTH, access=Access(tenants=['acme'], extended_card={'version': '2'})
    ) as client:
        params = {'tenant': 'umbrella', 'taskId': 't', 'id': 'c'}
        error = error_of_answer(await client.post(rpc(method, params), {'X-API-Key': ANN}))
    assert (error.code, error.message) == (-32602, NONE)


async def test_non_string_tenant_is_refused() -> None:
    async with serving_without_runs(auth=AUTH, access=Access(tenants=True, extended_card={'version': '2'})) as client:
        error = error_of_answer(await client.post(rpc('GetExtendedAgentCard', {'tenant': 5}), {'X-API-Key': ANN}))
    assert (error.code, error.fields) == (-32602, ['tenant'])


@pytest.mark.parametrize(
    ('verb', 'path', 'status', 'reason'),
    [
        ('GET', '/tasks/t%2Fu', 404, 'TASK_NOT_FOUND'),
        ('GET', '/message:send', 405, 'METHOD_NOT_FOUND'),
        ('POST', '/message:nothing', 404, 'METHOD_NOT_FOUND'),
        ('GET', '/tasks/t/nothing', 404, 'METHOD_NOT_FOUND'),
        ('POST', '/tasks//:cancel', 404, 'METHOD_NOT_FOUND'),
        ('POST', '/v1/message:send', 400, 'VERSION_NOT_SUPPORTED'),
    ],
)
async def test_http_errors_are_the_same_below_a_tenant_path(verb: str, path: str, status: int, reason: str) -> None:
    async with serving_without_runs(access=Access(tenants=True)) as client:
        for tenant in ('', '/acme'):
            answer = await Exchange(client.app, verb, tenant + path, {}, b'').answer()
            assert answer.headers['content-type'] == 'application/a2a+json'
            assert (answer.status, answer.json['error']['details'][0]['reason']) == (status, reason)


@pytest.mark.parametrize(('verb', 'path'), PATHS.values(), ids=PATHS)
async def test_every_http_path_is_served_below_tenant_path(verb: str, path: str) -> None:
    async with serving_without_runs(access=Access(tenants=True), push=Push()) as client:
        refusals: list[Any] = []
        for tenant in ('', '/acme', '/tenant:of%2Fours'):
            sent = tenant + path.format(id='t', taskId='t')
            answer = await Exchange(client.app, verb, sent, {'Content-Type': 'application/json'}, b'{}').answer()
            details = answer.json.get('error', {}).get('details', [])
            refusals.append((answer.status, [each.get('reason', each.get('fieldViolations')) for each in details]))
    assert refusals == refusals[:1] * 3
    assert 'METHOD_NOT_FOUND' not in str(refusals)


@pytest.mark.parametrize('path', ['/acme', '/acme/nothing', '/tasks/tasks/t:none/x', '/a%0Ab/tasks/t/x'])
async def test_path_outside_tenant_operations_is_404(path: str) -> None:
    async with serving_without_runs(access=Access(tenants=True)) as client:
        assert (await Exchange(client.app, 'DELETE', path, {}, b'').answer()).status == 404


def caller_of(request: Request) -> Caller:
    return Caller(id=request.headers['x-caller'], tenant='acme')


async def test_tenant_of_authenticated_caller_cannot_be_changed() -> None:
    async with serving(Agent('test'), auth=caller_of, access=Access(tenants=True)) as client:
        headers = {'X-Caller': 'eve'}
        task = await Client(client.app, path='/acme/', headers=headers).send()
        with pytest.raises(RpcError, match='is not a tenant of this caller'):
            await Client(client.app, path='/umbrella/', headers=headers).get_task(task['id'])


async def test_audit_record_has_the_requested_tenant(caplog: pytest.LogCaptureFixture) -> None:
    parts = [{'url': 'https://10.0.0.1/a.png', 'mediaType': 'image/png'}]
    async with serving_without_runs(auth=AUTH, access=Access(tenants=['umbrella'])) as client:
        headers = {'X-API-Key': ANN}
        await client.post(rpc('SendMessage', {'message': message(parts=parts)}), headers, path='/umbrella/')
    [record] = audit_records(caplog)
    assert (record['refusal'], record['caller'], record['tenant']) == ('private-address', 'ann', 'umbrella')
