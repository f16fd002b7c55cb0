"""Claims: the slots of the worker are free while the store is asked, and callers take turns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pydantic_ai_a2a import Workers
from pydantic_ai_a2a.backends.memory import SqliteBackend
from pydantic_ai_a2a.clock import SYSTEM
from pydantic_ai_a2a.errors import StoreUnavailable
from pydantic_ai_a2a.ports import Claim, TaskQueue
from pydantic_ai_a2a.testing.values import claim_one, message, submit

from ...client import texts
from ...dialects import unversioned
from ..metered import AUTH, by
from ..queues import Wrapped
from ..stage import Stage, ended, serving

pytestmark = unversioned('claims are below what versions differ in')

OFTEN = Workers(running=1, lease=0.3)
"""Looks for lost tasks every tenth of a second."""


class Slow(Wrapped):
    """Answers claims of whatever is there only when the test says so."""

    def __init__(self, inner: TaskQueue) -> None:
        super().__init__(inner)
        self.asked = asyncio.Event()
        self.answers = asyncio.Event()
        self.answers.set()
        self.released: list[str] = []

    async def claim(self, holder: str, *, at: int, lease: int, limit: int, task_id: str | None = None) -> list[Claim]:
        claims = await super().claim(holder, at=at, lease=lease, limit=limit, task_id=task_id)
        if task_id is None and not self.answers.is_set():
            self.asked.set()
            await self.answers.wait()
        return claims

    async def release(self, claim: Claim) -> None:
        self.released.append(claim.header.id)
        await super().release(claim)


@pytest.fixture
def backend() -> Iterator[SqliteBackend]:
    made = SqliteBackend('agent', reader_lag=10**6)
    yield made
    made.close()


async def test_a_new_task_is_run_while_the_store_is_asked_for_others(backend: SqliteBackend) -> None:
    stage, queue = Stage(), Slow(backend.queue)
    backend.queue = queue
    stage.open('hi')
    async with serving(stage.agent, backend=backend, workers=OFTEN) as client:
        queue.answers.clear()
        await queue.asked.wait()
        assert texts(await client.send('hi')) == ['hi']
        queue.answers.set()


async def test_a_task_that_comes_back_from_a_claim_without_a_free_slot_is_handed_back(backend: SqliteBackend) -> None:
    stage, queue = Stage(), Slow(backend.queue)
    await submit(backend, message('lost', new='lost', owner='/', at=SYSTEM.now()))
    elsewhere = await claim_one(backend, 'lost', 'elsewhere', at=SYSTEM.now())
    backend.queue = queue
    async with serving(stage.agent, backend=backend, workers=OFTEN) as client:
        queue.answers.clear()
        await queue.inner.release(elsewhere)
        await queue.asked.wait()
        new = await client.send('new', returnImmediately=True)
        await stage.reached('new')
        queue.answers.set()
        stage.open('lost')
        stage.open('new')
        assert texts(await ended(client, 'lost')) == ['lost']
        assert texts(await client.get_task(new['id'])) == ['new']
    assert (stage.began, queue.released) == (['new', 'lost'], ['lost'])


class Away(Slow):
    """Refuses the first release, as a store does that is unavailable for a moment."""

    async def release(self, claim: Claim) -> None:
        self.released.append(claim.header.id)
        if len(self.released) == 1:
            raise StoreUnavailable
        await self.inner.release(claim)


async def test_no_task_is_forgotten_if_the_store_goes_away_while_tasks_are_handed_back(backend: SqliteBackend) -> None:
    stage, queue, lost = Stage(), Away(backend.queue), ['lost', 'lost too']
    claims: list[Claim] = []
    for task_id in lost:
        await submit(backend, message(task_id, new=task_id, owner='/', at=SYSTEM.now()))
        claims.append(await claim_one(backend, task_id, 'elsewhere', at=SYSTEM.now()))
    backend.queue = queue
    async with serving(stage.agent, backend=backend, workers=replace(OFTEN, running=2)) as client:
        queue.answers.clear()
        for claim in claims:
            await queue.inner.release(claim)
        await queue.asked.wait()
        for prompt in ('new', 'new too'):
            await client.send(prompt, returnImmediately=True)
            await stage.reached(prompt)
        queue.answers.set()
        stage.open('new', 'new too', *lost)
        for task_id in lost:
            assert texts(await ended(client, task_id)) == [task_id]


async def test_many_queued_tasks_of_one_caller_delay_another_callers_task_by_one() -> None:
    stage = Stage()
    flood = [f'{n}' for n in range(400)]
    async with serving(stage.agent, workers=Workers(running=1), auth=AUTH) as client:
        ann, bob = by(client, 'ann'), by(client, 'bob')
        for prompt in flood:
            await ann.send(prompt, returnImmediately=True)
        await stage.reached('0')
        task = await bob.send('hi', returnImmediately=True)
        stage.open('0', '1', 'hi')
        assert texts(await ended(bob, task['id'])) == ['hi']
        await stage.reached('2')
        stage.open(*flood)
    assert stage.began[:4] == ['0', '1', 'hi', '2']
