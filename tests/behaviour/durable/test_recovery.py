"""Tasks whose process or loop went away: they are taken up again, not too often, and lose nothing.

A task that was started too often becomes a dead letter, and an operator makes another task of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Limits, Workers, to_a2a
from pydantic_ai_a2a.server.app.backend_choice import open_store
from pydantic_ai_a2a.server.store.ports import Backend, Claim, Marks, Slot, TaskQueue
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from pydantic_ai_a2a.store import WrappedQueue

from ...agents import GatedAgent, echo_prompts, user_prompts
from ...app_client import LIMIT, Client, RpcError, message, state_of, texts
from ...clocks import HOUR, SetClock
from ...serving import list_tasks, serving, wait_until_ended
from ...suites import values
from ...suites.values import EXPIRED
from ..durable_handover import ALL_POINTS, run_until_handover, serving_until_handover
from ..faulty_queues import StorageError
from ..pending_calls import ApprovalAgent, answer_message, approve, call_by_prompt
from ..refusals import BASE_EXCEPTIONS
from ..steps import Steps

OTHER_RESULT = b'{"artifactId":"a","parts":[{"text":"theirs"}]}'


@pytest.fixture
def backend() -> Generator[MemoryBackend]:
    made = MemoryBackend('agent', reader_lag=10**6, clock=SetClock())
    yield made
    made.close()


async def take_over(backend: Backend) -> Claim:
    """The task that runs, claimed by another holder as if its lease had expired."""
    assert isinstance(backend.clock, SetClock)
    with backend.clock.later():
        [claim] = await backend.queue.claim(Slot('thief', HOUR), at=backend.now(), limit=1)
    return claim


async def submit_lost_task(backend: Backend, attempts: int = 1, *, lease: int = values.EXPIRED) -> str:
    """A task whose holder died, several times, with a lease that has expired or will; its id."""
    before = backend.now() - 1000
    await values.submit(backend, values.message('hi', new='lost', context='c', owner='/', at=before))
    for n in range(attempts):
        assert await backend.queue.claim(Slot(f'holder {n}', lease), at=before + n, limit=1)
    return 'lost'


async def test_next_worker_runs_task_of_lost_worker(backend: MemoryBackend, caplog: pytest.LogCaptureFixture) -> None:
    task_id = await submit_lost_task(backend)
    async with serving(Agent(FunctionModel(echo_prompts)), backend=backend) as client:
        task = await wait_until_ended(client, task_id)
        after = await client.send(message('after', contextId='c'))
    assert (state_of(task), texts(task)) == ('COMPLETED', ['hi'])
    assert texts(after) == ['hi + after']
    assert [event.n for event in await values.events(backend, task_id)] == [1, 2, 3]
    told = f'Task {task_id} goes on in this process, in attempt 2 of 3: an earlier process was lost.'
    assert [text for text in caplog.messages if 'goes on' in text] == [told]


@pytest.mark.parametrize(('lives', 'state'), [(2, 'COMPLETED'), (3, 'FAILED')])
async def test_task_fails_once_all_attempts_are_lost(
    backend: MemoryBackend, lives: int, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    task_id = await submit_lost_task(backend, lives)
    async with serving(Agent(FunctionModel(echo_prompts)), backend=backend, workers=Workers(attempts=3)) as client:
        task = await wait_until_ended(client, task_id)
        assert texts(await client.send(message('after', contextId='c')))[-1].endswith('after')
    assert state_of(task) == state
    if state == 'FAILED':
        assert task['status']['message']['metadata']['failure'] == 'attempts'
        assert task['status']['message']['metadata']['correlationId'] in caplog.text
        assert 'goes on in this process' not in caplog.text


async def test_heartbeat_takes_over_task_of_dead_worker(
    backend: MemoryBackend,
) -> None:
    async with serving(Agent(FunctionModel(echo_prompts)), backend=backend, workers=Workers(lease=0.03)) as client:
        task_id = await submit_lost_task(backend, lease=20)
        assert texts(await wait_until_ended(client, task_id)) == ['hi']


async def test_takeover_stops_run_and_drops_its_result(
    backend: MemoryBackend, caplog: pytest.LogCaptureFixture
) -> None:
    stopped = asyncio.Event()
    began = asyncio.Event()

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if user_prompts(messages)[-1] != 'hi':
            return echo_prompts(messages, info)
        began.set()
        try:
            return await asyncio.Future()
        finally:
            stopped.set()

    async with serving(Agent(FunctionModel(answer)), backend=backend, workers=Workers(lease=0.03)) as client:
        task = await client.send('hi', returnImmediately=True)
        await began.wait()
        claim = await take_over(backend)
        await stopped.wait()
        assert state_of(await client.get_task(task['id'])) == 'WORKING'
        theirs = values.finish_of(claim, at=backend.now(), messages=values.model_turn('hi', 'theirs'))
        await backend.queue.finish(claim, theirs)
        assert texts(await client.send(message('after', contextId=task['contextId']))) == ['hi + after']
    assert claim.attempt == 2
    assert f'Task {task["id"]} was taken over or has ended; its late result is dropped.' in caplog.messages


class CountsRenewals(WrappedQueue):
    """Lets each lease expire before it is renewed."""

    def __init__(self, inner: TaskQueue) -> None:
        super().__init__(inner)
        self.renewed = asyncio.Event()

    async def renew(self, holder: str, tasks: Sequence[str], *, lease: int) -> Marks:
        await super().renew(holder, tasks, lease=values.EXPIRED)
        marks = await super().renew(holder, tasks, lease=HOUR)
        self.renewed.set()
        return marks


async def test_lease_is_renewed_while_task_runs(backend: MemoryBackend) -> None:
    gates = GatedAgent()
    renewing = backend.queue = CountsRenewals(backend.queue)
    async with serving(gates.agent, backend=backend, workers=Workers(lease=0.06)) as client:
        task = await client.send('hi', returnImmediately=True)
        await gates.reached('hi')
        await renewing.renewed.wait()
        assert await backend.queue.claim(Slot('thief', HOUR), at=backend.now(), limit=1) == []
        gates.open('hi')
        assert state_of(await wait_until_ended(client, task['id'])) == 'COMPLETED'


class FailsToRenew(WrappedQueue):
    """Cannot renew leases, for a while."""

    times = 2

    def __init__(self, inner: TaskQueue, error: Callable[[], BaseException]) -> None:
        super().__init__(inner)
        self._error = error

    async def renew(self, holder: str, tasks: Sequence[str], *, lease: int) -> Marks:
        if self.times:
            self.times -= 1
            raise self._error()
        return await super().renew(holder, tasks, lease=lease)


@pytest.mark.parametrize('error', [StorageError, *BASE_EXCEPTIONS.values()], ids=['error', *BASE_EXCEPTIONS])
async def test_heartbeat_continues_after_failed_renewal(
    error: Callable[[], BaseException], backend: MemoryBackend, caplog: pytest.LogCaptureFixture
) -> None:
    gates = GatedAgent()
    backend.queue = FailsToRenew(backend.queue, error)
    async with serving(gates.agent, backend=backend, workers=Workers(lease=0.03)) as client:
        await client.send('one', returnImmediately=True)
        await gates.reached('one')
        gates.open('hi')
        task_id = await submit_lost_task(backend, lease=20)
        assert texts(await wait_until_ended(client, task_id)) == ['hi']
        gates.open('one')
    assert 'heartbeat' in caplog.text


class HangingRenewal(WrappedQueue):
    """Never renews a lease."""

    def __init__(self, inner: TaskQueue) -> None:
        super().__init__(inner)
        self.asked = asyncio.Event()

    async def renew(self, holder: str, tasks: Sequence[str], *, lease: int) -> Marks:
        self.asked.set()
        return await asyncio.Future()


async def test_server_stops_while_renewal_is_pending(backend: MemoryBackend, caplog: pytest.LogCaptureFixture) -> None:
    gates = GatedAgent()
    queue = backend.queue = HangingRenewal(backend.queue)
    async with serving(gates.agent, backend=backend, workers=Workers(lease=0.03)) as client:
        task = await client.send('hi', returnImmediately=True)
        await queue.asked.wait()
        gates.open('hi')
        assert texts(await wait_until_ended(client, task['id'])) == ['hi']
    assert caplog.messages == []


def test_task_of_closed_event_loop_continues() -> None:
    runs: list[str] = []
    left = asyncio.Event()

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        runs.append(user_prompts(messages)[-1])
        if len(runs) == 2:
            left.set()
            await asyncio.Event().wait()
        return echo_prompts(messages, info)

    app = to_a2a(Agent(FunctionModel(answer)))
    client = Client(app)

    async def leave() -> str:
        first = await client.send(message('one', contextId='c'))
        task = await client.send(message('two', contextId='c'), returnImmediately=True)
        queued = await client.send(message('three', contextId='c'), returnImmediately=True)
        await left.wait()
        assert state_of(first) == 'COMPLETED'
        return f'{task["id"]} {queued["id"]}'

    async def come_back(task_ids: str) -> None:
        task_id, queued_id = task_ids.split()
        task, queued = await wait_until_ended(client, task_id), await wait_until_ended(client, queued_id)
        assert texts(task) == ['one + two']
        assert texts(queued) == ['one + two + three']
        assert [part['text'] for each in task['history'] for part in each['parts']] == ['two', 'one + two']

    with asyncio.Runner() as runner:
        ids = runner.run(asyncio.wait_for(leave(), LIMIT))
    with asyncio.Runner() as runner:
        runner.run(asyncio.wait_for(come_back(ids), LIMIT))
    assert runs == ['one', 'two', 'two', 'three']


async def test_failure_after_takeover_is_not_stored(backend: MemoryBackend, caplog: pytest.LogCaptureFixture) -> None:
    began, fail = asyncio.Event(), asyncio.Event()

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        began.set()
        await fail.wait()
        raise RuntimeError('too late')

    async with serving(Agent(FunctionModel(answer)), backend=backend) as client:
        task = await client.send('hi', returnImmediately=True)
        await began.wait()
        claim = await take_over(backend)
        fail.set()
        async with client.subscribe(task['id']) as stream:
            await anext(stream)
            await backend.queue.finish(
                claim, values.finish_of(claim, at=backend.now(), artifacts=[('a', OTHER_RESULT)])
            )
            await stream.rest()
        assert texts(await client.get_task(task['id'])) == ['theirs']
    assert f'Task {task["id"]} was taken over before its failure was recorded.' in caplog.messages


class FailsToListen(MemoryBackend):
    """Cannot tell of new tasks at first."""

    times = 1

    def listen(self, on_ready: Callable[[str], None], on_cancel: Callable[[str], None]) -> Callable[[], None]:
        if self.times:
            self.times -= 1
            raise StorageError
        return super().listen(on_ready, on_cancel)


async def test_unavailable_store_is_retried_by_next_request() -> None:
    backend = FailsToListen('agent', reader_lag=10**6)
    client = Client(to_a2a(Agent(FunctionModel(echo_prompts)), backend=backend))
    with pytest.raises(RpcError) as refused:
        await client.send('one')
    task = await client.send('two')
    assert refused.value.code == -32000
    assert texts(task) == ['two']
    assert len(await list_tasks(client)) == 1
    backend.close()


# --- tasks that were started too often, and those that are made of them ----------------------------------------------


ONCE = Workers(attempts=1, drain_grace=0.01)


async def claim_and_die(url: str) -> None:
    """Take the task that was handed back, as a process does that is killed then."""
    backend = open_store(url, 'agent', Limits())
    assert await backend.queue.claim(Slot('a process that is killed', EXPIRED), at=backend.now(), limit=1)
    backend.close()


async def retry(client: Client, task_id: str, new_id: str, *, again: bool = False) -> dict[str, Any]:
    """The task, once it is over, that is made of a dead letter."""
    backend = client.a2a_app.backend
    await backend.housekeeping.retry(task_id, new_id=new_id, at=backend.now(), again=again)
    return await wait_until_ended(client, new_id)


async def test_dead_letter_retry_resumes_after_last_step(url: str) -> None:
    steps = Steps()
    task_id = await run_until_handover('model 3', steps, backend=url, workers=ONCE)
    await claim_and_die(url)
    async with serving_until_handover(steps.agent, backend=url, workers=ONCE) as client:
        dead = await wait_until_ended(client, task_id)
        [letter] = await client.a2a_app.backend.housekeeping.dead_letters()
        assert letter.correlation_id == dead['status']['message']['metadata']['correlationId']
        assert (state_of(dead), letter.failure, letter.attempts) == ('FAILED', 'attempts', 1)
        again = await retry(client, task_id, 'again')
        usage = await client.a2a_app.conversations().read_record('c')
    assert texts(again) == ['Read 5 messages.']
    assert again['history'][0]['referenceTaskIds'] == [task_id]
    assert steps.done == [*ALL_POINTS, 'model 3']
    assert {metadata['a2a']['idempotency_key'] for _, _, metadata in steps.told} == {f'{task_id}.1'}
    assert usage is not None
    assert (usage.usage.requests, usage.usage.tool_calls) == (3, 4)


async def test_repeated_dead_letter_retry_starts_from_beginning(url: str) -> None:
    steps = Steps()
    task_id = await run_until_handover('tool 2', steps, backend=url, workers=ONCE)
    await claim_and_die(url)
    async with serving_until_handover(steps.agent, backend=url, workers=ONCE) as client:
        await wait_until_ended(client, task_id)
        for new_id, again in (('second', False), ('third', True)):
            assert state_of(await retry(client, task_id, new_id, again=again)) == 'COMPLETED'
    assert steps.done == [*ALL_POINTS[:-1], 'tool 2', 'tool 12', 'model 3', *ALL_POINTS]
    assert {metadata['a2a']['idempotency_key'] for _, _, metadata in steps.told} == {f'{task_id}.1', 'third.1'}


async def test_dead_letter_retry_does_not_repeat_approved_call(url: str) -> None:
    tools, held = ApprovalAgent(), asyncio.Event()

    async def held_once(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if tools.deleted and not held.is_set():
            held.set()
            await asyncio.Event().wait()
        return call_by_prompt(messages, info)

    options: dict[str, Any] = {'backend': url, 'workers': ONCE, 'model': FunctionModel(held_once)}
    async with serving_until_handover(tools.agent, **options) as client:
        task = await client.send(message('delete', contextId='c'))
        await client.send(answer_message(task, approve()), returnImmediately=True)
        await held.wait()
    await claim_and_die(url)
    async with serving_until_handover(tools.agent, **options) as client:
        assert state_of(await wait_until_ended(client, task['id'])) == 'FAILED'
        again = await retry(client, task['id'], 'again')
        messages = await client.messages_of('c')
    assert texts(again) == ['delete + deleted a']
    assert tools.deleted == [('a', True)]
    assert [each.kind for each in messages] == ['request', 'response', 'request', 'response']
