"""The calls of `on_waiting` by one worker, at its heartbeats."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pydantic_ai_a2a import TaskPause
from pydantic_ai_a2a.server.agent.hooks import Hooks
from pydantic_ai_a2a.server.runs.pause_hook import PauseHook
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from pydantic_ai_a2a.store import Backend, SqliteFile

from ...app_client import LIMIT
from ...suites import READER_LAG
from ...suites.hook_calls import calls_of, wait
from ...suites.open_approvals import call, pending
from ...suites.values import EXPIRED, LEASE, claim_task, finish_of, message, submit


class WorkerOfCalls:
    """A worker that does nothing but call the hook."""

    def __init__(self, backend: Backend, *, lease: int = LEASE) -> None:
        self.pauses: list[TaskPause] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        hooks = Hooks(on_waiting=self._hear)
        self.hook = PauseHook(hooks, backend, lease, link=lambda task_id, tenant: None, beside=self._beside)

    async def _hear(self, pause: TaskPause) -> None:
        self.pauses.append(pause)
        await self.gate.wait()

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.create_task(work))

    async def finished(self) -> list[str]:
        """The tasks of the calls, once all calls have returned."""
        async with asyncio.timeout(LIMIT):
            await asyncio.gather(*self.tasks)
        return sorted(pause.task_id for pause in self.pauses)


@pytest.fixture
def backend(tmp_path: Path) -> SqliteFileBackend:
    return SqliteFileBackend(SqliteFile(path=tmp_path / 'agent.db'), 'agent', reader_lag=READER_LAG)


async def test_heartbeat_takes_calls_with_expired_leases(backend: SqliteFileBackend) -> None:
    worker = WorkerOfCalls(backend)
    await wait(backend, 'lost')
    await wait(backend, 'held by another', lease=LEASE)
    await worker.hook.beat()
    assert await worker.finished() == ['lost']
    await worker.hook.beat()
    assert await worker.finished() == ['lost']


async def test_heartbeat_takes_none_of_its_own_calls(backend: SqliteFileBackend) -> None:
    worker = WorkerOfCalls(backend, lease=EXPIRED)  # each lease has expired before the next statement
    worker.gate.clear()
    worker.hook.begin(await wait(backend, 'a'))
    await worker.hook.beat()
    assert len(worker.tasks) == 1
    worker.gate.set()
    assert await worker.finished() == ['a']


async def test_worker_with_ten_calls_takes_no_more(backend: SqliteFileBackend) -> None:
    worker = WorkerOfCalls(backend)
    worker.gate.clear()
    own = [await wait(backend, f'own {number}', lease=LEASE) for number in range(10)]
    for each in own:  # they have all places, and may hang
        worker.hook.begin(each)
    await wait(backend, 'lost')
    await worker.hook.beat()
    assert len(worker.tasks) == 10
    worker.gate.set()
    assert await worker.finished() == [each.task_id for each in own]
    await worker.hook.beat()
    assert await worker.finished() == ['lost', *(each.task_id for each in own)]


async def test_on_waiting_gets_only_unanswered_calls(backend: SqliteFileBackend) -> None:
    worker = WorkerOfCalls(backend)
    await submit(backend, message(new='a'))
    claim = await claim_task(backend, 'a')
    calls = pending(call('answered'), call('open'), answered='answered')
    paused = finish_of(claim, 'input-required', pending=calls)
    await backend.queue.finish(claim, replace(paused, hook_lease=EXPIRED))
    await worker.hook.beat()
    await worker.finished()
    assert [[open_call.id for open_call in pause.calls] for pause in worker.pauses] == [['open']]


async def test_heartbeat_in_memory_looks_for_no_calls() -> None:
    backend = MemoryBackend('agent', reader_lag=READER_LAG)
    worker = WorkerOfCalls(backend)
    stored = await wait(backend, 'a')
    await worker.hook.beat()
    assert worker.tasks == []
    assert list(await calls_of(backend).take(lease=LEASE, limit=1)) == [stored]
