"""A user's FastA2A storage as a backend: what the two sides hold when they might differ."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Message, Task, TaskSendParams
from fasta2a.storage import InMemoryStorage
from pydantic_ai.messages import ModelMessage

from pydantic_ai_a2a import Retention
from pydantic_ai_a2a.errors import LeaseLost, OverloadedError, TaskNotFoundError, UnsupportedOperationError
from pydantic_ai_a2a.server.fasta2a import broker_backend
from pydantic_ai_a2a.server.fasta2a.broker_backend import BrokeredBackend
from pydantic_ai_a2a.server.fasta2a.shared_tasks import SharedTask, adopt
from pydantic_ai_a2a.server.fasta2a.storage_backend import FastA2ABackend
from pydantic_ai_a2a.server.fasta2a.storage_tasks import context_key, owner_of, stored_task
from pydantic_ai_a2a.server.store.ports import Backend, Claim, Marks, Slot, Status
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from pydantic_ai_a2a.types import TaskHeader, TaskState

from ...app_client import LIMIT
from ...suites.values import (
    LEASE,
    READER_LAG,
    START,
    artifact_chunk,
    claim_task,
    events,
    finish_of,
    load,
    message,
    model_texts,
    model_turn,
    status_event,
    submit,
)

Storage = InMemoryStorage[list[ModelMessage]]
QUESTION = b'{"messageId":"q","role":"ROLE_AGENT","parts":[{"text":"which?"}]}'


def backend_of(storage: Storage, **options: Any) -> FastA2ABackend:
    return FastA2ABackend(storage, MemoryBackend('agent', reader_lag=READER_LAG), **options)


def texts(task: Task) -> list[str | None]:
    return [part.get('text') for each in task.get('history', ()) for part in each['parts']]


async def claimed_task(backend: Backend, name: str = 'x') -> Claim:
    """Send a message, and claim its task."""
    task_id = (await submit(backend, message('hello', new=name))).header.id
    return await claim_task(backend, task_id)


async def interrupted_task(backend: Backend, name: str = 'x', **options: Any) -> str:
    """Begin a task, and let it wait with a question."""
    claimed = await claimed_task(backend, name)
    end = finish_of(claimed, 'input-required', status_message=QUESTION, **options)
    await backend.queue.finish(claimed, end)
    return claimed.header.id


@pytest.mark.parametrize('owner', ['/', '/ann', 'acme%3A/', 'acme/bob%3A'])
@pytest.mark.parametrize('context_id', ['c', 'a:b', 'pydantic_ai_a2a:/ann:c'])
def test_storage_key_identifies_owner_and_context(owner: str, context_id: str) -> None:
    assert owner_of(context_key(owner, context_id)) == (owner, context_id)


def test_anonymous_storage_key_is_context_id() -> None:
    assert context_key('/', 'c') == 'c'
    assert context_key('/ann', 'c') == 'pydantic_ai_a2a:/ann:c'


def test_storage_task_may_lack_optional_fields() -> None:
    said = Message(role='agent', parts=[{'text': 'hi'}], message_id='m')
    full: Task = {
        'id': 't',
        'context_id': 'c',
        'status': {'state': 'failed', 'timestamp': '2023-11-14T22:13:20Z', 'message': said},
        'metadata': {'k': 1},
        'history': [said, {**said, 'message_id': 'n'}],
        'artifacts': [
            {'artifact_id': 'a', 'parts': [{'text': 'old'}]},
            {'artifact_id': 'a', 'parts': [{'text': 'new'}]},
        ],
    }
    bare: Task = {'id': 't', 'context_id': 'c', 'status': {'state': 'working'}}
    read = stored_task(full, None, history_length=None, artifacts=True)
    assert (read.header.status_at, read.header.metadata) == (START, b'{"k":1}')
    assert read.header.status_message is not None
    assert read.history == [read.header.status_message.replace(b'"m"', b'"n"')]
    assert read.artifacts == [b'{"artifactId":"a","parts":[{"text":"new"}]}']
    empty = stored_task(bare, None, history_length=0, artifacts=False)
    assert (empty.header.status_at, empty.history, empty.artifacts) == (0, None, None)


def test_ended_task_has_artifacts_of_storage_only() -> None:
    ended: Task = {
        'id': 't',
        'context_id': 'c',
        'status': {'state': 'completed'},
        'artifacts': [{'artifact_id': 'a', 'parts': [{'text': 'the whole answer'}]}],
    }
    streamed = stored_task(ended, None)._replace(
        artifacts=[b'{"artifactId":"a","parts":[{"text":"the"}]}', b'{"artifactId":"b","parts":[{"text":"x"}]}']
    )
    assert stored_task(ended, streamed).artifacts == [b'{"artifactId":"a","parts":[{"text":"the whole answer"}]}']


async def test_full_queue_rejects_task_in_storage() -> None:
    class Crowded(Storage):
        async def submit_task(self, context_id: str, message: Message) -> Task:
            await backend.memory.queue.submit(other, queue_limit=1, idempotency_window=0)
            return await super().submit_task(context_id, message)

    storage, other = Crowded(), message('other', new='other')
    backend = backend_of(storage)
    with pytest.raises(OverloadedError):
        await submit(backend, message('hello', new='x'), queue_limit=1)
    assert [task['status']['state'] for task in storage.tasks.values()] == ['rejected']


async def test_question_moves_from_status_to_history_when_answered() -> None:
    storage = Storage()
    backend = backend_of(storage)
    task_id = await interrupted_task(backend)
    waiting = await load(backend, task_id, None)
    assert waiting.header.status_message == QUESTION
    assert len(waiting.history or ()) == 1
    await submit(backend, message('this', to=task_id))
    assert texts(storage.tasks[task_id]) == ['hello', 'which?', 'this']
    continued = await load(backend, task_id, None)
    assert (continued.header.state, continued.header.queued, len(continued.history or ())) == ('working', True, 3)
    assert storage.tasks[task_id]['status']['state'] == 'submitted'  # the only state that FastA2A's workers begin


async def test_canceled_interrupted_task_keeps_its_turn_in_context() -> None:
    storage = Storage()
    backend = backend_of(storage)
    task_id = await interrupted_task(backend, messages=model_turn('hello', 'which?'))
    assert storage.contexts == {}
    await backend.queue.cancel(task_id, None, at=START)
    assert [model_texts(context) for context in storage.contexts.values()] == [['hello', 'which?']]
    assert storage.tasks[task_id]['status']['state'] == 'canceled'


async def test_expired_task_fails_in_storage_before_listener_is_called() -> None:
    storage = Storage()
    expired: list[tuple[str, str]] = []
    backend = backend_of(storage)
    task_id = await interrupted_task(backend)

    def on_expired(header: TaskHeader, failure: str, failure_id: str) -> None:
        expired.append((failure, storage.tasks[header.id]['status']['state']))

    waits = Retention(waiting=timedelta(seconds=1))
    swept = await backend.housekeeping.sweep(waits, at=START + 5_000, on_expired=on_expired)
    task = storage.tasks[task_id]
    assert expired == [('expired', 'failed')]
    other_id = await interrupted_task(backend, 'y')
    await backend.housekeeping.sweep(waits, at=START + 5_000)
    assert storage.tasks[other_id]['status']['state'] == 'failed'
    assert (swept.rows, task['status']['state'], texts(task)[-1]) == (1, 'failed', 'The task waited too long.')


async def test_next_sweep_retries_failed_write_of_expired_task() -> None:
    class Failing(Storage):
        async def update_task(self, task_id: str, state: TaskState, *args: Any, **options: Any) -> Task:
            if state == 'failed' and faults:
                raise faults.pop()
            return await super().update_task(task_id, state, *args, **options)

    faults: list[Exception] = [ConnectionError(), ConnectionError()]
    storage, expired = Failing(), list[str]()
    backend = backend_of(storage)
    tasks = [await interrupted_task(backend, name) for name in 'xyz']
    del storage.tasks[tasks[2]]

    def on_expired(header: TaskHeader, failure: str, failure_id: str) -> None:
        expired.append(header.id)

    waits = Retention(waiting=timedelta(seconds=1))
    for written in (tasks[2:], [*tasks[2:], *tasks[:2]]):
        await backend.housekeeping.sweep(waits, at=START + 5_000, on_expired=on_expired)
        assert expired == written
    assert [storage.tasks[task_id]['status']['state'] for task_id in tasks[:2]] == ['failed', 'failed']
    assert backend.own_messages == {}


async def test_message_over_memory_limit_is_not_written_to_storage() -> None:
    backend = FastA2ABackend(storage := Storage(), MemoryBackend('agent', reader_lag=READER_LAG, max_bytes=100_000))
    task_id = await interrupted_task(backend)
    for large in (message(new='y'), message(to=task_id)):
        with pytest.raises(OverloadedError):
            await submit(backend, replace(large, size=100_000))
    assert {name: texts(task) for name, task in storage.tasks.items()} == {task_id: ['hello', 'which?']}


async def test_task_canceled_during_claim_is_not_claimed() -> None:
    class Begins(Storage):
        async def update_task(self, task_id: str, state: TaskState, *args: Any, **options: Any) -> Task:
            if state == 'working' and task_id != second:
                await backend.queue.cancel(second, None, at=START)
            return await super().update_task(task_id, state, *args, **options)

    backend = backend_of(storage := Begins())
    first, second, third = [(await submit(backend, message(new=name))).header.id for name in 'xyz']
    claims = await backend.queue.claim(Slot('holder', LEASE), at=START, limit=2)
    assert [each.header.id for each in claims] == [first]
    assert (await load(backend, second, None)).header.state == 'canceled'
    assert {task_id: task['status']['state'] for task_id, task in storage.tasks.items()} == {
        first: 'working',
        second: 'canceled',
        third: 'submitted',
    }


async def test_status_message_of_agent_is_kept_in_history() -> None:
    storage = Storage()
    backend = backend_of(storage)
    claimed = await claimed_task(backend)
    task_id = claimed.header.id
    n = claimed.header.last_event + 1
    await backend.queue.emit(claimed, [status_event(n, 'working')], Status('working', START, QUESTION))
    assert texts(storage.tasks[task_id]) == ['hello', 'which?']
    await backend.queue.cancel(task_id, None, at=START, force=True)
    with pytest.raises(LeaseLost):
        await backend.queue.emit(claimed, [status_event(n + 1, 'working')], Status('working', START, QUESTION))
    assert texts(storage.tasks[task_id]) == ['hello', 'which?']


async def test_finishing_task_deleted_from_storage_drops_task() -> None:
    storage = Storage()
    backend = backend_of(storage)
    claimed = await claimed_task(backend)
    task_id = claimed.header.id
    await backend.queue.finish(claimed, finish_of(claimed, 'input-required', messages=model_turn('hello', 'which?')))
    await submit(backend, message('this', to=task_id))
    claimed = await claim_task(backend, task_id)
    del storage.tasks[task_id]
    with pytest.raises(LeaseLost):
        await backend.queue.finish(claimed, finish_of(claimed))
    assert await backend.reader.load(task_id, None) is None
    assert backend.own_messages == {}


async def test_event_log_gets_end_of_task_missing_in_storage() -> None:
    storage = Storage()
    backend = backend_of(storage, worker_writes=True)
    claimed = await claimed_task(backend)
    task_id = claimed.header.id
    assert storage.tasks[task_id]['status']['state'] == 'submitted'
    del storage.tasks[task_id]
    await backend.queue.finish(claimed, finish_of(claimed))
    assert (await events(backend, task_id))[-1].state == 'completed'


async def test_slow_subscriber_is_dropped() -> None:
    backend = backend_of(Storage())
    claimed = await claimed_task(backend)
    task_id = claimed.header.id
    dropped = asyncio.Event()
    reader = backend.events.subscribe(task_id, dropped.set)
    reader.start(claimed.header.last_event)
    for n in range(4):
        await backend.queue.emit(claimed, [artifact_chunk(claimed.header.last_event + 1 + n, 'x' * READER_LAG)])
        if n == 0:
            assert len(await reader.next()) == 1
    async with asyncio.timeout(LIMIT):
        await dropped.wait()
    assert (list(await reader.next()), reader.dropped) == ([], True)
    reader.close()


async def test_released_task_is_claimed_by_another_holder() -> None:
    backend = backend_of(Storage())
    claimed = await claimed_task(backend)
    task_id = claimed.header.id
    assert list((await backend.queue.renew('holder', [task_id, 'other'], lease=LEASE)).lost) == ['other']
    await backend.queue.release(claimed)
    assert (await claim_task(backend, task_id, 'another')).fence > claimed.fence
    assert not await backend.queued()
    BrokeredBackend(backend, InMemoryBroker()).close()


async def test_only_submitted_task_is_adopted_from_another_process() -> None:
    storage = Storage()
    backend = backend_of(storage)
    task = await storage.submit_task(
        context_key('/ann', 'c'), Message(role='user', parts=[{'text': 'hi'}], message_id='m')
    )
    await adopt(backend, task['id'], at=START)
    claimed = await claim_task(backend, task['id'])
    assert (claimed.header.owner, claimed.header.context_id) == ('/ann', 'c')
    with pytest.raises(UnsupportedOperationError):
        await adopt(backend, task['id'], at=START)
    with pytest.raises(TaskNotFoundError):
        await adopt(backend, 'unknown', at=START)


async def test_following_shared_task_ends_when_task_ends_locally() -> None:
    storage = Storage()
    backend = backend_of(storage)
    task_id = (await submit(backend, message('hello', new='x'))).header.id
    followed = SharedTask(backend, task_id)
    assert not await followed.look(at=START)
    claimed = await claim_task(backend, task_id)
    assert not await followed.look(at=START)
    await backend.queue.finish(claimed, finish_of(claimed))
    assert await followed.look(at=START)
    assert await SharedTask(backend, 'gone').look(at=START)


class Beginning(Storage):
    """Holds up the begin of a task in this process, until another reader sees the task at work."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.seen = asyncio.Event(), asyncio.Event()

    async def update_task(self, task_id: str, state: TaskState, *args: Any, **options: Any) -> Task:
        task = await super().update_task(task_id, state, *args, **options)
        if state == 'working':
            self.written.set()
            await self.seen.wait()
        return task

    async def load_task(self, task_id: str, history_length: int | None = None) -> Task | None:
        if self.written.is_set():
            self.seen.set()
        return await super().load_task(task_id, history_length)


