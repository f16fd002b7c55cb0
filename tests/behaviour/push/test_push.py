"""Push notifications: webhooks that clients register, and what these are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from a2a.compat.v0_3 import types
from a2a.types import StreamResponse
from cryptography.fernet import Fernet
from google.protobuf.json_format import MessageToDict, ParseDict
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import A2AApp, Access, BearerAuth, Caller, Push, Results, to_a2a
from pydantic_ai_a2a.store.ports import Outbox

from ...client import LIMIT, Client, lifespan, message, rpc, state_of
from ...dialects import spoken
from ...fixed import fixed
from ...webhooks import HANGS, Received, webhook
from ..callers import by_header, caller
from ..pushing import create, delete, get, listed
from ..refused import refused
from ..stage import Stage, ended, serving

LOCAL = fixed(Push, private_hosts=['127.0.0.1'], backoff=0.0001, timeout=LIMIT)
TARGET = {'id': 'mine', 'url': 'https://example.com/hook', 'token': 't', 'authentication': {'scheme': 'Bearer'}}


async def queued(client: Client, text: str = 'hello', **configuration: Any) -> str:
    return (await client.send(text, returnImmediately=True, **configuration))['id']


def says(received: list[Received]) -> list[str]:
    return [each.says for each in received]


def wire(*told: str) -> list[str]:
    """What a webhook hears of these events in the test's version: 0.3 sends the task as its status changes."""
    if spoken().version == '1.0':
        return [*told]
    states = (state for state in told if state.isupper())
    return [f'task {state.lower().replace("_", "-")}' for state in states]


# What is registered.


async def test_what_is_registered_can_be_read_and_removed() -> None:
    stage = Stage()
    async with serving(stage.agent, push=Push()) as client:
        task_id = await queued(client)
        full = {**TARGET, 'authentication': {'scheme': 'Bearer', 'credentials': 'c'}}
        assert await create(client, task_id, **full) == {'taskId': task_id, **full}
        other = await create(client, task_id, url='https://example.com/other')
        assert other == {'id': other['id'], 'taskId': task_id, 'url': 'https://example.com/other'}
        assert len(other['id']) == 32
        assert await get(client, task_id, 'mine') == {'taskId': task_id, **full}
        assert await listed(client, task_id) == [{'taskId': task_id, **full}, other]
        for _ in range(2):  # once more does no harm
            await delete(client, task_id, 'mine')
        assert await listed(client, task_id) == [other]
        assert (await refused(get(client, task_id, 'mine'))).code == -32001
        stage.open('hello')


async def test_one_that_is_registered_again_is_replaced() -> None:
    stage = Stage()
    async with serving(stage.agent, push=Push()) as client:
        task_id = await queued(client, taskPushNotificationConfig={'id': 'mine', 'url': 'https://example.com/old'})
        changed = await create(client, task_id, id='mine', url='https://example.com/new')
        assert await listed(client, task_id) == [changed] == [{'id': 'mine', 'taskId': task_id, 'url': changed['url']}]
        stage.open('hello')


async def test_a_task_has_no_more_of_them_than_it_may() -> None:
    stage = Stage()
    async with serving(stage.agent, push=fixed(Push, configs=2)) as client:
        task_id = await queued(client)
        for name in ('a', 'b', 'a'):
            await create(client, task_id, id=name, url='https://example.com/')
        assert (await refused(create(client, task_id, url='https://example.com/'))).code == -32602
        assert [each['id'] for each in await listed(client, task_id)] == ['a', 'b']
        stage.open('hello')


@pytest.mark.parametrize('push', [None, Push()], ids=['none', 'push'])
async def test_the_card_says_whether_there_are_any(push: Push | None) -> None:
    card = (await Client(to_a2a(Agent('test'), push=push)).get('/.well-known/agent-card.json')).json
    assert card['capabilities']['pushNotifications'] is (push is not None)


async def test_without_the_setting_there_are_none() -> None:
    async with serving(Agent('test')) as client:
        codes = [
            (await refused(doing)).code
            for doing in (
                create(client, 'no-such-task', url='https://example.com/'),
                create(client, 'no-such-task', url='not a url'),
                get(client, 'no-such-task', 'x'),
                listed(client, 'no-such-task'),
                delete(client, 'no-such-task', 'x'),
                client.send(taskPushNotificationConfig={'url': 'not a url'}),
            )
        ]
    assert codes == [-32003] * 6


