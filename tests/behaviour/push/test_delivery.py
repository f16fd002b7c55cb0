"""Push notifications: what webhooks are told, in which order, and what is sent again or to nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from a2a.types import StreamResponse
from google.protobuf.json_format import MessageToDict, ParseDict
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo

from pydantic_ai_a2a import A2AApp, Push, Results
from pydantic_ai_a2a.server.store.ports import Outbox

from ...agents import GatedAgent, scripted_model, stream_three_words
from ...app_client import LIMIT, Client, message, state_of
from ...constants import with_constants
from ...serving import serving, wait_until_ended
from ...webhooks import NEVER_ANSWERS, Received, webhook
from ..webhook_requests import create_config, delete_config

LOCAL = with_constants(Push, private_hosts=['127.0.0.1'], backoff=0.0001, timeout=LIMIT)


async def start_task(client: Client) -> str:
    return (await client.send('hello', returnImmediately=True))['id']


def summaries(received: list[Received]) -> list[str]:
    return [each.summary for each in received]


async def test_webhook_of_message_gets_every_event() -> None:
    async with webhook() as hook, serving(Agent('test'), push=LOCAL) as client:
        target = {'url': hook.url, 'token': 't', 'authentication': {'scheme': 'Bearer', 'credentials': 'c'}}
        await client.send(taskPushNotificationConfig=target)
        received = await hook.got(3)
        assert summaries(received) == ['WORKING', 'success (no tool calls) lastChunk', 'COMPLETED']
        assert len({each.id for each in received}) == 3
        for each in received:
            assert each.headers['authorization'] == 'Bearer c'
            assert each.headers['x-a2a-notification-token'] == 't'
            assert each.headers['content-type'] == 'application/a2a+json'
            assert MessageToDict(ParseDict(each.json, StreamResponse())) == each.json


async def test_webhook_registered_later_gets_later_events() -> None:
    gates = GatedAgent()
    async with webhook() as hook, serving(gates.agent, push=LOCAL) as client:
        task_id = await start_task(client)
        await gates.reached('hello')
        await create_config(client, task_id, url=hook.url)
        gates.open('hello')
        assert summaries(await hook.got(2)) == ['hello lastChunk', 'COMPLETED']


async def test_webhook_is_notified_of_cancel_in_queue() -> None:
    gates = GatedAgent()
    async with webhook() as hook, serving(gates.agent, push=LOCAL) as client:
        first = await client.send(message('hello', contextId='c'), returnImmediately=True)
        second = await client.send(
            message('more', contextId='c'), returnImmediately=True, taskPushNotificationConfig={'url': hook.url}
        )
        await client.call('CancelTask', {'id': second['id']})
        assert summaries(await hook.got(1)) == ['CANCELED']
        gates.open('hello')
        await wait_until_ended(client, first['id'])


async def test_failed_notification_is_retried_with_same_id_before_next() -> None:
    async with webhook(500, 302, 200) as hook, serving(Agent('test'), push=LOCAL) as client:
        await client.send(taskPushNotificationConfig={'url': hook.url})
        received = await hook.got(5)
        assert summaries(received) == [*['WORKING'] * 3, 'success (no tool calls) lastChunk', 'COMPLETED']
        assert len({each.id for each in received[:3]}) == 1
        assert len({each.id for each in received}) == 3


async def test_hanging_webhook_does_not_delay_other_webhooks() -> None:
    gates = GatedAgent()
    async with webhook(NEVER_ANSWERS) as slow, webhook() as fast, serving(gates.agent, push=LOCAL) as client:
        task_id = await start_task(client)
        await gates.reached('hello')
        for name, hook in (('slow', slow), ('fast', fast)):
            await create_config(client, task_id, id=name, url=hook.url)
        gates.open('hello')
        assert summaries(await fast.got(2)) == ['hello lastChunk', 'COMPLETED']
        assert summaries(await slow.got(1)) == ['hello lastChunk']


async def test_deleted_webhook_gets_no_notification() -> None:
    gates = GatedAgent()
    async with webhook() as gone, webhook() as stays, serving(gates.agent, push=LOCAL) as client:
        task_id = await start_task(client)
        await gates.reached('hello')
        for name, hook in (('gone', gone), ('stays', stays)):
            await create_config(client, task_id, id=name, url=hook.url)
        await delete_config(client, task_id, 'gone')
        gates.open('hello')
        await stays.got(2)
    assert gone.received == []


async def test_webhook_gets_whole_artifact_of_streamed_task() -> None:
    async with (
        webhook() as hook,
        serving(Agent(scripted_model('one two three', stream_function=stream_three_words)), push=LOCAL) as client,
    ):
        async with client.live.send_streaming(taskPushNotificationConfig={'url': hook.url}) as stream:
            assert len(await stream.rest()) > 4
        assert summaries(await hook.got(3)) == ['WORKING', 'one two three lastChunk', 'COMPLETED']


async def test_push_chunks_setting_delivers_every_chunk() -> None:
    agent = Agent(scripted_model('one two three', stream_function=stream_three_words))
    push, results = Push(private_hosts=['127.0.0.1'], chunks=True), Results(stream='replace')
    async with webhook() as hook, serving(agent, push=push, results=results) as client:
        async with client.send_streaming(taskPushNotificationConfig={'url': hook.url}) as stream:
            events = await stream.rest()
        assert len(events) > 4
        received = await hook.got(len(events) - 1)
        assert [each.json for each in received] == [event.result for event in events[1:]]


async def test_webhook_alone_does_not_stream_model() -> None:
    """So that a model is not streamed for it."""
    streamed: list[str] = []

    async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[str]:
        streamed.append('streamed')
        yield 'one two three'

    async with (
        webhook() as hook,
        serving(Agent(scripted_model('one two three', stream_function=stream)), push=LOCAL) as client,
    ):
        await client.send(taskPushNotificationConfig={'url': hook.url})
        await hook.got(3)
    assert streamed == []


async def test_webhook_events_from_postgres_arrive_in_order(postgres_url: str) -> None:
    async with (
        webhook(500, 200) as hook,
        serving(Agent('test', name='agent'), backend=postgres_url, push=LOCAL) as client,
    ):
        for n in range(1, 31):
            await client.send(taskPushNotificationConfig={'url': hook.url})
            received = await hook.got(3 * n + 1)
            assert summaries(received)[-3:] == ['WORKING', 'success (no tool calls) lastChunk', 'COMPLETED']
    assert len({each.id for each in hook.received}) == 90


# What is not delivered.


def outbox_of(client: Client) -> Outbox:
    outbox = client.a2a_app.backend.outbox
    assert outbox is not None
    return outbox


async def test_notification_is_dead_after_8_attempts(caplog: pytest.LogCaptureFixture) -> None:
    async with webhook(*[500] * 8, 200) as hook, serving(Agent('test'), push=LOCAL) as client:
        task = await client.send(taskPushNotificationConfig={'url': hook.url, 'token': 'secret'})
        assert summaries(await hook.got(10)) == ['WORKING'] * 8 + ['success (no tool calls) lastChunk', 'COMPLETED']
        [dead] = await outbox_of(client).dead()
        assert (dead.task_id, dead.owner, dead.n, dead.state) == (task['id'], '/', 1, 'working')
        assert (dead.failures, dead.error, dead.id) == (8, 'HTTP 500', hook.received[0].id)
        assert state_of(await client.get_task(task['id'])) == 'COMPLETED'
        await outbox_of(client).retry(dead.id)
        assert (await hook.got(11))[-1].id == dead.id
    assert 'attempt 8 of 8' in caplog.text
    assert 'secret' not in caplog.text


async def test_erased_task_delivers_no_notification() -> None:
    push = with_constants(Push, private_hosts=['127.0.0.1'], backoff=1000)
    async with webhook(500) as hook, serving(Agent('test'), push=push) as client:
        task = await client.send(taskPushNotificationConfig={'url': hook.url})
        await hook.got(1)
        app = client.app
        assert isinstance(app, A2AApp)
        assert await app.erase_task(task['id'])
        assert (await outbox_of(client).lease(lease=1000, limit=1, held={})).wait is None
