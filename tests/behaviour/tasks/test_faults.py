"""Faults that must not spread: of agents, clients, event loops and backends."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import Access, Approvals, Limits, Messages, Results, Retention, Workers, to_a2a
from pydantic_ai_a2a.server.agent.referenced_tasks import read_referenced
from pydantic_ai_a2a.server.agent.runner import Runner
from pydantic_ai_a2a.server.conversion.model_profiles import accepts
from pydantic_ai_a2a.server.conversion.output_mapper import OutputMapper
from pydantic_ai_a2a.server.runs.agent_job import AgentJob
from pydantic_ai_a2a.server.runs.messages_for_model import plain_read
from pydantic_ai_a2a.server.runs.worker import Worker
from pydantic_ai_a2a.server.store.ports import Claim, Finish
from pydantic_ai_a2a.server.store.sqlite.memory import MemoryBackend
from pydantic_ai_a2a.settings import Settings
from pydantic_ai_a2a.store import WrappedQueue

from ...app_client import LIMIT, Client, message, rpc, state_of
from ...logs import loop_errors
from ...serving import list_tasks, serving
from ...suites import values
from ..refusals import BASE_EXCEPTIONS


@pytest.mark.parametrize('raised', BASE_EXCEPTIONS)
@pytest.mark.parametrize('place', ['model', 'tool'])
async def test_base_exception_in_run_fails_only_its_task(place: str, raised: str) -> None:
    errors = [BASE_EXCEPTIONS[raised]()]

    async def fail_once(*_: Any) -> str:
        if errors:
            raise errors.pop()
        return 'fine'

    async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart(await fail_once())])

    async def look() -> str:
        return await fail_once()

    async with serving(Agent(FunctionModel(answer) if place == 'model' else TestModel(), tools=[look])) as client:
        failed = await client.send(message(contextId='c'))
        following = await client.send(message(contextId='c'))
    assert (state_of(failed), state_of(following)) == ('FAILED', 'COMPLETED')
    assert failed['status']['message']['metadata']['failure'] == 'internal'


def test_keyboard_interrupt_in_run_ends_event_loop() -> None:
    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise KeyboardInterrupt

    app = to_a2a(Agent(FunctionModel(answer)))
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(Client(app).send())
    del app
    gc.collect()  # asyncio logs now, and not in another test, that nobody has asked for the task's outcome


def test_backend_error_while_worker_stops_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(MemoryBackend):
        def listen(self, on_ready: Any, on_cancel: Any) -> Any:
            super().listen(on_ready, on_cancel)

            def stop() -> None:
                raise OSError('the network is gone')

            return stop

    app = to_a2a(Agent('test'), backend=Failing('agent', reader_lag=1000))
    task = asyncio.run(Client(app).send())
    assert state_of(task) == 'COMPLETED'
    assert [record.message for record in caplog.records if record.exc_info] == [
        'The worker failed while it stopped; its tasks run again once their leases expire.'
    ]


@pytest.mark.parametrize('error', [OSError, *BASE_EXCEPTIONS.values()], ids=['error', *BASE_EXCEPTIONS])
async def test_store_error_at_run_end_does_not_stop_worker(
    error: Callable[[], BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    class Breaking(WrappedQueue):
        async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
            if claim.header.context_id == 'broken':
                raise error()
            return await super().finish(claim, finish)

    backend = MemoryBackend('agent', reader_lag=1000)
    backend.queue = Breaking(backend.queue)
    with loop_errors() as told:
        async with serving(Agent(TestModel()), backend=backend) as client:
            await client.send(message(contextId='broken'), returnImmediately=True)
            assert state_of(await client.send()) == 'COMPLETED'
    assert told == []
    assert 'A task could not be stored; the worker tries again at the next heartbeat.' in caplog.messages


SETTINGS = Settings(
    access=Access(),
    approvals=Approvals(),
    limits=Limits(),
    messages=Messages(),
    push=None,
    results=Results(),
    retention=Retention(),
    workers=Workers(),
)


def worker_of(backend: MemoryBackend) -> Worker:
    job = AgentJob(
        backend,
        Runner(Agent(TestModel()), {}),
        read=plain_read(accepts({})),
        outputs=OutputMapper(str),
        settings=SETTINGS,
        refer=partial(read_referenced, accepts=accepts({}), size=0),
    )
    return Worker(backend, job, SETTINGS)


def strand_a_worker(backend: MemoryBackend) -> None:
    """Leave a worker behind whose event loop is closed."""

    async def start() -> None:
        await worker_of(backend).start()

    asyncio.run(start())


async def test_claimed_task_waits_while_worker_is_paused() -> None:
    backend = MemoryBackend('agent', reader_lag=1_000_000)
    worker = worker_of(backend)
    await worker.start()
    await values.submit(backend, values.message(new='t'))
    worker.hold_runs(True)
    for _ in range(100):
        await asyncio.sleep(0)
    assert await values.state_of(backend, 't') == 'working'
    worker.hold_runs(False)
    async with asyncio.timeout(LIMIT):
        await backend.events.wait('t', 1)
    assert await values.state_of(backend, 't') == 'completed'
    await worker.close()


async def test_worker_with_closed_event_loop_disturbs_no_other_worker() -> None:
    begun = asyncio.Event()

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError('unreachable')

    backend = MemoryBackend('agent', reader_lag=1_000_000)
    client = Client(to_a2a(Agent(FunctionModel(answer)), backend=backend))
    await asyncio.to_thread(strand_a_worker, backend)
    task = await client.send(returnImmediately=True)
    await begun.wait()
    await asyncio.to_thread(strand_a_worker, backend)
    queued = await client.send(message(contextId=task['contextId']), returnImmediately=True)
    await asyncio.to_thread(strand_a_worker, backend)
    for each in (queued, task):
        assert state_of(await client.call('CancelTask', {'id': each['id']})) == 'CANCELED'


async def test_list_tasks_with_zero_limit_is_refused() -> None:
    with pytest.raises(ValueError, match='limit must be at least 1, not 0'):
        await to_a2a(Agent(TestModel())).list_tasks(limit=0)


async def test_stream_broken_at_first_event_is_unsubscribed() -> None:
    backend = MemoryBackend('agent', reader_lag=1_000_000)
    body = rpc('SendStreamingMessage', {'message': message()})
    headers = [(b'content-type', b'application/json'), (b'a2a-version', b'1.0')]

    async def receive() -> dict[str, Any]:
        return {'type': 'http.request', 'body': body, 'more_body': False}

    async def send(part: Any) -> None:
        raise OSError('the client has gone')

    scope = {'type': 'http', 'method': 'POST', 'path': '/', 'query_string': b'', 'headers': headers, 'root_path': ''}
    async with serving(Agent(TestModel()), backend=backend) as client:
        with pytest.raises(OSError, match='the client has gone'):
            await client.app(scope, receive, send)
        [task] = await list_tasks(client)
        assert not backend.events.watched(task['id'])