async def test_starting_task_is_not_claimed_by_second_process() -> None:
    storage = Beginning()
    backend = backend_of(storage)
    task_id = (await submit(backend, message('hello', new='x'))).header.id
    beginning = asyncio.create_task(backend.queue.claim(Slot('holder', LEASE), at=START, limit=1))
    async with asyncio.timeout(LIMIT):
        await storage.written.wait()
        assert not await SharedTask(backend, task_id).look(at=START)
        assert [claimed.header.id for claimed in await beginning] == [task_id]


class Elsewhere(InMemoryBroker):
    """Hands each task to another process."""

    async def run_task(self, params: TaskSendParams) -> None:
        pass


class Cargo:
    """A value in the context of a request."""


carried: ContextVar[Cargo] = ContextVar('carried')


async def test_request_context_of_foreign_task_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_backend, 'PAUSE', 0.01)
    storage = Storage()
    backend = BrokeredBackend(backend_of(storage), Elsewhere())

    async def send() -> tuple[str, weakref.ref[Cargo]]:
        carried.set(Cargo())
        task_id = (await submit(backend, message('hello', new='x'))).header.id
        return task_id, weakref.ref(carried.get())

    async with asyncio.timeout(LIMIT), backend:
        backend.listen(lambda _: None, lambda _: None)
        task_id, cargo = await asyncio.create_task(send())
        await storage.update_task(task_id, 'completed')
        await backend.events.wait(task_id, 0)
    gc.collect()
    assert cargo() is None
    backend.close()