@pytest.mark.parametrize(
    'url', ['http://example.com/', 'https://127.0.0.1/', 'https://localhost/', 'https://a:b@example.com/', 'ftp://x/']
)
async def test_a_url_that_nothing_would_be_sent_to_is_refused(url: str) -> None:
    async with serving(Agent('test'), push=Push()) as client:
        error = await refused(client.send(taskPushNotificationConfig={'url': url}))
        assert isinstance(client.app, A2AApp)
        assert await client.app.list_tasks() == []
        task_id = (await client.send())['id']
        assert (await refused(create(client, task_id, url=url))).code == error.code == -32602
        assert await listed(client, task_id) == []
    assert url not in error.message


@pytest.mark.parametrize(
    'target',
    [
        {'url': ''},
        {},
        {'url': 5},
        {'url': 'https://example.com/\n'},
        {'url': 'https://example.com/', 'token': 'a b'},
        {'url': 'https://example.com/', 'token': 'a\r\nHost: b'},
        {'url': 'https://example.com/', 'token': 'ä'},
        {'url': 'https://example.com/', 'authentication': 5},
    ],
)
async def test_what_cannot_be_sent_is_refused(target: dict[str, Any]) -> None:
    async with serving(Agent('test'), push=Push()) as client:
        task_id = (await client.send())['id']
        sent = {'message': message(), 'configuration': {'taskPushNotificationConfig': target}}
        created = {'taskId': task_id, **target}
        if spoken().version == '0.3':
            created = {'taskId': task_id, 'pushNotificationConfig': target}
        answers = [
            (await client.post(rpc(method, params))).json
            for method, params in (('SendMessage', sent), ('CreateTaskPushNotificationConfig', created))
        ]
        assert {answer['error']['code'] for answer in answers} <= {-32602, 400}  # JSON-RPC's, or HTTP's


async def test_one_caller_learns_nothing_of_what_another_has_registered() -> None:
    app = to_a2a(Agent('test'), auth=by_header, push=Push())
    async with lifespan(app), asyncio.timeout(LIMIT):
        ann, bob = caller(app, 'ann'), caller(app, 'bob')
        task_id = (await ann.send())['id']
        config = await create(ann, task_id, **TARGET)
        errors = [
            await refused(doing)
            for doing in (
                create(bob, task_id, id='mine', url='https://evil.example/'),
                get(bob, task_id, 'mine'),
                listed(bob, task_id),
                delete(bob, task_id, 'mine'),
                get(bob, 'no-such-task', 'mine'),
            )
        ]
        assert {(error.code, error.message) for error in errors} == {(-32001, errors[-1].message)}
        assert await listed(ann, task_id) == [config]


async def test_a_scope_for_webhooks_is_needed_for_one_that_comes_with_a_message_too() -> None:
    callers = {
        'the-token-of-reader': Caller(id='r', scopes=frozenset({'send'})),
        'the-token-of-hooks': Caller(id='h', scopes=frozenset({'push'})),
    }
    scopes = {'CreateTaskPushNotificationConfig': 'push'}
    app = to_a2a(Agent('test'), auth=BearerAuth(callers), access=Access(scopes=scopes), push=Push())
    async with lifespan(app), asyncio.timeout(LIMIT):
        statuses: dict[str, list[int]] = {}
        for token in callers:
            client = Client(app, headers={'Authorization': f'Bearer {token}'})
            for configuration in ({}, {'taskPushNotificationConfig': {'url': 'https://example.com/'}}):
                body = rpc('SendMessage', {'message': message(), 'configuration': configuration})
                statuses.setdefault(token, []).append((await client.post(body)).status)
    assert statuses == {'the-token-of-reader': [200, 403], 'the-token-of-hooks': [200, 200]}


# What is delivered.


