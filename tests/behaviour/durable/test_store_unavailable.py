"""A store that cannot be reached for a while: clients are told to try again, and runs go on later."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from pydantic_ai_a2a import Workers
from pydantic_ai_a2a.errors import StoreUnavailable
from pydantic_ai_a2a.server.store.ports import Checkpoint, Claim, Finish, Status, TaskQueue
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile
from pydantic_ai_a2a.store import WrappedQueue
from pydantic_ai_a2a.types import TaskEvent

from ...agents import GatedAgent, echo_prompts, scripted_model, user_prompts
from ...app_client import LIMIT, message, rpc, state_of, texts
from ...dialects import in_no_version
from ...logs import log_event, loop_errors
from ...serving import serving, wait_until_ended
from ...suites import values
from ..faulty_queues import FinishInDoubt
from ..promised_behaviours import covers

pytestmark = in_no_version('where tasks are kept is below what versions differ in')
ROW = 'storage error in one task'
LATER = 3600.0
"""Seconds of a lease that no test waits for, nor for a heartbeat."""


class CountingAgent:
    """An agent that calls a tool and answers, and counts the requests to its model."""

    def __init__(self) -> None:
        self.requests = 0
        self.agent: Agent[object, str] = Agent(FunctionModel(self._answer, stream_function=self._stream))
        self.agent.tool_plain(self.look)

    def look(self) -> str:
        """Look."""
        return 'nothing'

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.requests += 1
        call = len(messages) == 1
        return ModelResponse(parts=[ToolCallPart('look', {}) if call else TextPart('one two three four')])

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        self.requests += 1
        if len(messages) == 1:
            yield {0: DeltaToolCall('look', '{}')}
        else:
            for word in ('one ', 'two ', 'three ', 'four'):
                yield word


class NotesShutdown(SqliteFileBackend):
    """Knows when its worker has stopped listening, which is when it gives up its runs."""

    ends = False

    def listen(
        self, on_ready: Callable[[str | None], object], on_cancel: Callable[[str], object]
    ) -> Callable[[], None]:
        stop = super().listen(on_ready, on_cancel)

        def end() -> None:
            self.ends = True
            stop()

        return end


class UnavailableQueue(WrappedQueue):
    """Is unavailable when these methods are called, as often as they are named; `finish` also while it `refuses`."""

    def __init__(self, inner: TaskQueue, *methods: str) -> None:
        super().__init__(inner)
        self.fails = [*methods]
        self.refuses: Callable[[], bool] = lambda: False

    def _reach(self, method: str) -> None:
        if method in self.fails:
            self.fails.remove(method)
            raise StoreUnavailable('the disk is full')
        if method == 'finish' and self.refuses():
            raise StoreUnavailable

    async def claim(self, *args: Any, **options: Any) -> list[Claim]:
        self._reach('claim')
        return await super().claim(*args, **options)

    async def emit(
        self,
        claim: Claim,
        events: Sequence[TaskEvent],
        status: Status | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self._reach('emit')
        await super().emit(claim, events, status, checkpoint)

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        self._reach('finish')
        return await super().finish(claim, finish)

    async def release(self, claim: Claim, *args: Any, **options: Any) -> None:
        self._reach('release')
        await super().release(claim, *args, **options)


def file_in(folder: Path) -> SqliteFile:
    return SqliteFile(path=folder / 'agent.db', synchronous='normal', busy_timeout=0.01)


def backend_in(folder: Path) -> SqliteFileBackend:
    return SqliteFileBackend(file_in(folder), 'agent', reader_lag=10**6)


@covers(ROW)
@pytest.mark.parametrize('method', ['emit', 'finish'])
async def test_run_waits_for_unavailable_store_without_repeats(
    method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend, counted = backend_in(tmp_path), CountingAgent()
    queue = backend.queue = UnavailableQueue(backend.queue, *[method] * 3)
    agent = counted.agent
    async with serving(agent, backend=backend, workers=Workers(lease=0.3, attempts=1)) as client:
        async with client.send_streaming('hi') as stream:
            events = await stream.rest()
        task = await client.get_task(events[0].result['task']['id'])
    assert (queue.fails, counted.requests) == ([], 2)
    assert (state_of(task), texts(task)) == ('COMPLETED', ['one two three four'])
    assert [event.id for event in events] == [*range(len(events))]
    told = f'The store is unavailable; task {task["id"]} continues once the store is available again: the disk is full'
    assert caplog.messages.count(told) == 1
    backend.close()


@covers(ROW)
async def test_queued_task_runs_after_a_failed_claim(
    tmp_path: Path,
) -> None:
    backend, gates = backend_in(tmp_path), GatedAgent()
    queue = backend.queue = UnavailableQueue(backend.queue)
    with loop_errors() as told, log_event('Queued tasks could not be claimed') as logged:
        async with serving(gates.agent, backend=backend, workers=Workers(running=1, lease=LATER)) as client:
            await client.send('one', returnImmediately=True)
            await gates.reached('one')
            task = await client.send('two', returnImmediately=True)
            queue.fails.append('claim')
            for name in ('one', 'two', 'three'):
                gates.open(name)
            assert await asyncio.to_thread(logged.wait, LIMIT)
            await client.send('three')
            assert state_of(await wait_until_ended(client, task['id'])) == 'COMPLETED'
    assert told == []
    backend.close()


@covers(ROW)
async def test_unstored_result_is_stored_at_shutdown(tmp_path: Path) -> None:
    backend, counted = NotesShutdown(file_in(tmp_path), 'agent', reader_lag=10**6), CountingAgent()
    backend.queue = queue = UnavailableQueue(backend.queue)
    queue.refuses = lambda: not backend.ends
    async with serving(counted.agent, backend=backend, workers=Workers(lease=LATER), drain_grace=0.01) as client:
        with log_event('continues once the store is available again') as told:
            task = await client.send('hi', returnImmediately=True)
            assert await asyncio.to_thread(told.wait, LIMIT)
    assert (await values.state_of(backend, task['id']), counted.requests) == ('completed', 2)
    backend.close()


@covers(ROW)
async def test_failed_release_is_repeated_at_shutdown(tmp_path: Path) -> None:
    backend, gates = backend_in(tmp_path), GatedAgent()
    queue = backend.queue = UnavailableQueue(backend.queue, 'release')
    async with serving(gates.agent, backend=backend, workers=Workers(lease=LATER), drain_grace=0.01) as client:
        task = await client.send('hi', returnImmediately=True)
        await gates.reached('hi')
    assert queue.fails == []
    gates.open('hi')
    async with serving(gates.agent, backend=backend, workers=Workers(lease=LATER, attempts=1)) as client:
        assert texts(await wait_until_ended(client, task['id'])) == ['hi']
    backend.close()


@covers(ROW)
async def test_unstored_failure_is_stored_at_shutdown(tmp_path: Path) -> None:
    backend = backend_in(tmp_path)
    queue = backend.queue = UnavailableQueue(backend.queue, 'finish')
    async with serving(
        Agent(scripted_model(RuntimeError('no'))), backend=backend, workers=Workers(lease=LATER)
    ) as client:
        with log_event('continues once the store is available again') as told:
            task = await client.send('hi', returnImmediately=True)
            assert await asyncio.to_thread(told.wait, LIMIT)
    assert queue.fails == []
    assert await values.state_of(backend, task['id']) == 'failed'
    backend.close()


@covers(ROW)
@pytest.mark.parametrize('fails', [True, False], ids=['failed', 'completed'])
async def test_queued_message_runs_after_end_stored_without_answer(fails: bool, tmp_path: Path) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if user_prompts(messages) == ['one']:
            begun.set()
            await go_on.wait()
            if fails:
                raise RuntimeError('no')
        return echo_prompts(messages, info)

    backend = backend_in(tmp_path)
    backend.queue = FinishInDoubt(backend.queue)
    async with serving(Agent(FunctionModel(answer)), backend=backend, workers=Workers(lease=0.3)) as client:
        task = await client.send('one', returnImmediately=True)
        await begun.wait()
        await client.send(message('two', taskId=task['id']), returnImmediately=True)
        go_on.set()
        assert texts(await wait_until_ended(client, task['id'])) == (['two'] if fails else ['one', 'one + two'])
    backend.close()


class Unanswered(WrappedQueue):
    """Stores the first end of a run, and answers no end until the worker stops."""

    def __init__(self, inner: TaskQueue, stops: Callable[[], bool]) -> None:
        super().__init__(inner)
        self.stored = False
        self._stops = stops

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        if self._stops():
            return await super().finish(claim, finish)
        if not self.stored:
            self.stored = True
            await super().finish(claim, finish)
        raise StoreUnavailable


async def test_shutdown_after_lost_store_answer_releases_next_run(tmp_path: Path) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def fail(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        begun.set()
        await go_on.wait()
        raise RuntimeError('no')

    backend = NotesShutdown(file_in(tmp_path), 'agent', reader_lag=10**6)
    queue = backend.queue = Unanswered(backend.queue, lambda: backend.ends)
    agent = Agent(FunctionModel(fail))
    async with serving(agent, backend=backend, workers=Workers(lease=LATER), drain_grace=0.01) as client:
        task = await client.send('one', returnImmediately=True)
        await begun.wait()
        await client.send(message('two', taskId=task['id']), returnImmediately=True)
        with log_event('continues once the store is available again') as told:
            go_on.set()
            assert await asyncio.to_thread(told.wait, LIMIT)
    assert queue.stored
    [claimed] = await values.claim_all(backend)
    assert (claimed.header.id, values.text_of_body(claimed.message)) == (task['id'], 'two')
    backend.close()


@covers(ROW)
async def test_send_to_locked_store_gets_503_with_retry_after(tmp_path: Path) -> None:
    backend, sent = backend_in(tmp_path), message('hi')
    async with serving(Agent(FunctionModel(echo_prompts)), backend=backend) as client:
        with closing(sqlite3.connect(tmp_path / 'agent.db', timeout=LIMIT, isolation_level=None)) as other:
            other.execute('BEGIN IMMEDIATE')
            refused = await client.post(rpc('SendMessage', {'message': sent}))
        task = await client.send(sent)
    assert (refused.status, refused.headers['retry-after']) == (503, '1')
    assert refused.json['error']['code'] == -32000
    assert refused.json['error']['message'] == 'The store cannot be reached now; try again later.'
    assert (state_of(task), texts(task)) == ('COMPLETED', ['hi'])
    backend.close()
