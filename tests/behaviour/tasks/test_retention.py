"""What is kept, for how long, and what it costs."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.run import AgentRun

from pydantic_ai_a2a import Caller, Push, Retention, RunFailure, Workers
from pydantic_ai_a2a.commands.erase import erase_all
from pydantic_ai_a2a.server.store.ports import OnExpired, Swept
from pydantic_ai_a2a.server.store.sql.housekeeping import SqlHousekeeping
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend

from ...agents import GatedAgent, echo_prompts
from ...app_client import LIMIT, Client, RpcError, message, state_of, texts
from ...bounds import LOGS
from ...constants import with_constants
from ...dialects import in_no_version
from ...serving import list_tasks, serving, wait_until_ended
from ...sizes import short_or_long
from ...suites import values
from ...webhooks import webhook
from ..faulty_queues import StorageError
from ..pending_calls import ApprovalAgent
from ..promised_behaviours import covers
from ..refusals import BASE_EXCEPTIONS

ROW = '10,000 tasks'
FEW = 100
MANY = short_or_long(2_000, 9_000)
ANY_VERSION = in_no_version('what is kept does not depend on who asks')


class AgentWithoutRunCost(WrapperAgent[Any, Any]):
    """Has made its run before: what is left is what serving it costs."""

    made: AgentRun[Any, Any] | None = None

    @asynccontextmanager
    async def iter(self, *args: Any, **options: Any) -> AsyncGenerator[AgentRun[Any, Any]]:
        if self.made is None:
            async with self.wrapped.iter('hello') as run:
                async for _ in run:
                    pass
            self.made = run
        yield self.made


async def send_many(client: Client, count: int) -> None:
    for _ in range(count // 50):
        await asyncio.gather(*(client.send() for _ in range(50)))


async def count_stored(client: Client) -> tuple[int, int]:
    """How many tasks and conversations there are."""
    conversations = await client.a2a_app.conversations().list_conversations()
    return len(await list_tasks(client, limit=10_000)), len(conversations)


async def objects(backend: MemoryBackend, retention: Retention) -> int:
    """How many objects there are after a sweep of everything that is due."""
    while await backend.housekeeping.sweep(retention, at=backend.now()):
        pass
    gc.collect()
    return len(gc.get_objects())


@ANY_VERSION
@pytest.mark.long
@covers(ROW)
async def test_memory_use_is_bounded_by_max_tasks(backend: MemoryBackend) -> None:
    retention = Retention(max_tasks=FEW)
    async with serving(AgentWithoutRunCost(Agent(TestModel())), backend=backend, retention=retention) as client:
        await send_many(client, 1000)
        before = await objects(backend, retention), backend.size
        await send_many(client, MANY)
        after = await objects(backend, retention), backend.size
        tasks, contexts = await count_stored(client)
    assert (tasks, contexts) == (FEW, FEW)
    assert after[0] - before[0] < 1000
    assert after[1] <= before[1] * 1.25


@ANY_VERSION
@covers(ROW)
async def test_canceled_queued_tasks_leak_no_memory(backend: MemoryBackend) -> None:
    gates = GatedAgent()
    retention = Retention(max_tasks=1)
    async with serving(gates.agent, backend=backend, retention=retention, workers=Workers(running=1)) as client:
        await client.send('running', returnImmediately=True)
        await gates.reached('running')

        async def send_and_cancel(count: int) -> None:
            for _ in range(count):
                task = await client.send(returnImmediately=True)
                await client.call('CancelTask', {'id': task['id']})

        await send_and_cancel(100)
        before = await objects(backend, retention)
        await send_and_cancel(1_000)
        assert await objects(backend, retention) - before < 1_000
        gates.open('running')


@pytest.mark.slow
@covers(ROW)
async def test_max_tasks_never_deletes_running_or_queued_task() -> None:
    gates = GatedAgent()
    gates.open('quick')
    async with serving(gates.agent, retention=Retention(max_tasks=1), workers=Workers(running=2)) as client:
        running = await client.send('running', returnImmediately=True)
        queued = await client.send(message('queued', contextId=running['contextId']), returnImmediately=True)
        await gates.reached('running')
        for _ in range(200):
            await client.send('quick')
        assert (await count_stored(client))[0] == 3
        assert state_of(await client.get_task(queued['id'])) == 'SUBMITTED'
        gates.open('running', 'queued')
        assert texts(await wait_until_ended(client, queued['id'])) == ['running + queued']


@pytest.mark.slow
@ANY_VERSION
@covers(ROW)
async def test_task_is_kept_until_its_webhook_is_delivered() -> None:
    found = asyncio.Event()

    async def resolve(host: str, port: int) -> list[str]:
        await found.wait()
        return ['127.0.0.1']

    push = with_constants(Push, private_hosts=['hook.internal'], resolve=resolve, timeout=LIMIT)
    retention = Retention(max_tasks=1)
    async with (
        webhook() as hook,
        serving(AgentWithoutRunCost(Agent(TestModel())), push=push, retention=retention) as client,
    ):
        url = hook.url.replace('127.0.0.1', 'hook.internal')
        task = await client.send(taskPushNotificationConfig={'url': url})
        await send_many(client, 200)
        assert await client.get_task(task['id']) == task
        found.set()
        assert [each.summary for each in await hook.got(3)][::2] == ['WORKING', 'COMPLETED']
        while task['id'] in {each['id'] for each in await list_tasks(client, limit=10_000)}:
            await send_many(client, 50)


class FailingSweep(SqlHousekeeping):
    """Cannot sweep at first."""

    times = 1

    def __init__(self, backend: MemoryBackend, error: Callable[[], BaseException]) -> None:
        super().__init__(backend)
        self.error, self.swept = error, asyncio.Event()

    async def sweep(self, retention: Retention, *, at: int, on_expired: OnExpired | None = None) -> Swept:
        if self.times:
            self.times -= 1
            raise self.error()
        self.swept.set()
        return await super().sweep(retention, at=at, on_expired=on_expired)


@pytest.mark.parametrize('error', [StorageError, *BASE_EXCEPTIONS.values()], ids=['error', *BASE_EXCEPTIONS])
async def test_failed_sweep_is_logged_and_retried(
    error: Callable[[], BaseException], backend: MemoryBackend, caplog: pytest.LogCaptureFixture
) -> None:
    clogged = backend.housekeeping = FailingSweep(backend, error)
    async with serving(Agent(FunctionModel(echo_prompts)), backend=backend, workers=Workers(lease=0.03)):
        await clogged.swept.wait()
    assert caplog.messages == ['A sweep of expired data failed; the worker tries again at the next heartbeat.']


class EndlessSweep(SqlHousekeeping):
    """Sweeps only when the test says so, and has more to delete for so many batches."""

    def __init__(self, backend: MemoryBackend, batches: int) -> None:
        super().__init__(backend)
        self.left = batches
        self.began, self.goes_on, self.done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def sweep(self, retention: Retention, *, at: int, on_expired: OnExpired | None = None) -> Swept:
        self.began.set()
        await self.goes_on.wait()
        if self.left == 0:
            self.done.set()
            return Swept()
        self.left -= 1
        return Swept(rows=50, full=True)


@ANY_VERSION
async def test_long_sweep_takes_no_worker_slot_and_finishes(
    backend: MemoryBackend, caplog: pytest.LogCaptureFixture
) -> None:
    behind = backend.housekeeping = EndlessSweep(backend, batches=45)
    async with (
        asyncio.timeout(LIMIT),
        serving(AgentWithoutRunCost(Agent(TestModel())), backend=backend, workers=Workers(running=1)) as client,
    ):
        await send_many(client, 100)
        await behind.began.wait()
        assert state_of(await client.send()) == 'COMPLETED'
        behind.goes_on.set()
        await behind.done.wait()
    assert caplog.messages == ['Retention is behind: 20 batches in a row were full. Sweeps go on at once.']


@ANY_VERSION
async def test_shutdown_does_not_wait_for_long_sweep(backend: MemoryBackend) -> None:
    behind = backend.housekeeping = EndlessSweep(backend, batches=10**9)
    behind.goes_on.set()
    async with asyncio.timeout(LIMIT):
        async with serving(Agent(TestModel()), backend=backend, workers=Workers(lease=0.03)):
            await behind.began.wait()
        left = behind.left
        for _ in range(10):
            await asyncio.sleep(0)
    assert behind.left == left


@pytest.mark.slow
@ANY_VERSION
async def test_deletion_before_retention_time_is_logged_once(
    backend: MemoryBackend, caplog: pytest.LogCaptureFixture
) -> None:
    retention = Retention(max_tasks=FEW)
    async with serving(AgentWithoutRunCost(Agent(TestModel())), backend=backend, retention=retention) as client:
        await send_many(client, 1000)
    assert caplog.messages == [
        f'Some {kind} are deleted before their time because of Retention.max_tasks: raise it to keep more.'
        for kind in ('tasks', 'contexts')
    ]


@covers(ROW)
async def test_expired_task_is_deleted_but_conversation_continues(backend: MemoryBackend) -> None:
    retention = Retention(tasks=timedelta(days=1), contexts=timedelta(days=10))
    async with serving(Agent(FunctionModel(echo_prompts)), backend=backend, retention=retention) as client:
        task = await client.send('one')
        over = datetime.fromisoformat(task['status']['timestamp']).timestamp() + timedelta(days=1).total_seconds()
        await backend.housekeeping.sweep(retention, at=int(over * 1000) - 1000)
        assert await client.get_task(task['id']) == task
        while await backend.housekeeping.sweep(retention, at=int(over * 1000) + 1000):
            pass
        with pytest.raises(RpcError) as refused:
            await client.get_task(task['id'])
        after = await client.send(message('two', contextId=task['contextId']))
    assert refused.value.code == -32001
    assert texts(after) == ['one + two']


@covers(ROW)
async def test_task_with_expired_events_resumes_as_snapshot(
    backend: MemoryBackend,
) -> None:
    retention = Retention(events=LOGS)
    agent = Agent(TestModel(custom_output_text='one two three'))
    async with serving(agent, backend=backend, retention=retention) as client:
        async with client.send_streaming() as stream:
            events = await stream.rest()
        task = await client.get_task(events[0].result['task']['id'])
        await backend.housekeeping.sweep(retention, at=int((time.time() + LOGS.total_seconds() + 1) * 1000))
        assert await client.get_task(task['id']) == task
        async with client.subscribe(task['id'], Last_Event_ID='2') as stream:
            resumed = await stream.rest()
        async with client.subscribe(task['id'], Last_Event_ID=str(events[-1].id)) as stream:
            nothing = await stream.rest()
        again = await client.send(task['history'][0] | {'taskId': '', 'contextId': ''})
    assert [(event.id, event.result) for event in resumed] == [(events[-1].id, {'task': task})]
    assert nothing == []
    assert again == task


@pytest.mark.slow
@ANY_VERSION
@covers(ROW)
async def test_oversized_store_shrinks_in_small_steps(backend: MemoryBackend) -> None:
    for n in range(2500):
        await values.submit(backend, values.message(new=f't{n}', owner='/'))
        await values.claim_and_finish(backend, f't{n}')
    retention = Retention(max_tasks=FEW)
    workers = Workers(lease=LIMIT)  # no heartbeat sweeps
    async with serving(
        AgentWithoutRunCost(Agent(TestModel())), backend=backend, retention=retention, workers=workers
    ) as client:
        await send_many(client, 100)
        between, _ = await count_stored(client)
        assert 3 * FEW < between < 2500
        async with asyncio.timeout(LIMIT):
            while (await count_stored(client))[0] > 2 * FEW:
                await send_many(client, FEW)


def ann(_: object) -> Caller:
    return Caller(id='ann')


async def test_task_waiting_too_long_for_client_fails_as_expired(caplog: pytest.LogCaptureFixture) -> None:
    retention = Retention(waiting=timedelta(milliseconds=1))
    failures: asyncio.Queue[RunFailure] = asyncio.Queue()
    workers = Workers(lease=0.03)
    options: dict[str, Any] = {'on_failure': failures.put, 'auth': ann}
    async with serving(ApprovalAgent().agent, retention=retention, workers=workers, **options) as client:
        task = await wait_until_ended(client, (await client.send('delete'))['id'])
        failure = await failures.get()
    assert failure == RunFailure(
        task_id=task['id'],
        context_id=task['contextId'],
        caller=Caller(id='ann'),
        kind='expired',
        correlation_id=f'{task["id"]}.1',
        error=None,
    )
    said = task['status']['message']
    assert (state_of(task), said['parts'][0]['text']) == ('FAILED', 'The task waited too long.')
    assert said['metadata'] == {'failure': 'expired', 'correlationId': f'{task["id"]}.1'}
    assert f'Task {task["id"]} failed (expired, correlation id {task["id"]}.1).' in caplog.messages


# --- owners who are being erased --------------------------------------------------------------------------------------


OWNER = '/'
STORES = ('memory', 'file', 'postgres')


def place(store: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    """The options of an app with an empty store."""
    if store == 'memory':
        return {}
    if store == 'postgres':
        return {'backend': request.getfixturevalue('postgres_url'), 'name': 'agent'}
    path: Path = request.getfixturevalue('tmp_path')
    return {'backend': f'sqlite:///{path}/agent.db', 'name': 'agent'}


async def keep_sending(
    client: Client, context_id: str, refused: defaultdict[str, set[str]], done: asyncio.Event
) -> None:
    """Send messages to a context, each as a new task, and keep the texts of the refusals by context."""
    while not done.is_set():
        try:
            await client.send(message(contextId=context_id), returnImmediately=True)
        except RpcError as error:
            refused[context_id].add(error.message)
        await asyncio.sleep(0.01)  # leaves time for the erasure


@pytest.mark.parametrize('context_id', [None, 'one'])
@pytest.mark.parametrize('store', STORES)
async def test_erasure_completes_while_clients_keep_sending(
    store: str, context_id: str | None, request: pytest.FixtureRequest
) -> None:
    gates, done, refused = GatedAgent(), asyncio.Event(), defaultdict[str, set[str]](set)
    erased = {'one', 'two'} if context_id is None else {context_id}
    async with serving(gates.agent, workers=Workers(running=4), drain_grace=0.01, **place(store, request)) as client:
        senders = [asyncio.create_task(keep_sending(client, one, refused, done)) for one in ('one', 'one', 'two')]
        await gates.reached('hello')
        try:
            while not erased <= set(refused):  # a short erasure may end between two messages
                await erase_all(client.a2a_app.backend, OWNER, context_id, grace=LIMIT)
        finally:
            done.set()
        await asyncio.gather(*senders)
        refusal = {'The data of the caller, or of the context, is being erased; try again later.'}
        assert refused == dict.fromkeys(erased, refusal)
        assert await client.send(message(contextId='one'), returnImmediately=True)
