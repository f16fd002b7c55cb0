"""A store that cannot be reached for a while: clients are told to try again, and runs go on later."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from pydantic_ai_a2a import Workers
from pydantic_ai_a2a.backends.sqlite_file import SqliteFile, SqliteFileBackend
from pydantic_ai_a2a.errors import StoreUnavailable
from pydantic_ai_a2a.ports import Checkpoint, Claim, Finish, Status, TaskQueue
from pydantic_ai_a2a.testing import values
from pydantic_ai_a2a.types import TaskEvent

from ..client import LIMIT, message, rpc, state_of, texts
from ..dialects import unversioned
from .queues import InDoubt, Wrapped
from .rows import covers
from .stage import Stage, ended, heard, prompts, serving, told_in_log, told_to_loop

pytestmark = unversioned('where tasks are kept is below what versions differ in')
ROW = 'storage error in one task'
LATER = 3600.0
"""Seconds of a lease that no test waits for, nor for a heartbeat."""


class Away(Wrapped):
    """Cannot be reached when these methods are called for the first time."""

    def __init__(self, inner: TaskQueue, *methods: str) -> None:
        super().__init__(inner)
        self.fails = [*methods]

    def _reach(self, method: str) -> None:
        if method in self.fails:
            self.fails.remove(method)
            raise StoreUnavailable

    async def claim(self, holder: str, *, at: int, until: int, limit: int, task_id: str | None = None) -> list[Claim]:
        self._reach('claim')
        return await super().claim(holder, at=at, until=until, limit=limit, task_id=task_id)

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

    async def release(self, claim: Claim) -> None:
        self._reach('release')
        await super().release(claim)


def backend_in(folder: Path) -> SqliteFileBackend:
    file = SqliteFile(path=folder / 'agent.db', synchronous='normal', busy_timeout=0.01)
    return SqliteFileBackend(file, 'agent', reader_lag=10**6)


@covers(ROW)
@pytest.mark.parametrize('methods', [('emit',), ('finish',), ('finish', 'release')])
async def test_a_run_that_has_lost_its_store_goes_on_when_it_is_there_and_that_is_no_further_attempt(
    methods: Sequence[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend = backend_in(tmp_path)
    queue = backend.queue = Away(backend.queue, *methods)
    agent = Agent(TestModel(custom_output_text='one two three four'))
    async with serving(agent, backend=backend, workers=Workers(lease=0.3, attempts=1)) as client:
        async with client.send_streaming('hi') as stream:
            events = await stream.rest()
        task = await client.get_task(events[0].result['task']['id'])
    assert queue.fails == []
    assert (state_of(task), texts(task)) == ('COMPLETED', ['one two three four'])
    assert [event.id for event in events] == [*range(len(events))]
    assert f'Task {task["id"]} is handed back once its store can be reached again.' in caplog.messages
    backend.close()


@covers(ROW)
async def test_a_task_that_waits_for_a_slot_is_run_although_the_store_was_away_when_one_was_free(
    tmp_path: Path,
) -> None:
    backend, stage = backend_in(tmp_path), Stage()
    queue = backend.queue = Away(backend.queue)
    with told_to_loop() as told, told_in_log('Queued tasks could not be taken') as logged:
        async with serving(stage.agent, backend=backend, workers=Workers(running=1, lease=LATER)) as client:
            await client.send('one', returnImmediately=True)
            await stage.reached('one')
            task = await client.send('two', returnImmediately=True)
            queue.fails.append('claim')
            for name in ('one', 'two', 'three'):
                stage.open(name)
            assert await asyncio.to_thread(logged.wait, LIMIT)
            await client.send('three')
            assert state_of(await ended(client, task['id'])) == 'COMPLETED'
    assert told == []
    backend.close()


@covers(ROW)
async def test_what_was_lost_with_the_store_is_handed_back_before_a_server_ends(tmp_path: Path) -> None:
    backend = backend_in(tmp_path)
    queue = backend.queue = Away(backend.queue, 'finish')
    agent = Agent(FunctionModel(heard))
    async with serving(agent, backend=backend, workers=Workers(lease=LATER)) as client:
        with told_in_log('is handed back once') as told:
            task = await client.send('hi', returnImmediately=True)
            assert await asyncio.to_thread(told.wait, LIMIT)
    assert queue.fails == []
    async with serving(agent, backend=backend, workers=Workers(lease=LATER, attempts=1)) as client:
        assert texts(await ended(client, task['id'])) == ['hi']
    backend.close()


@covers(ROW)
async def test_what_could_not_be_handed_back_when_a_server_began_to_end_is_handed_back_at_last(tmp_path: Path) -> None:
    backend, stage = backend_in(tmp_path), Stage()
    queue = backend.queue = Away(backend.queue, 'release')
    async with serving(stage.agent, backend=backend, workers=Workers(lease=LATER)) as client:
        task = await client.send('hi', returnImmediately=True)
        await stage.reached('hi')
    assert queue.fails == []
    stage.open('hi')
    async with serving(stage.agent, backend=backend, workers=Workers(lease=LATER, attempts=1)) as client:
        assert texts(await ended(client, task['id'])) == ['hi']
    backend.close()


@covers(ROW)
async def test_a_failure_that_could_not_be_stored_is_before_a_server_ends(tmp_path: Path) -> None:
    def fail(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise RuntimeError('no')

    backend = backend_in(tmp_path)
    queue = backend.queue = Away(backend.queue, 'finish')
    async with serving(Agent(FunctionModel(fail)), backend=backend, workers=Workers(lease=LATER)) as client:
        with told_in_log('A task could not be stored') as told:
            task = await client.send('hi', returnImmediately=True)
            assert await asyncio.to_thread(told.wait, LIMIT)
    assert queue.fails == []
    assert await values.state_of(backend, task['id']) == 'failed'
    backend.close()


@covers(ROW)
@pytest.mark.parametrize('fails', [True, False], ids=['failed', 'completed'])
async def test_a_task_goes_on_although_nobody_knew_that_the_end_of_its_run_was_stored(
    fails: bool, tmp_path: Path
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if prompts(messages) == ['one']:
            begun.set()
            await go_on.wait()
            if fails:
                raise RuntimeError('no')
        return heard(messages, info)

    backend = backend_in(tmp_path)
    backend.queue = InDoubt(backend.queue)
    async with serving(Agent(FunctionModel(answer)), backend=backend, workers=Workers(lease=0.3)) as client:
        task = await client.send('one', returnImmediately=True)
        await begun.wait()
        await client.send(message('two', taskId=task['id']), returnImmediately=True)
        go_on.set()
        assert texts(await ended(client, task['id'])) == ['two' if fails else 'one + two']
    backend.close()


@covers(ROW)
async def test_a_client_is_told_to_try_again_while_others_lock_the_file(tmp_path: Path) -> None:
    backend, sent = backend_in(tmp_path), message('hi')
    async with serving(Agent(FunctionModel(heard)), backend=backend) as client:
        with closing(sqlite3.connect(tmp_path / 'agent.db', isolation_level=None)) as other:
            other.execute('BEGIN IMMEDIATE')
            refused = await client.post(rpc('SendMessage', {'message': sent}))
        task = await client.send(sent)
    assert (refused.status, refused.headers['retry-after']) == (503, '1')
    assert refused.json['error']['code'] == -32000
    assert refused.json['error']['message'] == 'The store cannot be reached now; try again later.'
    assert (state_of(task), texts(task)) == ('COMPLETED', ['hi'])
    backend.close()
