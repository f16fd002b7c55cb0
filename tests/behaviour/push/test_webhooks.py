"""Webhooks that clients register: how they are read, listed and removed, and which are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from pydantic_ai import Agent

from pydantic_ai_a2a import Access, BearerAuth, Caller, Push, to_a2a

from ...agents import GatedAgent
from ...app_client import Client, Exchange, RpcError, message, rpc
from ...constants import with_constants
from ...dialects import only_in
from ...serving import list_tasks, serving
from ..callers import caller_from_header, client_of_caller
from ..promised_behaviours import covers
from ..refusals import error_of_call, serving_without_runs
from ..webhook_requests import create_config, delete_config, get_config, list_configs

URL = 'https://example.com/hook'
CONFIG = {'id': 'mine', 'url': URL, 'token': 't', 'authentication': {'scheme': 'Bearer'}}


async def start_task(client: Client, **configuration: Any) -> str:
    return (await client.send('hello', returnImmediately=True, **configuration))['id']


async def test_webhook_can_be_read_listed_and_deleted() -> None:
    gates = GatedAgent()
    async with serving(gates.agent, push=Push()) as client:
        task_id = await start_task(client)
        full = {**CONFIG, 'authentication': {'scheme': 'Bearer', 'credentials': 'c'}}
        assert await create_config(client, task_id, **full) == {'taskId': task_id, **full}
        other = await create_config(client, task_id, url='https://example.com/other')
        assert other == {'id': other['id'], 'taskId': task_id, 'url': 'https://example.com/other'}
        assert await get_config(client, task_id, 'mine') == {'taskId': task_id, **full}
        assert await list_configs(client, task_id) == [{'taskId': task_id, **full}, other]
        for _ in range(2):  # once more does no harm
            await delete_config(client, task_id, 'mine')
        assert await list_configs(client, task_id) == [other]
        assert (await error_of_call(get_config(client, task_id, 'mine'))).code == -32001
        gates.open('hello')


async def test_webhook_with_same_id_is_replaced() -> None:
    gates = GatedAgent()
    async with serving(gates.agent, push=Push()) as client:
        task_id = await start_task(client, taskPushNotificationConfig={'id': 'mine', 'url': 'https://example.com/old'})
        changed = await create_config(client, task_id, id='mine', url='https://example.com/new')
        assert (
            await list_configs(client, task_id)
            == [changed]
            == [{'id': 'mine', 'taskId': task_id, 'url': changed['url']}]
        )
        gates.open('hello')


@covers('official `a2a-sdk` 1.x client')
async def test_webhook_without_id_is_single_per_task_and_caller() -> None:
    gates, target = GatedAgent(), {'url': 'https://example.com/first'}
    async with serving(gates.agent, push=Push()) as client:
        task_id = await start_task(client, taskPushNotificationConfig=target)
        await create_config(client, task_id, id='mine', url=URL)
        for _ in range(12):
            await client.send(
                message('more', taskId=task_id), returnImmediately=True, taskPushNotificationConfig=target
            )
        created = await create_config(client, task_id, url='https://example.com/second')
        mine = {'id': 'mine', 'taskId': task_id, 'url': URL}
        assert await list_configs(client, task_id) == [created, mine]
        assert created['url'] == 'https://example.com/second'
        again = await create_config(client, task_id, id=created['id'], url='https://example.com/third')
        assert await get_config(client, task_id, created['id']) == again
        await delete_config(client, task_id, created['id'])
        assert await list_configs(client, task_id) == [mine]
        gates.open('hello', 'more')


@covers('official `a2a-sdk` 1.x client')
async def test_callers_of_same_owner_keep_separate_webhooks() -> None:
    async with serving(
        GatedAgent().agent, auth=caller_from_header, access=Access(owner=lambda caller: 'team'), push=Push()
    ) as client:
        ann, bob = client_of_caller(client.app, 'ann'), client_of_caller(client.app, 'bob')
        task_id = await start_task(ann, taskPushNotificationConfig={'url': 'https://example.com/ann'})
        [of_ann] = await list_configs(bob, task_id)
        body = {'taskPushNotificationConfig': {'url': 'https://example.com/bob'}, 'returnImmediately': True}
        await bob.send(message('more', taskId=task_id), **body)
        of_bob = await create_config(bob, task_id, url='https://example.com/bob')
        assert await list_configs(ann, task_id) == [of_ann, of_bob]
        taking = {'id': of_ann['id'], 'url': 'https://example.com/bob'}
        errors = [
            await error_of_call(doing)
            for doing in (
                create_config(bob, task_id, **taking),
                bob.send(message('more', taskId=task_id), taskPushNotificationConfig=taking),
            )
        ]
        assert [error.code for error in errors] == [-32602, -32602]
        assert {'names the webhook of another caller' in error.message for error in errors} == {True}
        assert await list_configs(ann, task_id) == [of_ann, of_bob]
        await ann.call('CancelTask', {'id': task_id})


@only_in('0.3', '1.0 needs the id')
async def test_get_without_id_returns_own_or_oldest_webhook() -> None:
    async with serving(
        Agent('test'), auth=caller_from_header, access=Access(owner=lambda caller: 'team'), push=Push()
    ) as client:
        ann, bob, carl = (client_of_caller(client.app, name) for name in ('ann', 'bob', 'carl'))
        task_id = (await ann.send())['id']
        of_ann, of_bob = [await create_config(each, task_id, url=URL) for each in (ann, bob)]
        assert of_ann['id'] != of_bob['id']
        assert [await get_config(each, task_id, None) for each in (ann, bob, carl)] == [of_ann, of_bob, of_ann]


async def test_webhooks_per_task_are_limited() -> None:
    gates = GatedAgent()
    async with serving(gates.agent, push=with_constants(Push, configs=2)) as client:
        task_id = await start_task(client)
        for name in ('a', 'b', 'a'):
            await create_config(client, task_id, id=name, url='https://example.com/')
        assert (await error_of_call(create_config(client, task_id, url='https://example.com/'))).code == -32602
        assert [each['id'] for each in await list_configs(client, task_id)] == ['a', 'b']
        gates.open('hello')


@pytest.mark.parametrize('push', [None, Push()], ids=['none', 'push'])
async def test_card_declares_push_notifications_if_enabled(push: Push | None) -> None:
    card = (await Client(to_a2a(Agent('test'), push=push)).get('/.well-known/agent-card.json')).json
    assert card['capabilities']['pushNotifications'] is (push is not None)


@pytest.mark.parametrize('url', ['http://example.com/', 'https://127.0.0.1/'])
async def test_forbidden_webhook_url_is_refused(url: str) -> None:
    async with serving(Agent('test'), push=Push()) as client:
        error = await error_of_call(client.send(taskPushNotificationConfig={'url': url}))
        assert await list_tasks(client) == []
        task_id = (await client.send())['id']
        assert (await error_of_call(create_config(client, task_id, url=url))).code == error.code == -32602
        assert await list_configs(client, task_id) == []
    assert url not in error.message


async def test_webhooks_of_another_owner_are_not_found() -> None:
    async with serving(Agent('test'), auth=caller_from_header, push=Push()) as client:
        ann, bob = client_of_caller(client.app, 'ann'), client_of_caller(client.app, 'bob')
        task_id = (await ann.send())['id']
        config = await create_config(ann, task_id, **CONFIG)
        errors = [
            await error_of_call(doing)
            for doing in (
                create_config(bob, task_id, id='mine', url='https://evil.example/'),
                get_config(bob, task_id, 'mine'),
                list_configs(bob, task_id),
                delete_config(bob, task_id, 'mine'),
                get_config(bob, 'no-such-task', 'mine'),
            )
        ]
        assert {(error.code, error.message) for error in errors} == {(-32001, errors[-1].message)}
        assert await list_configs(ann, task_id) == [config]


async def test_send_with_webhook_needs_scope_to_create_webhooks() -> None:
    callers = {
        'the-token-of-reader': Caller(id='r', scopes=frozenset({'send'})),
        'the-token-of-hooks': Caller(id='h', scopes=frozenset({'push'})),
    }
    scopes = {'CreateTaskPushNotificationConfig': 'push'}
    async with serving(Agent('test'), auth=BearerAuth(callers), access=Access(scopes=scopes), push=Push()) as client:
        statuses: dict[str, list[int]] = {}
        for token in callers:
            client.headers |= {'Authorization': f'Bearer {token}'}
            for configuration in ({}, {'taskPushNotificationConfig': {'url': 'https://example.com/'}}):
                body = rpc('SendMessage', {'message': message(), 'configuration': configuration})
                statuses.setdefault(token, []).append((await client.post(body)).status)
    assert statuses == {'the-token-of-reader': [200, 403], 'the-token-of-hooks': [200, 200]}


async def test_webhook_of_streamed_message_needs_its_scope() -> None:
    access = Access(scopes={'CreateTaskPushNotificationConfig': 'push'})
    async with serving_without_runs(
        auth=BearerAuth({'the-token-of-ann-1234': 'ann'}), access=access, push=Push()
    ) as client:
        client.headers |= {'Authorization': 'Bearer the-token-of-ann-1234'}
        configuration = {'taskPushNotificationConfig': {'url': URL}}
        body = rpc('SendStreamingMessage', {'message': message(), 'configuration': configuration})
        assert (await client.post(body)).status == 403


def test_push_needs_capable_backend_and_valid_keys() -> None:
    from fasta2a.storage import InMemoryStorage

    with pytest.raises(ValueError, match='push= needs a backend with push notifications'):
        to_a2a(Agent('test'), storage=InMemoryStorage(), push=Push())
    with pytest.raises(ValueError, match=r'Push\.keys must be'):
        to_a2a(Agent('test'), push=Push(keys=['no key']))


@pytest.mark.parametrize('keys', [[], [Fernet.generate_key().decode()]])
async def test_push_keys_encrypt_webhooks_in_store(keys: list[str], tmp_path: Path) -> None:
    async with serving(
        Agent('test', name='agent'), backend=f'sqlite:///{tmp_path}/agent.db', push=Push(keys=keys)
    ) as client:
        target = {'url': 'https://example.com/PATH', 'token': 'TOKEN'}
        task_id = (await client.send(message()))['id']
        created = await create_config(client, task_id, **target)
        assert await list_configs(client, task_id) == [created]
    stored = b''.join(path.read_bytes() for path in tmp_path.iterdir())
    assert [word in stored for word in (b'PATH', b'TOKEN')] == [not keys] * 2


# --- lists, page by page --------------------------------------------------------------------------------------------


async def webhook_page(client: Client, task_id: str, **params: Any) -> tuple[list[str], str]:
    """The ids of one page, and the token of the next."""
    found = await client.call('ListTaskPushNotificationConfigs', {'taskId': task_id, **params})
    return [each['id'] for each in found['configs']], found.get('nextPageToken', '')


async def task_with_webhooks(client: Client, *names: str) -> str:
    """A task with webhooks of these names."""
    task_id = (await client.send())['id']
    for name in names:
        await create_config(client, task_id, id=name, url=URL)
    return task_id


async def test_webhooks_are_listed_page_by_page() -> None:
    async with serving(Agent('test'), push=Push()) as client:
        task_id = await task_with_webhooks(client, 'c', 'a', 'd', 'b')
        whole = await webhook_page(client, task_id)
        first, token = await webhook_page(client, task_id, pageSize=3)
        await delete_config(client, task_id, 'c')
        rest = await webhook_page(client, task_id, pageToken=token)
        exact = await webhook_page(client, task_id, pageSize='3')
    assert whole == (['c', 'a', 'd', 'b'], '')
    assert (first, rest) == (['a', 'b', 'c'], (['d'], ''))
    assert exact == (['a', 'b', 'd'], '')


async def test_pages_of_webhooks_do_not_overlap() -> None:
    async with serving(Agent('test'), push=Push()) as client:
        task_id = await task_with_webhooks(client, 'c', 'a', 'd', 'b')
        pages = [await webhook_page(client, task_id, pageSize=2)]
        while (token := pages[-1][1]) and len(pages) < 4:
            pages.append(await webhook_page(client, task_id, pageSize=2, pageToken=token))
    assert [names for names, _ in pages] == [['a', 'b'], ['c', 'd']]


@pytest.mark.parametrize(
    ('params', 'field'),
    [
        ({'pageSize': 0}, 'pageSize'),
        ({'pageSize': 101}, 'pageSize'),
        ({'pageSize': 'ten'}, 'pageSize'),
        ({'pageToken': 'nonsense'}, 'pageToken'),
        ({'pageToken': 'W10='}, 'pageToken'),
    ],
)
async def test_invalid_page_size_or_token_is_refused(params: dict[str, Any], field: str) -> None:
    async with serving(Agent('test'), push=Push()) as client:
        task_id = await task_with_webhooks(client, 'a')
        error = await error_of_call(webhook_page(client, task_id, **params))
    assert (error.code, error.fields) == (-32602, [field])


async def test_page_token_of_another_task_is_refused() -> None:
    async with serving(Agent('test'), push=Push()) as client:
        one, other = await task_with_webhooks(client, 'a', 'b'), await task_with_webhooks(client, 'a', 'b')
        _, token = await webhook_page(client, one, pageSize=1)
        with pytest.raises(RpcError, match='pageToken: is not a page token of this list'):
            await webhook_page(client, other, pageToken=token)


async def test_undecryptable_webhook_is_named_and_can_be_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend = f'sqlite:///{tmp_path}/agent.db'
    keys = [Fernet.generate_key().decode() for _ in range(2)]
    async with serving(Agent('test'), name='a', backend=backend, push=Push(keys=keys[:1])) as client:
        task_id = await task_with_webhooks(client, 'lost', 'gone')
    async with serving(Agent('test'), name='a', backend=backend, push=Push(keys=keys[1:])) as client:
        for reading in (get_config(client, task_id, 'lost'), list_configs(client, task_id)):
            with pytest.raises(RpcError, match='configuration lost was encrypted with a key') as unreadable:
                await reading
            assert unreadable.value.code == -32603
            assert unreadable.value.data[0]['metadata']['correlationId'] in caplog.messages[-1]
        await create_config(client, task_id, id='lost', url=URL)
        with pytest.raises(RpcError, match='configuration gone was encrypted with a key'):
            await list_configs(client, task_id)
        await delete_config(client, task_id, 'gone')
        assert [each['id'] for each in await list_configs(client, task_id)] == ['lost']
    assert [each.partition(' (')[0] for each in caplog.messages if 'Webhook' in each] == [
        f'Webhook {name!r} of task {task_id} cannot be read: no key of Push.keys decrypts the webhook'
        for name in ('lost', 'lost', 'gone')
    ]


@pytest.mark.parametrize('path', ['/acme', '/acme/'])
async def test_webhooks_belong_to_tenant_of_path(path: str) -> None:
    async with serving(Agent('test'), push=Push(), access=Access(tenants=['acme', 'umbrella'])) as client:
        acme, umbrella = Client(client.app, path=path), Client(client.app, path='/umbrella/')
        task_id = await task_with_webhooks(acme, 'a')
        assert [each['id'] for each in await list_configs(acme, task_id)] == ['a']
        for stranger in (umbrella, client):
            for reading in (get_config(stranger, task_id, 'a'), list_configs(stranger, task_id)):
                missing = await error_of_call(reading)
                assert missing.code == -32001
        await delete_config(acme, task_id, 'a')
        assert await list_configs(acme, task_id) == []


async def test_webhooks_belong_to_tenant_of_params() -> None:
    async with serving(Agent('test'), push=Push(), access=Access(tenants=['acme'])) as client:
        sent = await client.call('SendMessage', {'message': message(), 'tenant': 'acme'})
        task_id = sent['task']['id']
        await create_config(Client(client.app, path='/acme/'), task_id, id='a', url=URL)
        assert await webhook_page(client, task_id, tenant='acme') == (['a'], '')


@pytest.mark.parametrize(
    ('target', 'field'),
    [
        ({'url': 'https://127.0.0.1/'}, 'url'),
        ({}, 'url'),
        ({'url': ''}, 'url'),
        ({'url': 5}, 'url'),
        ({'url': 'https://example.com/\n'}, 'url'),
        ({'url': URL, 'token': 'a b'}, 'token'),
        ({'url': URL, 'token': 'a\r\nHost: b'}, 'token'),
        ({'url': URL, 'token': 'ä'}, 'token'),
        ({'url': URL, 'authentication': 5}, 'authentication'),
        ({'url': URL, 'authentication': {'scheme': 'Bearer', 'credentials': 'ä'}}, 'authentication.credentials'),
        ({'url': URL, 'authentication': {'credentials': 'secret'}}, 'authentication.scheme'),
        ({'url': URL, 'authentication': {'scheme': '', 'credentials': 'secret'}}, 'authentication.scheme'),
        ({'url': URL, 'authentication': {}}, 'authentication.scheme'),
    ],
)
async def test_invalid_webhook_field_is_named_with_full_path(target: dict[str, Any], field: str) -> None:
    async with serving(Agent('test'), push=Push()) as client:
        task_id = (await client.send())['id']
        sent = {'message': message(), 'configuration': {'taskPushNotificationConfig': target}}
        errors = [
            await error_of_call(client.call(method, params))
            for method, params in (
                ('SendMessage', sent),
                ('CreateTaskPushNotificationConfig', {'taskId': task_id, **target}),
            )
        ]
    named = [error.message.removeprefix('Invalid parameters: ').partition(': ')[0] for error in errors]
    assert [error.code for error in errors] == [-32602, -32602]
    assert named == [f'configuration.taskPushNotificationConfig.{field}', field]


@only_in('0.3', '1.0 has one scheme')
@pytest.mark.parametrize(
    ('schemes', 'problem'),
    [
        (
            ['Bearer', 'a b'],
            'pushNotificationConfig.authentication.schemes[1]: must not have characters that this field does not allow',
        ),
        (['a b'] * 1001, '1001 problems'),
    ],
    ids=['second', '1001'],
)
async def test_invalid_authentication_schemes_are_named_or_counted(schemes: list[str], problem: str) -> None:
    target = {'url': URL, 'authentication': {'schemes': schemes}}
    async with serving(Agent('test'), push=Push()) as client:
        params = {'taskId': 'no-such-task', 'pushNotificationConfig': target}
        answer = await client.post(rpc('CreateTaskPushNotificationConfig', params, client.dialect))
    assert answer.json['error']['message'] == f'Invalid parameters: {problem}'


# --- over HTTP+JSON (§11.3) -----------------------------------------------------------------------------------------


async def request(client: Client, verb: str, path: str, body: Any = None) -> tuple[int, Any]:
    headers = {'A2A-Version': '1.0', 'Content-Type': 'application/a2a+json'}
    content = b'' if body is None else json.dumps(body).encode()
    answer = await Exchange(client.app, verb, path, headers, content).answer()
    return answer.status, answer.json


async def test_http_json_creates_reads_lists_and_deletes_webhooks() -> None:
    async with serving(Agent('test'), push=Push()) as client:
        task_id = (await client.send())['id']
        path = f'/tasks/{task_id}/pushNotificationConfigs'
        config = {'id': 'mine', 'taskId': task_id, 'url': 'https://example.com/hook'}
        assert await request(client, 'POST', path, {'id': 'mine', 'url': config['url']}) == (200, config)
        assert await request(client, 'GET', f'{path}/mine') == (200, config)
        assert await request(client, 'GET', path) == (200, {'configs': [config]})
        assert await request(client, 'DELETE', f'{path}/mine') == (200, {})
        assert (await request(client, 'GET', f'{path}/mine'))[0] == 404
        assert (await request(client, 'POST', path, {'url': 'http://127.0.0.1/'}))[0] == 400


@pytest.mark.parametrize('name', ['taskId', 'task_id'])
async def test_http_json_body_contradicting_task_id_is_refused(name: str) -> None:
    async with serving(Agent('test'), push=Push()) as client:
        one, other = [(await client.send())['id'] for _ in range(2)]
        path, url = f'/tasks/{one}/pushNotificationConfigs', 'https://example.com/hook'
        status, answer = await request(client, 'POST', path, {'url': url, name: other})
        assert (status, answer['error']['message']) == (
            400,
            'Invalid parameters: taskId: must be the same as in the path',
        )
        assert await request(client, 'POST', path, {'url': url, 'id': 'c', name: one}) == (
            200,
            {'id': 'c', 'taskId': one, 'url': url},
        )