async def test_brokered_queue_renews_and_releases_claimed_tasks() -> None:
    backend = BrokeredBackend(MemoryBackend('agent', reader_lag=READER_LAG), InMemoryBroker())
    await submit(backend, message(new='task'))
    claimed = await claim_task(backend, 'task')
    renewed = await backend.queue.renew('holder', ['task', 'another'], lease=LEASE)
    before = await backend.queue.claim(Slot('other', LEASE), at=START, limit=1)
    await backend.queue.release(claimed)
    [after] = await backend.queue.claim(Slot('other', LEASE), at=START, limit=1)
    assert renewed == Marks(lost=['another'], cancel=[])
    assert before == []
    assert (after.header.id, after.holder) == ('task', 'other')
    backend.close()


async def test_storage_backend_refuses_operator_commands() -> None:
    housekeeping = backend_of(Storage()).housekeeping
    with pytest.raises(UnsupportedOperationError, match='cannot list dead letters'):
        await housekeeping.dead_letters()
    with pytest.raises(UnsupportedOperationError, match='cannot show its queue'):
        await housekeeping.queues(at=0, every=False)
    with pytest.raises(UnsupportedOperationError, match='cannot pause its queue'):
        await housekeeping.pause(0)
    with pytest.raises(UnsupportedOperationError, match='cannot retry tasks'):
        await housekeeping.retry('t', new_id='u', at=START)
    with pytest.raises(UnsupportedOperationError, match='cannot export tasks'):
        housekeeping.export('/')
