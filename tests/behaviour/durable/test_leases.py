"""Leases and blocked event loops: a tool that blocks for a while keeps its task, one that is stuck loses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from queue import Queue
from typing import Any, TypeVar

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Budget, Limits, Quotas, Workers
from pydantic_ai_a2a.clock import SYSTEM, Clock
from pydantic_ai_a2a.server.store.ports import Backend, Claim, Finish, Marks, Slot, TaskQueue
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile
from pydantic_ai_a2a.store import WrappedQueue

from ...agents import echo_prompts, scripted_model
from ...app_client import LIMIT, state_of, texts
from ...clocks import HOUR, SetClock
from ...logs import log_event
from ...serving import serving, wait_until_ended
from ...suites import values
from ..faulty_queues import StorageError

T = TypeVar('T')
OTHER_RESULT = b'{"artifactId":"a","parts":[{"text":"theirs"}]}'


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[], Backend]]:
    """Makes backends of one file, each as another process would."""
    file = SqliteFile(path=tmp_path / 'agent.db', synchronous='normal')
    made: list[Backend] = []

    def make(clock: Clock = SYSTEM) -> Backend:
        made.append(SqliteFileBackend(file, 'agent', reader_lag=10**6, clock=clock))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def backend(make: Callable[[], Backend]) -> Backend:
    return make()


@pytest.fixture
def other_process(make: Callable[[], Backend]) -> Backend:
    """The other process's."""
    return make()


@pytest.fixture
def other_process_after_expiry(make: Callable[[Clock], Backend]) -> Backend:
    """The other process's, for which the leases have expired."""
    return make(SetClock(HOUR))


class ExpiresBeforeRenewal(WrappedQueue):
    """Tells of each renewal, to whatever thread."""

    def __init__(self, inner: TaskQueue) -> None:
        super().__init__(inner)
        self.renewals: Queue[None] = Queue()

    async def renew(self, holder: str, tasks: Sequence[str], *, lease: int) -> Marks:
        marks = await super().renew(holder, tasks, lease=lease)
        self.renewals.put(None)
        return marks

    def outlast_a_lease(self) -> None:
        """Wait for more renewals than there are in the length of a lease."""
        for _ in range(4):
            self.renewals.get(timeout=LIMIT)


def in_other_loop(work: Coroutine[Any, Any, T]) -> T:
    """Do something in another event loop, while the one of this thread is blocked."""
    with ThreadPoolExecutor() as pool:
        return pool.submit(asyncio.run, asyncio.wait_for(work, LIMIT)).result(LIMIT)


def blocking_agent(block: Callable[[], object]) -> Agent[object, str]:
    """An agent that blocks its event loop before it answers."""

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        block()
        return echo_prompts(messages, info)

    return Agent(FunctionModel(answer))


async def test_blocked_event_loop_does_not_stop_lease_renewals(backend: Backend, other_process: Backend) -> None:
    queue = backend.queue = ExpiresBeforeRenewal(backend.queue)
    taken: list[list[Claim]] = []

    def block() -> None:
        queue.outlast_a_lease()
        taken.append(in_other_loop(other_process.queue.claim(Slot('thief', HOUR), at=0, limit=1)))

    async with serving(blocking_agent(block), backend=backend, workers=Workers(lease=6)) as client:
        assert texts(await client.send('hi')) == ['hi']
    assert taken == [[]]


