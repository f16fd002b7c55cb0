"""What a run used is charged once, although nobody knows what was stored of its end, and whoever has ended its task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Budget, Limits, Quotas, Workers
from pydantic_ai_a2a.errors import StoreUnavailable
from pydantic_ai_a2a.server.store.ports import Backend, Bucket, Charge, Claim, Finish, QuotaStore, Spent
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile
from pydantic_ai_a2a.store import WrappedQueue

from ...agents import user_prompts
from ...app_client import message, state_of
from ...serving import list_tasks, serving, wait_until_ended
from ..faulty_queues import FinishInDoubt
from ..metered import DAY, HTTP, USED

pytestmark = HTTP
QUOTAS = Quotas(budgets=[Budget(window=DAY, requests=9)])
WORKERS = Workers(lease=0.3)


async def used(backend: Backend) -> list[tuple[int, int, int]]:
    """Requests, tokens and cost that were charged."""
    return [each[1:] for each in await backend.quotas.spent('/', 24 * 3600 * 1000, at=0)]


def backend_in(folder: Path) -> SqliteFileBackend:
    file = SqliteFile(path=folder / 'agent.db', synchronous='normal')
    return SqliteFileBackend(file, 'agent', reader_lag=10**6)


class FailingToolAgent:
    """An agent whose tool fails once `goes_on` is set, and which answers the message 'two'."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.agent = Agent(FunctionModel(self.answer))
        self.agent.tool_plain(self.work)

    async def answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if user_prompts(messages)[-1] == 'two':
            return ModelResponse(parts=[TextPart('done')], usage=USED)
        return ModelResponse(parts=[ToolCallPart('work')], usage=USED)

    async def work(self) -> str:
        self.begun.set()
        await self.goes_on.wait()
        raise RuntimeError('broken')


@pytest.mark.parametrize('unread', [False, True], ids=['ends', 'goes on'])
async def test_failure_stored_without_answer_is_charged_once(unread: bool, tmp_path: Path) -> None:
    backend, breaking = backend_in(tmp_path), FailingToolAgent()
    backend.queue = FinishInDoubt(backend.queue)
    async with serving(breaking.agent, backend=backend, limits=Limits(quotas=QUOTAS), workers=WORKERS) as client:
        task = await client.send(returnImmediately=True)
        await breaking.begun.wait()
        if unread:
            await client.send(message('two', taskId=task['id']), returnImmediately=True)
        breaking.goes_on.set()
        assert state_of(await wait_until_ended(client, task['id'])) == ('COMPLETED' if unread else 'FAILED')
    assert await used(backend) == [(2, 200, 20_000_000) if unread else (1, 100, 10_000_000)]
    backend.close()


class ChargesInDoubt(QuotaStore):
    """Charges for a run whose task was ended over its head, the first time without an answer."""

    def __init__(self, inner: QuotaStore) -> None:
        self.inner = inner
        self.again = asyncio.Event()
        self.then: Callable[[], Awaitable[object]] | None = None
        """Called after the first charge is stored."""
        self._answers = False

    async def take(self, bucket: Bucket, *, at: int) -> int:
        return await self.inner.take(bucket, at=at)

    async def spent(self, subject: str, window: int, *, at: int) -> Sequence[Spent]:
        return await self.inner.spent(subject, window, at=at)

    async def charge(self, charges: Sequence[Charge]) -> None:
        await self.inner.charge(charges)

    async def settle(self, task_id: str, run: int, charges: Sequence[Charge]) -> None:
        await self.inner.settle(task_id, run, charges)
        if self._answers:
            self.again.set()
            return
        self._answers = True
        if self.then is not None:
            await self.then()
        raise StoreUnavailable


class UnavailableQueue(WrappedQueue):
    """Is unavailable when the end of a run is stored for the first time."""

    available = False

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        if self.available:
            return await super().finish(claim, finish)
        self.available = True
        raise StoreUnavailable


@pytest.mark.parametrize('fault', ['none', 'task erased after first charge', 'end not stored at first'])
async def test_repeated_charge_of_canceled_run_counts_once(fault: str, tmp_path: Path) -> None:
    backend, breaking = backend_in(tmp_path), FailingToolAgent()
    backend.quotas = quotas = ChargesInDoubt(backend.quotas)
    erased = fault.startswith('task erased')
    if fault.startswith('end not stored'):
        backend.queue = UnavailableQueue(backend.queue)
    async with serving(breaking.agent, backend=backend, limits=Limits(quotas=QUOTAS), workers=WORKERS) as client:
        task = await client.send(returnImmediately=True)
        if erased:
            quotas.then = lambda: backend.housekeeping.erase_task(task['id'], None, at=backend.now())
        await breaking.begun.wait()
        await backend.queue.cancel(task['id'], '/', at=backend.now(), force=True)
        breaking.goes_on.set()
        await quotas.again.wait()
        assert len(await list_tasks(client)) == (0 if erased else 1)
    assert await used(backend) == [(1, 100, 10_000_000)]
    backend.close()
