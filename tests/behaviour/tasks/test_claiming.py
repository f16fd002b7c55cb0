"""Claims: the slots of the worker are free while the store is asked, callers take turns, and operators pause them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import Workers, to_a2a
from pydantic_ai_a2a.clock import SYSTEM
from pydantic_ai_a2a.errors import StoreUnavailable
from pydantic_ai_a2a.server.app.backend_choice import open_store
from pydantic_ai_a2a.server.store.ports import Accepted, Claim, Finish, Submission, TaskQueue
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from pydantic_ai_a2a.store import WrappedQueue

from ...agents import GatedAgent
from ...app_client import LIMIT, Client, RpcError, lifespan, message, state_of, texts
from ...serving import serving, wait_until_ended
from ...suites import values
from ..metered import AUTH, client_of

FREQUENT_HEARTBEAT = Workers(running=1, lease=0.3)
"""Looks for lost tasks every tenth of a second."""


class BlockedClaims(WrappedQueue):
    """Answers claims of whatever is there only when the test says so."""

    def __init__(self, inner: TaskQueue) -> None:
        super().__init__(inner)
        self.asked = asyncio.Event()
        self.answers = asyncio.Event()
        self.answers.set()
        self.released: list[str] = []

    async def claim(self, *args: Any, task_id: str | None = None, **options: Any) -> list[Claim]:
        claims = await super().claim(*args, task_id=task_id, **options)
        if task_id is None and not self.answers.is_set():
            self.asked.set()
            await self.answers.wait()
        return claims

    async def release(self, claim: Claim, *args: Any, **options: Any) -> None:
        self.released.append(claim.header.id)
        await super().release(claim, *args, **options)


async def test_new_task_starts_while_claim_is_pending(backend: MemoryBackend) -> None:
    gates, queue = GatedAgent(), BlockedClaims(backend.queue)
    backend.queue = queue
    gates.open('hi')
    async with serving(gates.agent, backend=backend, workers=FREQUENT_HEARTBEAT) as client:
        queue.answers.clear()
        await queue.asked.wait()
        assert texts(await client.send('hi')) == ['hi']
        queue.answers.set()


class SlowClaims(WrappedQueue):
    """Begins a claim of any tasks only when the test says so."""

    def __init__(self, inner: TaskQueue) -> None:
        super().__init__(inner)
        self.begins = asyncio.Event()
        self.begins.set()

    async def claim(self, *args: Any, task_id: str | None = None, **options: Any) -> list[Claim]:
        if task_id is None:
            await self.begins.wait()
        return await super().claim(*args, task_id=task_id, **options)


async def test_new_task_waits_behind_earlier_queued_tasks(backend: MemoryBackend) -> None:
    gates = GatedAgent()
    for text in ('one', 'two', 'three', 'four'):
        await values.submit(backend, values.message(text, new=text, owner='/'))
    backend.queue = queue = SlowClaims(backend.queue)
    async with serving(gates.agent, backend=backend, workers=Workers(running=2)) as client:
        await gates.reached('one', 'two')
        queue.begins.clear()
        gates.open('one', 'two', 'late')
        for task_id in ('one', 'two'):
            await wait_until_ended(client, task_id)
        late = await client.send('late', returnImmediately=True)
        queue.begins.set()
        await gates.reached('three', 'four')
        assert 'late' not in gates.began
        gates.open('three', 'four')
        assert state_of(await wait_until_ended(client, late['id'])) == 'COMPLETED'


async def test_claimed_task_without_free_slot_is_released(backend: MemoryBackend) -> None:
    gates, queue = GatedAgent(), BlockedClaims(backend.queue)
    await values.submit(backend, values.message('lost', new='lost', owner='/', at=SYSTEM.now()))
    elsewhere = await values.claim_task(backend, 'lost', 'elsewhere', at=SYSTEM.now())
    backend.queue = queue
    async with serving(gates.agent, backend=backend, workers=FREQUENT_HEARTBEAT) as client:
        queue.answers.clear()
        await queue.inner.release(elsewhere)
        await queue.asked.wait()
        new = await client.send('new', returnImmediately=True)
        await gates.reached('new')
        queue.answers.set()
        gates.open('lost')
        gates.open('new')
        assert texts(await wait_until_ended(client, 'lost')) == ['lost']
        assert texts(await client.get_task(new['id'])) == ['new']
    assert (gates.began, queue.released) == (['new', 'lost'], ['lost'])


class ReleaseFailsOnce(BlockedClaims):
    """Refuses the first release, as a store does that is unavailable for a moment."""

    async def release(self, claim: Claim, *args: Any, **options: Any) -> None:
        self.released.append(claim.header.id)
        if len(self.released) == 1:
            raise StoreUnavailable
        await self.inner.release(claim)


async def test_claimed_tasks_are_not_lost_when_release_fails(backend: MemoryBackend) -> None:
    gates, queue, lost = GatedAgent(), ReleaseFailsOnce(backend.queue), ['lost', 'lost too']
    claims: list[Claim] = []
    for task_id in lost:
        await values.submit(backend, values.message(task_id, new=task_id, owner='/', at=SYSTEM.now()))
        claims.append(await values.claim_task(backend, task_id, 'elsewhere', at=SYSTEM.now()))
    backend.queue = queue
    async with serving(gates.agent, backend=backend, workers=replace(FREQUENT_HEARTBEAT, running=2)) as client:
        queue.answers.clear()
        for claim in claims:
            await queue.inner.release(claim)
        await queue.asked.wait()
        for prompt in ('new', 'new too'):
            await client.send(prompt, returnImmediately=True)
            await gates.reached(prompt)
        queue.answers.set()
        gates.open('new', 'new too', *lost)
        for task_id in lost:
            assert texts(await wait_until_ended(client, task_id)) == [task_id]


class FailingClaim(BlockedClaims):
    """Raises an exception instead of the answer to a claim, once."""

    error: BaseException | None = None

    async def claim(self, *args: Any, **options: Any) -> list[Claim]:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return await super().claim(*args, **options)


class Panic(BaseException):
    """As a store in Rust raises."""


@pytest.mark.parametrize(
    'error', [RuntimeError(), asyncio.CancelledError(), Panic()], ids=lambda error: type(error).__name__
)
async def test_claiming_continues_after_claim_error(
    error: BaseException, backend: MemoryBackend, caplog: pytest.LogCaptureFixture
) -> None:
    gates, queue = GatedAgent(), FailingClaim(backend.queue)
    backend.queue = queue
    async with serving(gates.agent, backend=backend, workers=FREQUENT_HEARTBEAT) as client:
        await client.send('one', returnImmediately=True)
        await gates.reached('one')
        second = await client.send('two', returnImmediately=True)
        queue.error = error
        gates.open('one', 'two')
        assert texts(await wait_until_ended(client, second['id'])) == ['two']
    assert 'Queued tasks could not be claimed; the worker tries again at the next heartbeat.' in caplog.messages


async def test_server_stops_while_claim_is_pending(file_backend: SqliteFileBackend) -> None:
    queue = file_backend.queue = BlockedClaims(file_backend.queue)
    async with serving(GatedAgent().agent, backend=file_backend, workers=FREQUENT_HEARTBEAT):
        queue.answers.clear()
        await queue.asked.wait()


class CountedClaims(BlockedClaims):
    """Notes how many tasks each claim takes."""

    def __init__(self, inner: TaskQueue) -> None:
        super().__init__(inner)
        self.taken: list[int] = []

    async def claim(self, *args: Any, **options: Any) -> list[Claim]:
        claims = await super().claim(*args, **options)
        self.taken += [len(claims)] if claims else []
        return claims


async def test_single_claim_fills_all_free_slots(file_backend: SqliteFileBackend) -> None:
    gates = GatedAgent()
    queue = file_backend.queue = CountedClaims(file_backend.queue)
    names = [f'running {n}' for n in range(16)]
    workers = Workers(running=len(names), lease=3600)
    async with serving(gates.agent, backend=file_backend, workers=workers) as client:
        for name in names:
            await client.send(name, returnImmediately=True)
            await gates.reached(name)
        for name in ('a', 'b', 'c'):
            await client.send(name, returnImmediately=True)
        gates.open('running 0', 'running 1')
        for name in ('a', 'b'):
            await gates.reached(name)
        queue.answers.clear()
        gates.open('running 2', 'running 3')
        await queue.asked.wait()
        await client.send('d', returnImmediately=True)
        queue.answers.set()
        for name in ('c', 'd'):  # the last one after a moment, although only one slot is free
            await gates.reached(name)
        gates.open(*names, 'a', 'b', 'c', 'd')
    assert queue.taken == [2, 1, 1]


async def test_callers_take_turns_despite_queue_flood() -> None:
    gates = GatedAgent()
    flood = [f'{n}' for n in range(400)]
    async with serving(gates.agent, workers=Workers(running=1), auth=AUTH) as client:
        ann, bob = client_of(client, 'ann'), client_of(client, 'bob')
        for prompt in flood:
            await ann.send(prompt, returnImmediately=True)
        await gates.reached('0')
        task = await bob.send('hi', returnImmediately=True)
        gates.open('0', '1', 'hi')
        assert texts(await wait_until_ended(bob, task['id'])) == ['hi']
        await gates.reached('2')
        gates.open(*flood)
    assert gates.began[:4] == ['0', '1', 'hi', '2']


class BlockedSubmit(WrappedQueue):
    """Answers the first submission only when the test says so, or refuses it then."""

    def __init__(self, inner: TaskQueue, *, refuses: bool = False) -> None:
        super().__init__(inner)
        self.refuses = refuses
        self.stored = asyncio.Event()
        self.answers = asyncio.Event()

    async def submit(self, submission: Submission, **options: Any) -> Accepted:
        if self.stored.is_set():
            return await super().submit(submission, **options)
        accepted = None if self.refuses else await super().submit(submission, **options)
        self.stored.set()
        await self.answers.wait()
        if accepted is None:
            raise StoreUnavailable
        return accepted


async def test_slot_reserved_for_refused_message_goes_to_queued_task(backend: MemoryBackend) -> None:
    gates, queue = GatedAgent(), BlockedSubmit(backend.queue, refuses=True)
    backend.queue = queue
    gates.open('waits')
    async with serving(gates.agent, backend=backend, workers=Workers(running=1)) as client:
        refused = asyncio.ensure_future(client.send('refused'))
        await queue.stored.wait()
        task = await client.send('waits', returnImmediately=True)
        assert gates.began == []
        queue.answers.set()
        with pytest.raises(RpcError):
            await refused
        assert texts(await wait_until_ended(client, task['id'])) == ['waits']


async def test_task_submitted_during_drain_is_released(file_backend: SqliteFileBackend) -> None:
    gates, queue = GatedAgent(), BlockedSubmit(file_backend.queue)
    file_backend.queue = queue
    app = to_a2a(gates.agent, backend=file_backend)
    async with asyncio.timeout(LIMIT):
        async with lifespan(app):
            sending = asyncio.ensure_future(Client(app).send('hi', returnImmediately=True))
            await queue.stored.wait()
        queue.answers.set()
        task = await sending
        [claimed] = await values.claim_up_to(file_backend, 1, 'another', limit=1, at=SYSTEM.now())
    assert (claimed.header.id, claimed.attempt, gates.began) == (task['id'], 1, [])


@pytest.mark.parametrize('store', ['sqlite', 'postgres'])
async def test_paused_queue_accepts_messages_and_runs_after_resume(
    store: str, request: pytest.FixtureRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f'sqlite:///{tmp_path}/agent.db' if store == 'sqlite' else request.getfixturevalue('postgres_url')
    app = to_a2a(Agent('test', name='joker'), backend=url, workers=Workers(lease=0.3))
    client, operator = Client(app), open_store(url, 'joker')

    async def worker() -> str:
        answer = await client.get('/health/ready')
        assert answer.status == 200
        return answer.json['components']['worker']

    async with lifespan(app), asyncio.timeout(LIMIT):
        await operator.queued()
        assert await worker() == 'ok'
        await operator.housekeeping.pause(operator.now())
        sending = asyncio.create_task(client.send(message()))
        queued = await client.send(message(), returnImmediately=True)
        while await worker() != 'paused':
            pass
        assert (state_of(queued), sending.done()) == ('SUBMITTED', False)
        await operator.housekeeping.pause(None)
        assert state_of(await sending) == 'COMPLETED'
        while await worker() != 'ok':
            pass
    operator.close()
    assert [record.message for record in caplog.records if 'paused' in record.message] == [
        'The queue is paused: tasks wait until the command `queue resume`.',
        'The queue is no longer paused.',
    ]


class TakingEnds(CountedClaims):
    """Also lets an end claim the next queued task, and notes these tasks."""

    takes_next = True

    def __init__(self, inner: TaskQueue) -> None:
        super().__init__(inner)
        self.following: list[str] = []

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        following = await super().finish(claim, finish)
        if following is not None:
            self.following.append(following.header.id)
        return following


async def test_end_of_task_starts_next_queued_task(file_backend: SqliteFileBackend) -> None:
    gates = GatedAgent()
    queue = file_backend.queue = TakingEnds(file_backend.queue)
    names = ['one', 'two', 'three', 'four']
    async with serving(gates.agent, backend=file_backend, workers=Workers(running=1, lease=3600)) as client:
        tasks: list[str] = []
        for name in names:
            tasks.append((await client.send(name, returnImmediately=True))['id'])
            await gates.reached('one')
        gates.open(*names)
        assert [texts(await wait_until_ended(client, task_id)) for task_id in tasks] == [[name] for name in names]
    assert (queue.following, queue.taken) == (tasks[1:], [])


async def test_end_leaves_slot_to_lost_tasks(file_backend: SqliteFileBackend) -> None:
    gates = GatedAgent()
    for name in ('lost one', 'lost two'):
        await values.submit(file_backend, values.message(name, new=name, owner='/', at=SYSTEM.now()))
        await values.claim_task(file_backend, name, 'a dead worker', at=SYSTEM.now(), lease=values.EXPIRED)
    async with serving(gates.agent, backend=file_backend, workers=Workers(running=1, lease=3600)) as client:
        await gates.reached('lost one')
        await client.send('new', returnImmediately=True)
        gates.open('lost one', 'lost two', 'new')
        await gates.reached('new')
    assert gates.began == ['lost one', 'lost two', 'new']


async def test_cancel_stops_task_begun_by_end(file_backend: SqliteFileBackend) -> None:
    gates, stopped = GatedAgent(), list[str]()

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        try:
            return await gates.answer(messages, info)
        except asyncio.CancelledError:
            stopped.append(gates.began[-1])
            raise

    queue = file_backend.queue = TakingEnds(file_backend.queue)
    workers = Workers(running=1, lease=3600)
    async with serving(Agent(FunctionModel(answer)), backend=file_backend, workers=workers) as client:
        await client.send('one', returnImmediately=True)
        await gates.reached('one')
        second = await client.send('two', returnImmediately=True)
        gates.open('one')
        await gates.reached('two')
        canceled = await client.call('CancelTask', {'id': second['id']})
        assert (state_of(canceled), stopped) == ('CANCELED', ['two'])
    assert queue.following == [second['id']]


class ErasedEnd(TakingEnds):
    """Stores the first end without an answer. The ended task is erased before the second try."""

    def __init__(self, backend: MemoryBackend) -> None:
        super().__init__(backend.queue)
        self._backend = backend
        self.erased = asyncio.Event()

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        following = await super().finish(claim, finish)
        if not self.erased.is_set():
            await self._backend.housekeeping.erase_task(claim.header.id, None, at=self._backend.now())
            self.erased.set()
            raise StoreUnavailable
        return following


async def test_next_task_runs_though_ended_task_is_erased(backend: MemoryBackend) -> None:
    gates, queue = GatedAgent(), ErasedEnd(backend)
    backend.queue = queue
    async with serving(gates.agent, backend=backend, workers=Workers(running=1)) as client:
        await client.send('one', returnImmediately=True)
        await gates.reached('one')
        second = await client.send('two', returnImmediately=True)
        gates.open('one', 'two')
        await queue.erased.wait()
        assert texts(await wait_until_ended(client, second['id'])) == ['two']
    assert queue.following == [second['id']]


class HeldEnds(TakingEnds):
    """Answers an end that has claimed a task only when the test says so."""

    def __init__(self, inner: TaskQueue) -> None:
        super().__init__(inner)
        self.took = asyncio.Event()
        self.returns = asyncio.Event()

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        following = await super().finish(claim, finish)
        if following is not None:
            self.took.set()
            await self.returns.wait()
        return following


async def test_next_task_claimed_at_shutdown_is_released(file_backend: SqliteFileBackend) -> None:
    gates = GatedAgent()
    queue = file_backend.queue = HeldEnds(file_backend.queue)
    async with AsyncExitStack() as stack, asyncio.timeout(LIMIT):
        workers = Workers(running=2, lease=3600)
        client = await stack.enter_async_context(serving(gates.agent, backend=file_backend, workers=workers))
        tasks = [(await client.send(text, returnImmediately=True))['id'] for text in ('one', 'long', 'two', 'three')]
        await gates.reached('one', 'long')
        gates.open('one')
        await queue.took.wait()
        stopped = asyncio.ensure_future(stack.aclose())
        while (await client.get('/health/ready')).status == 200:
            pass
        queue.returns.set()
        while not queue.released and len(gates.began) == 2:
            await client.get('/health/ready')
        gates.open('long')
        await stopped
    assert ({*gates.began}, {*queue.released}) == ({'one', 'long'}, {tasks[2]})
    [taken] = await values.claim_up_to(file_backend, 1, 'another', limit=1, at=SYSTEM.now())
    assert (taken.header.id, taken.attempt) == (tasks[2], 1)


class UnavailableTakingEnds(TakingEnds):
    """Stores only ends that claim no task."""

    def __init__(self, inner: TaskQueue) -> None:
        super().__init__(inner)
        self.asked = asyncio.Event()

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        if finish.slot is not None:
            self.asked.set()
            raise StoreUnavailable
        return await super().finish(claim, finish)


async def test_end_stored_at_shutdown_claims_no_task(file_backend: SqliteFileBackend) -> None:
    gates = GatedAgent()
    queue = file_backend.queue = UnavailableTakingEnds(file_backend.queue)
    workers = Workers(running=1, lease=3600)
    async with serving(gates.agent, backend=file_backend, workers=workers, drain_grace=0.01) as client:
        tasks = [(await client.send(text, returnImmediately=True))['id'] for text in ('one', 'two')]
        await gates.reached('one')
        gates.open('one')
        await queue.asked.wait()
    ended = await file_backend.reader.load(tasks[0], None)
    assert ended is not None
    assert ended.header.state == 'completed'
    [taken] = await values.claim_up_to(file_backend, 1, 'another', limit=1, at=SYSTEM.now())
    assert (taken.header.id, taken.fence) == (tasks[1], 1)


async def test_next_task_keeps_context_variables_of_its_message(
    file_backend: SqliteFileBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates, looked = GatedAgent(), asyncio.Event()
    looks = asyncio.ensure_future(looked.wait())
    queue, queued_among = HeldEnds(file_backend.queue), file_backend.reader.queued_among
    file_backend.queue = queue

    async def look(task_ids: Sequence[str]) -> Collection[str]:
        queued = await queued_among(task_ids)
        if not {*task_ids} <= {*queued}:
            looked.set()
        return queued

    monkeypatch.setattr(file_backend.reader, 'queued_among', look)
    async with serving(gates.agent, backend=file_backend, workers=FREQUENT_HEARTBEAT) as client:
        for n in count():
            await client.send(f'first {n}', returnImmediately=True)
            await gates.reached(f'first {n}')
            with gates.agent.override(model=TestModel(custom_output_text='overridden')):
                ends = asyncio.ensure_future(client.send('second'))
            while not await file_backend.queued():
                pass
            gates.open(f'first {n}', 'second')
            await asyncio.wait([ends, looks], return_when=asyncio.FIRST_COMPLETED)
            if looks.done():  # else a heartbeat came before the end, which took no task then
                queue.returns.set()
            assert texts(await ends) == ['overridden']
            if looks.done():
                break


async def test_next_task_stays_queued_during_on_complete_hook(tmp_path: Path) -> None:
    gates, url = GatedAgent(), f'sqlite:///{tmp_path / "tasks.db"}'
    in_hook, returns = asyncio.Event(), asyncio.Event()

    async def completed(_: Any) -> None:
        in_hook.set()
        await returns.wait()

    app = to_a2a(gates.agent, backend=url, workers=Workers(running=1, lease=3600), on_complete=completed)
    async with lifespan(app):
        client = Client(app)
        tasks = [(await client.send(text, returnImmediately=True))['id'] for text in ('one', 'two')]
        await gates.reached('one')
        gates.open('one', 'two')
        await in_hook.wait()
        assert state_of(await client.get_task(tasks[1])) == 'SUBMITTED'
        returns.set()
        assert texts(await wait_until_ended(client, tasks[1])) == ['two']
