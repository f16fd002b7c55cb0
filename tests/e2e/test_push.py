"""Push notifications from processes of their own, registered by the official clients."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from a2a.client import Client
from a2a.types import (
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    TaskPushNotificationConfig,
)
from a2a.types.a2a_pb2 import AuthenticationInfo
from google.protobuf.json_format import ParseDict

from ..reserved_ports import port_of, reserved_port
from ..server.grpc.certificates import LOCAL, Authority
from ..webhooks import NEVER_ANSWERS, Received, Webhook, url_at, webhook
from .official import (
    BINDINGS,
    DEPLOYMENTS,
    Deployment,
    deploy,
    official_client,
    state_of,
    task_of,
    text_request,
    using_binding,
)
from .official_0_3 import client_0_3
from .server import LIMIT, Process, uvicorn
from .shared_apps import QUESTIONS
from .test_cli import command
from .venvs import python_with_a2a_sdk_0_3

APP = 'tests.e2e.shared_apps:notifier'
STEPS = ['WORKING'] * 4
"""The claim, and a note before each call of a tool."""
ALL = [*STEPS, 'Done. lastChunk', 'COMPLETED']


def served(where: Path, *options: str) -> AbstractContextManager[Process]:
    return command(where, 'serve', APP, '--port', '0', *options)


def message_with_webhook(url: str) -> SendMessageRequest:
    """A message whose task a webhook is told of."""
    request = text_request('hello')
    config = SendMessageConfiguration()
    config.task_push_notification_config.CopyFrom(TaskPushNotificationConfig(url=url, token='token'))
    request.configuration.CopyFrom(config)
    return request


async def send(server: Process, url: str) -> str:
    """Send it; the id of its task, which has ended."""
    async with official_client(server.url, streaming=False) as client:
        return (await task_of(client.send_message(message_with_webhook(url)))).id


async def wait_for(server: Process, pattern: str) -> None:
    await asyncio.to_thread(server.wait_for, pattern)


async def kill(server: Process) -> None:
    server.signal(signal.SIGKILL)
    assert await server.ended() == -signal.SIGKILL


def distinct_events(received: list[Received]) -> list[str]:
    """What each delivery says, once for each id."""
    return [each.summary for each in {each.id: each for each in received}.values()]


async def wait_for_all_events(hook: Webhook) -> None:
    """Wait until each delivery has come, in order. A delivery may come twice."""
    async with asyncio.timeout(LIMIT):
        while distinct_events(hook.received) != ALL:
            await hook.got(len(hook.received) + 1)


async def test_notifications_survive_webhook_outage_and_server_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('APPS_TIMEOUT', '6')
    with reserved_port() as reserved:
        with served(tmp_path) as server:
            await send(server, url_at(port_of(reserved)))
            await wait_for(server, r'failed \(no connection \(ConnectError\)\), attempt 2 of 20')
            await kill(server)
        async with webhook(at=reserved) as hook:
            with served(tmp_path):
                await wait_for_all_events(hook)


async def test_authority_of_webhook_comes_from_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path, 'authority')
    monkeypatch.setenv('SSL_CERT_FILE', str(authority.file))
    async with webhook(context=authority.sign('hook', *LOCAL).context()) as hook:
        with served(tmp_path) as server:
            await send(server, hook.url.replace('http:', 'https:'))
            await wait_for_all_events(hook)


async def test_unreadable_file_of_authorities_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('SSL_CERT_FILE', str(tmp_path / 'missing.pem'))
    with served(tmp_path) as server:
        await wait_for(server, 'cannot be started.*Check the variables SSL_CERT_FILE and SSL_CERT_DIR')


async def test_notifications_survive_worker_kill_over_postgresql(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('APPS_BACKEND', postgres_url)
    monkeypatch.setenv('APPS_TIMEOUT', '6')
    async with webhook(503, 503, 200) as hook:
        with served(tmp_path, '--no-worker') as server, command(tmp_path, 'worker', APP) as worker:
            await send(server, hook.url)
            await kill(worker)
            await wait_for_all_events(hook)
    assert len({each.id for each in hook.received[:3]}) == 1


async def test_interrupted_delivery_is_repeated_with_same_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('APPS_TIMEOUT', '1')  # a delivery is leased for twice as long
    async with webhook(NEVER_ANSWERS, 200) as hook:
        with served(tmp_path) as server:
            await send(server, hook.url)
            await hook.got(1)
            await kill(server)
        monkeypatch.delenv('APPS_TIMEOUT')
        with served(tmp_path):
            await wait_for_all_events(hook)
    assert hook.received[0].id == hook.received[1].id


async def test_processes_share_deliveries_without_duplicates(tmp_path: Path) -> None:
    async with webhook() as hook:
        with served(tmp_path, '--no-worker') as server, command(tmp_path, 'worker', APP):
            for n in range(1, 4):
                task_id = await send(server, hook.url)
                received = (await hook.got(n * len(ALL)))[-len(ALL) :]
                assert {each.json.popitem()[1]['taskId'] for each in received} == {task_id}
                assert [each.summary for each in received] == ALL
    assert len({each.id for each in hook.received}) == len(hook.received) == 3 * len(ALL)


@pytest.fixture(scope='module')
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Process]:
    with uvicorn(APP, '--app-dir', str(Path(__file__).parents[2]), cwd=tmp_path_factory.mktemp('store')) as running:
        yield running
    assert running.complaints == []


@pytest.fixture(scope='module')
def shared(request: pytest.FixtureRequest) -> Generator[Deployment]:
    with ExitStack() as processes:
        with using_binding('GRPC'):  # the processes serve every binding
            running = processes.enter_context(deploy(APP, DEPLOYMENTS[1], lambda: request.getfixturevalue('postgres')))
        yield running


@pytest.mark.parametrize('binding', BINDINGS)
async def test_official_client_manages_push_configs(shared: Deployment, binding: str) -> None:
    with using_binding(binding):
        async with official_client(shared.url, streaming=False) as client, asyncio.timeout(LIMIT):
            await registers(client)


async def registers(client: Client) -> None:
    task = await task_of(client.send_message(text_request('hello')))
    config = TaskPushNotificationConfig(
        task_id=task.id,
        id='mine',
        url='https://example.com/hook',
        token='token',
        authentication=AuthenticationInfo(scheme='Bearer', credentials='credentials'),
    )
    assert await client.create_task_push_notification_config(config) == config
    one = GetTaskPushNotificationConfigRequest(task_id=task.id, id='mine')
    assert await client.get_task_push_notification_config(one) == config
    every = ListTaskPushNotificationConfigsRequest(task_id=task.id)
    assert list((await client.list_task_push_notification_configs(every)).configs) == [config]
    gone = DeleteTaskPushNotificationConfigRequest(task_id=task.id, id='mine')
    await client.delete_task_push_notification_config(gone)
    assert list((await client.list_task_push_notification_configs(every)).configs) == []


ANSWERED = [['WORKING', 'INPUT_REQUIRED']] * QUESTIONS + [['WORKING', 'Done. lastChunk', 'COMPLETED']]
"""The notifications after the first message, and after each answer."""


@pytest.mark.parametrize('binding', BINDINGS)
async def test_official_client_webhook_is_notified_of_every_message(shared: Deployment, binding: str) -> None:
    with using_binding(binding):
        async with webhook() as hook, asyncio.timeout(LIMIT):
            config = TaskPushNotificationConfig(url=hook.url)
            async with official_client(shared.url, streaming=False, push_notification_config=config) as client:
                task = await task_of(client.send_message(text_request('question me')))
                await hook.got(2)
                for n in range(QUESTIONS):
                    task = await task_of(
                        client.send_message(text_request('yes', task_id=task.id, context_id=task.context_id))
                    )
                    await hook.got(sum(map(len, ANSWERED[: n + 2])))
                every = ListTaskPushNotificationConfigsRequest(task_id=task.id)
                configs = (await client.list_task_push_notification_configs(every)).configs
    assert state_of(task) == 'TASK_STATE_COMPLETED'
    assert [each.summary for each in hook.received] == [says for told in ANSWERED for says in told]
    events = [ParseDict(each.json, StreamResponse()) for each in hook.received]
    assert {(event.status_update.task_id or event.artifact_update.task_id) for event in events} == {task.id}
    assert [each.url for each in configs] == [hook.url]


async def test_0_3_client_webhook_is_notified_of_every_message(server: Process) -> None:
    python = await asyncio.to_thread(python_with_a2a_sdk_0_3)
    async with webhook() as hook, asyncio.timeout(LIMIT):
        configs = [{'url': hook.url}]
        async with client_0_3(python, server.url, streaming=False, push_notification_configs=configs) as client:
            task = await client.task_of('question me')
            for n in range(QUESTIONS):
                await hook.got(2 * n + 2)
                task = await client.task_of('yes', task_id=task['id'], context_id=task['contextId'])
            await hook.got(2 * QUESTIONS + 2)
    assert task['status']['state'] == 'completed'
    assert [each.summary for each in hook.received] == [
        *['task working', 'task input-required'] * QUESTIONS,
        'task working',
        'task completed',
    ]


async def test_0_3_client_creates_push_config(server: Process) -> None:
    python = await asyncio.to_thread(python_with_a2a_sdk_0_3)
    async with webhook() as hook, client_0_3(python, server.url, streaming=False) as client:
        task = await client.task_of('hello')
        config = await client.push(task['id'], hook.url)
        assert config['taskId'] == task['id']
        assert config['pushNotificationConfig']['url'] == hook.url
        assert await client.pushed(task['id']) == config