async def test_a_webhook_that_comes_with_a_message_is_told_everything() -> None:
    async with webhook() as hook, serving(Agent('test'), push=LOCAL) as client:
        authentication: dict[str, Any] = {'scheme': 'Bearer', 'credentials': 'c'}
        if spoken().version == '0.3':
            authentication = {'schemes': ['Bearer'], 'credentials': 'c'}
        target = {'url': hook.url, 'token': 't', 'authentication': authentication}
        task = await client.send(taskPushNotificationConfig=target)
        told = wire('WORKING', 'success (no tool calls) lastChunk', 'COMPLETED')
        received = await hook.got(len(told))
        assert says(received) == told
        assert len({each.id for each in received}) == len(told)
        for each in received:
            assert each.headers['authorization'] == 'Bearer c'
            assert each.headers['x-a2a-notification-token'] == 't'
            check_official(each)
        if spoken().version == '0.3':
            assert received[-1].json['id'] == task['id']
            assert received[-1].json['artifacts'][0]['parts'][0]['text'] == 'success (no tool calls)'


def check_official(received: Received) -> None:
    """What the official models read is all that there is."""
    if spoken().version == '1.0':
        assert received.headers['content-type'] == 'application/a2a+json'
        assert MessageToDict(ParseDict(received.json, StreamResponse())) == received.json
    else:
        assert received.headers['content-type'] == 'application/json'
        task = types.Task.model_validate(received.json)
        assert task.model_dump(mode='json', by_alias=True, exclude_unset=True) == received.json


async def test_a_webhook_that_comes_later_is_told_what_happens_from_then_on() -> None:
    stage = Stage()
    async with webhook() as hook, serving(stage.agent, push=LOCAL) as client:
        task_id = await queued(client)
        await stage.reached('hello')
        await create(client, task_id, url=hook.url)
        stage.open('hello')
        told = wire('hello lastChunk', 'COMPLETED')
        assert says(await hook.got(len(told))) == told


async def test_a_task_that_is_canceled_in_the_queue_tells_its_webhook() -> None:
    stage = Stage()
    async with webhook() as hook, serving(stage.agent, push=LOCAL) as client:
        first = await client.send(message('hello', contextId='c'), returnImmediately=True)
        second = await client.send(
            message('more', contextId='c'), returnImmediately=True, taskPushNotificationConfig={'url': hook.url}
        )
        await client.call('CancelTask', {'id': second['id']})
        assert says(await hook.got(1)) == wire('CANCELED')
        stage.open('hello')
        await ended(client, first['id'])


async def test_what_failed_is_sent_again_with_the_same_id_before_what_follows() -> None:
    async with webhook(500, 302, 200) as hook, serving(Agent('test'), push=LOCAL) as client:
        await client.send(taskPushNotificationConfig={'url': hook.url})
        told = wire('WORKING', 'WORKING', 'WORKING', 'success (no tool calls) lastChunk', 'COMPLETED')
        received = await hook.got(len(told))
        assert says(received) == told
        assert len({each.id for each in received[:3]}) == 1
        assert len({each.id for each in received}) == len(told) - 2


async def test_several_webhooks_do_not_wait_for_each_other() -> None:
    stage = Stage()
    async with webhook(HANGS) as slow, webhook() as fast, serving(stage.agent, push=LOCAL) as client:
        task_id = await queued(client)
        await stage.reached('hello')
        for hook in (slow, fast):
            await create(client, task_id, url=hook.url)
        stage.open('hello')
        told = wire('hello lastChunk', 'COMPLETED')
        assert says(await fast.got(len(told))) == told
        assert says(await slow.got(1)) == told[:1]


async def test_nothing_is_delivered_to_one_that_is_deleted() -> None:
    stage = Stage()
    async with webhook() as gone, webhook() as stays, serving(stage.agent, push=LOCAL) as client:
        task_id = await queued(client)
        await stage.reached('hello')
        for name, hook in (('gone', gone), ('stays', stays)):
            await create(client, task_id, id=name, url=hook.url)
        await delete(client, task_id, 'gone')
        stage.open('hello')
        await stays.got(len(wire('hello lastChunk', 'COMPLETED')))
    assert gone.received == []


async def text(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
    for word in ('one ', 'two ', 'three'):
        yield word


def whole(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart('one two three')])


