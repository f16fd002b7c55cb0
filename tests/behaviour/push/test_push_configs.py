"""Lists of webhooks, page by page, and webhooks whose secrets nobody can read any longer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from pydantic_ai import Agent

from pydantic_ai_a2a import Access, Push, to_a2a

from ...client import Client, RpcError, lifespan, message, rpc
from ...dialects import only, spoken
from ..pushing import create, delete, get, listed
from ..refused import refused
from ..stage import serving

URL = 'https://example.com/hook'


async def page(client: Client, task_id: str, **params: Any) -> tuple[list[str], str]:
    """The ids of one page, and the token of the next."""
    found = await client.call('ListTaskPushNotificationConfigs', {'taskId': task_id, **params})
    return [each['id'] for each in found['configs']], found.get('nextPageToken', '')


async def registered(client: Client, *names: str) -> str:
    """A task with webhooks of these names."""
    task_id = (await client.send())['id']
    for name in names:
        await create(client, task_id, id=name, url=URL)
    return task_id


async def test_webhooks_are_listed_page_by_page() -> None:
    async with serving(Agent('test'), push=Push()) as client:
        task_id = await registered(client, 'c', 'a', 'd', 'b')
        whole = await page(client, task_id)
        first, token = await page(client, task_id, pageSize=3)
        await delete(client, task_id, 'c')
        rest = await page(client, task_id, pageToken=token)
        exact = await page(client, task_id, pageSize='3')
    assert whole == (['c', 'a', 'd', 'b'], '')
    assert (first, rest) == (['a', 'b', 'c'], (['d'], ''))
    assert exact == (['a', 'b', 'd'], '')


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
async def test_what_is_no_page_is_refused(params: dict[str, Any], field: str) -> None:
    async with serving(Agent('test'), push=Push()) as client:
        task_id = await registered(client, 'a')
        error = await refused(page(client, task_id, **params))
    assert (error.code, error.fields) == (-32602, [field])


async def test_a_page_of_another_task_is_refused() -> None:
    async with serving(Agent('test'), push=Push()) as client:
        one, other = await registered(client, 'a', 'b'), await registered(client, 'a', 'b')
        _, token = await page(client, one, pageSize=1)
        with pytest.raises(RpcError, match='pageToken: is not a page token of this list'):
            await page(client, other, pageToken=token)


async def test_a_webhook_whose_key_is_gone_is_named_and_can_be_removed_or_registered_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend = f'sqlite:///{tmp_path}/agent.db'
    keys = [Fernet.generate_key().decode() for _ in range(2)]
    app = to_a2a(Agent('test'), name='a', backend=backend, push=Push(keys=keys[:1]))
    async with lifespan(app):
        task_id = await registered(Client(app), 'lost', 'gone')
    app = to_a2a(Agent('test'), name='a', backend=backend, push=Push(keys=keys[1:]))
    async with lifespan(app):
        client = Client(app)
        for reading in (get(client, task_id, 'lost'), listed(client, task_id)):
            with pytest.raises(RpcError, match='configuration lost was encrypted with a key') as unreadable:
                await reading
            assert unreadable.value.code == -32603
            if spoken().has_details:
                assert unreadable.value.data[0]['metadata']['correlationId'] in caplog.messages[-1]
        await create(client, task_id, id='lost', url=URL)
        with pytest.raises(RpcError, match='configuration gone was encrypted with a key'):
            await listed(client, task_id)
        await delete(client, task_id, 'gone')
        assert [each['id'] for each in await listed(client, task_id)] == ['lost']
    assert [each.partition(' (')[0] for each in caplog.messages if 'Webhook' in each] == [
        f'Webhook {name!r} of task {task_id} cannot be read: no key of Push.keys decrypts the webhook'
        for name in ('lost', 'lost', 'gone')
    ]


@pytest.mark.parametrize('path', ['/acme', '/acme/'])
async def test_webhooks_belong_to_the_tenant_whose_path_they_were_registered_by(path: str) -> None:
    app = to_a2a(Agent('test'), push=Push(), access=Access(tenants=['acme', 'umbrella']))
    async with lifespan(app):
        client = Client(app, path=path)
        task_id = await registered(client, 'a')
        assert [each['id'] for each in await listed(client, task_id)] == ['a']
        for stranger in (Client(app, path='/umbrella/'), Client(app)):
            for reading in (get(stranger, task_id, 'a'), listed(stranger, task_id)):
                missing = await refused(reading)
                assert missing.code == -32001
        await delete(client, task_id, 'a')
        assert await listed(client, task_id) == []


async def test_or_whose_name_their_params_have() -> None:
    app = to_a2a(Agent('test'), push=Push(), access=Access(tenants=['acme']))
    async with lifespan(app):
        sent = await Client(app).call('SendMessage', {'message': message(), 'tenant': 'acme'})
        client, task_id = Client(app, path='/acme/'), sent['task']['id']
        await create(client, task_id, id='a', url=URL)
        assert await page(Client(app), task_id, tenant='acme') == (['a'], '')


def older_authentication(authentication: dict[str, str]) -> dict[str, Any]:
    """What 0.3 has instead: a list of schemes, which must not be empty."""
    written: dict[str, Any] = dict(authentication)
    if 'scheme' in written:
        scheme = written.pop('scheme')
        written['schemes'] = [scheme] if scheme else []
    return written


@pytest.mark.parametrize(
    ('target', 'field'),
    [
        ({'url': 'https://127.0.0.1/'}, 'url'),
        ({'url': 'ftp://example.com/'}, 'url'),
        ({'url': 5}, 'url'),
        ({'url': URL, 'token': 'a b'}, 'token'),
        ({'url': 'https://example.com:0/'}, 'url'),
        ({'url': 'https://example.com:99999/'}, 'url'),
        ({'url': 'https://example.com/%00'}, 'url'),
        ({'url': 'https://example.com\\/'}, 'url'),
        ({'url': 'https://exa%6dple.com/'}, 'url'),
        ({'url': URL, 'authentication': {'scheme': 'Bearer', 'credentials': 'ä'}}, 'authentication.credentials'),
        ({'url': URL, 'authentication': {'credentials': 'secret'}}, 'authentication.scheme'),
        ({'url': URL, 'authentication': {'scheme': '', 'credentials': 'secret'}}, 'authentication.scheme'),
        ({'url': URL, 'authentication': {}}, 'authentication.scheme'),
    ],
)
async def test_a_bad_field_has_the_whole_path_that_it_has_in_the_params(target: dict[str, Any], field: str) -> None:
    older = spoken().version == '0.3'
    inline = 'pushNotificationConfig' if older else 'taskPushNotificationConfig'
    if older and 'authentication' in target:
        target = {**target, 'authentication': older_authentication(target['authentication'])}
        field = {'authentication.scheme': 'authentication.schemes'}.get(field, field)
    async with serving(Agent('test'), push=Push()) as client:
        task_id = (await client.send())['id']
        sent = {'message': message(), 'configuration': {inline: target}}
        created = {'taskId': task_id, **({inline: target} if older else target)}
        errors = [
            spoken().error((await client.post(rpc(method, params, client.dialect))).json)
            for method, params in (('SendMessage', sent), ('CreateTaskPushNotificationConfig', created))
        ]
    above = f'{inline}.' if older else ''
    named = [error['message'].removeprefix('Invalid parameters: ').partition(': ')[0] for error in errors]
    assert named == [f'configuration.{inline}.{field}', f'{above}{field}']


@only('0.3', '1.0 has one scheme')
async def test_one_of_many_bad_fields_has_its_number_in_the_path() -> None:
    target = {'url': URL, 'authentication': {'schemes': ['Bearer', 'a b']}}
    async with serving(Agent('test'), push=Push()) as client:
        params = {'taskId': 'no-such-task', 'pushNotificationConfig': target}
        answer = await client.post(rpc('CreateTaskPushNotificationConfig', params, client.dialect))
    assert answer.json['error']['message'] == (
        'Invalid parameters: pushNotificationConfig.authentication.schemes[1]: must not have characters that this'
        ' field does not allow'
    )


@only('0.3', '1.0 has one scheme')
async def test_very_many_bad_fields_are_counted_only() -> None:
    target = {'url': URL, 'authentication': {'schemes': ['a b'] * 1001}}
    async with serving(Agent('test'), push=Push()) as client:
        params = {'taskId': 'no-such-task', 'pushNotificationConfig': target}
        answer = await client.post(rpc('CreateTaskPushNotificationConfig', params, client.dialect))
    assert answer.json['error']['message'] == 'Invalid parameters: 1001 problems'