async def test_run_blocking_loop_too_long_loses_task(
    backend: Backend, other_process: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    async def take_over() -> None:
        claims: list[Claim] = []
        while not claims:
            claims = await other_process.queue.claim(Slot('thief', HOUR), at=other_process.now(), limit=1)
        await other_process.queue.finish(
            claims[0], values.finish_of(claims[0], at=other_process.now(), artifacts=[('a', OTHER_RESULT)])
        )

    with log_event('The event loop has been blocked') as told:  # perhaps before the run begins to block

        def block() -> None:
            assert told.wait(LIMIT)
            in_other_loop(take_over())

        async with serving(blocking_agent(block), backend=backend, workers=Workers(lease=0.1)) as client:
            task = await client.send('hi', returnImmediately=True)
            assert texts(await wait_until_ended(client, task['id'])) == ['theirs']
    assert f'Task {task["id"]} was taken over or has ended; its late result is dropped.' in caplog.messages


async def test_heartbeat_stops_run_of_task_taken_over(
    backend: Backend, other_process_after_expiry: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        began.set()
        try:
            return await asyncio.Future()
        finally:
            stopped.set()

    async with serving(Agent(FunctionModel(answer)), backend=backend, workers=Workers(lease=0.1)) as client:
        task = await client.send('hi', returnImmediately=True)
        await began.wait()
        [claimed] = await other_process_after_expiry.queue.claim(
            Slot('thief', HOUR), at=other_process_after_expiry.now(), limit=1
        )
        await stopped.wait()
        await other_process_after_expiry.queue.finish(
            claimed, values.finish_of(claimed, at=other_process_after_expiry.now(), artifacts=[('a', OTHER_RESULT)])
        )
        assert texts(await wait_until_ended(client, task['id'])) == ['theirs']
    assert f'Task {task["id"]} was taken over or has ended; its late result is dropped.' in caplog.messages


async def test_reclaimed_task_keeps_lease_while_old_run_stops(
    backend: Backend, other_process_after_expiry: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    queue = backend.queue = ExpiresBeforeRenewal(backend.queue)
    began, stopping, again, done = (asyncio.Event() for _ in range(4))

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if began.is_set():
            again.set()
            await done.wait()
            return echo_prompts(messages, info)
        began.set()
        while not again.is_set():
            with suppress(asyncio.CancelledError):  # which comes again and again
                await again.wait()
            stopping.set()
        return echo_prompts(messages, info)

    quotas = Quotas(budgets=[Budget(requests=100, window=timedelta(days=1))])
    options: dict[str, Any] = {'backend': backend, 'workers': Workers(lease=0.1), 'limits': Limits(quotas=quotas)}
    async with serving(Agent(FunctionModel(answer)), **options) as client:
        with log_event('was taken over') as told:
            task = await client.send('hi', returnImmediately=True)
            await began.wait()
            [claim] = await other_process_after_expiry.queue.claim(
                Slot('thief', HOUR), at=other_process_after_expiry.now(), limit=1
            )
            await stopping.wait()
            await other_process_after_expiry.queue.release(claim)
            assert await asyncio.to_thread(told.wait, LIMIT)
        await asyncio.to_thread(queue.outlast_a_lease)
        done.set()
        assert texts(await wait_until_ended(client, task['id'])) == ['hi']
    assert 'A task could not be stored; the worker tries again at the next heartbeat.' not in caplog.messages


class Unrecorded(ExpiresBeforeRenewal):
    """Stores no end of a run, until it is told to."""

    def __init__(self, inner: TaskQueue) -> None:
        super().__init__(inner)
        self.tried, self.stores = asyncio.Event(), False

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        self.tried.set()
        if not self.stores:
            raise StorageError
        return await super().finish(claim, finish)


async def test_task_keeps_lease_until_failure_is_stored(backend: Backend, other_process: Backend) -> None:
    queue = backend.queue = Unrecorded(backend.queue)
    async with serving(Agent(scripted_model(RuntimeError('no'))), backend=backend, workers=Workers(lease=6)) as client:
        task = await client.send('hi', returnImmediately=True)
        await queue.tried.wait()
        await asyncio.to_thread(queue.outlast_a_lease)
        assert await other_process.queue.claim(Slot('thief', HOUR), at=0, limit=1) == []
        queue.stores = True
        assert state_of(await wait_until_ended(client, task['id'])) == 'FAILED'