async def test_an_artifact_that_is_streamed_to_others_is_whole() -> None:
    async with webhook() as hook, serving(Agent(FunctionModel(whole, stream_function=text)), push=LOCAL) as client:
        async with client.live.send_streaming(taskPushNotificationConfig={'url': hook.url}) as stream:
            assert len(await stream.rest()) > 4
        told = wire('WORKING', 'one two three lastChunk', 'COMPLETED')
        assert says(await hook.got(len(told))) == told


async def test_chunks_are_told_by_the_setting() -> None:
    agent, results = Agent(FunctionModel(whole, stream_function=text)), Results(stream='replace')
    push = Push(private_hosts=['127.0.0.1'], chunks=True)
    async with webhook() as hook, serving(agent, push=push, results=results) as client:
        async with client.send_streaming(taskPushNotificationConfig={'url': hook.url}) as stream:
            events = await stream.rest()
        assert len(events) > 4
        received = await hook.got(len(events) - 1)
        assert [each.json for each in received] == [event.result for event in events[1:]]


async def test_a_webhook_is_nobody_who_watches() -> None:
    """So that a model is not streamed for it."""
    streamed: list[str] = []

    async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
        streamed.append('streamed')
        yield 'one two three'

    async with webhook() as hook, serving(Agent(FunctionModel(whole, stream_function=stream)), push=LOCAL) as client:
        await client.send(taskPushNotificationConfig={'url': hook.url})
        await hook.got(3)
    assert streamed == []


# What is not delivered.


def outbox_of(client: Client) -> Outbox:
    assert isinstance(client.app, A2AApp)
    outbox = client.app.backend.outbox
    assert outbox is not None
    return outbox


async def test_after_8_tries_it_is_dead_and_what_follows_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async with webhook(*[500] * 8, 200) as hook, serving(Agent('test'), push=LOCAL) as client:
        task = await client.send(taskPushNotificationConfig={'url': hook.url, 'token': 'secret'})
        assert says(await hook.got(10)) == ['WORKING'] * 8 + ['success (no tool calls) lastChunk', 'COMPLETED']
        [dead] = await outbox_of(client).dead()
        assert (dead.task_id, dead.owner, dead.n, dead.state) == (task['id'], '/', 1, 'working')
        assert (dead.failures, dead.error, dead.id) == (8, 'HTTP 500', hook.received[0].id)
        assert state_of(await client.get_task(task['id'])) == 'COMPLETED'
        await outbox_of(client).retry(dead.id)
        assert (await hook.got(11))[-1].id == dead.id
    assert 'attempt 8 of 8' in caplog.text
    assert 'secret' not in caplog.text


async def test_what_is_erased_is_delivered_to_nobody() -> None:
    push = fixed(Push, private_hosts=['127.0.0.1'], backoff=1000)
    async with webhook(500) as hook, serving(Agent('test'), push=push) as client:
        task = await client.send(taskPushNotificationConfig={'url': hook.url})
        await hook.got(1)
        app = client.app
        assert isinstance(app, A2AApp)
        assert await app.erase_task(task['id'])
        assert (await outbox_of(client).lease(lease=1000, limit=1, held={})).wait is None


@pytest.mark.parametrize('keys', [[], [Fernet.generate_key().decode()]])
async def test_with_keys_nothing_secret_is_in_the_store(keys: list[str], tmp_path: Path) -> None:
    app = to_a2a(Agent('test'), backend=f'sqlite:///{tmp_path}/agent.db', push=Push(keys=keys))
    async with lifespan(app), asyncio.timeout(LIMIT):
        target = {'url': 'https://example.com/PATH', 'token': 'TOKEN'}
        task_id = (await Client(app).send(message()))['id']
        created = await create(Client(app), task_id, **target)
        assert await listed(Client(app), task_id) == [created]
    stored = b''.join(path.read_bytes() for path in tmp_path.iterdir())
    assert [word in stored for word in (b'PATH', b'TOKEN')] == [not keys] * 2


# Where there is nothing to deliver with.


def test_a_backend_without_push_notifications_is_refused() -> None:
    from fasta2a.storage import InMemoryStorage

    with pytest.raises(ValueError, match='push= needs a backend with push notifications'):
        to_a2a(Agent('test'), storage=InMemoryStorage(), push=Push())
    with pytest.raises(ValueError, match=r'Push\.keys must be'):
        to_a2a(Agent('test'), push=Push(keys=['no key']))
