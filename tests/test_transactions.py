"""Transactions of a task, counted: commits, round trips to PostgreSQL, and notifications of other processes."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import Postgres, to_a2a
from pydantic_ai_a2a.server.store.ports import Claim, Ending, Slot
from pydantic_ai_a2a.server.store.postgres.backend import PostgresBackend
from pydantic_ai_a2a.server.store.sqlite import connect as sqlite_connect

from .app_client import LIMIT, Client, lifespan, state_of
from .costs import PACKAGE, Work, counter_of_calls
from .costs import least as count_per_task
from .serving import running_app
from .suites import READER_LAG, values

STATEMENTS = {'plain': 6, 'structured': 6, 'tool': 15, 'stream': 9}
"""Of a SQLite file, with BEGIN and COMMIT, and without writes of several rows."""
COMMITS = {'plain': 2, 'structured': 2, 'tool': 4, 'stream': 3}
ROUND_TRIPS = {'plain': 2, 'structured': 2, 'tool': 4, 'stream': 3}
QUEUED = {
    'here: commits': 2,  # of the message, and of the read after the end
    'here: round trips': 4,
    'there: commits': 1,  # of the end of the task before, which begins this one
    'there: round trips': 2,
    'there: notifications': 1,  # of the end
}
"""A queued task: its client waits here, and it runs there. Without hints to idle workers, which tasks share."""
PAGE_ROUND_TRIPS = 4
"""BEGIN, the total, the tasks, and ROLLBACK."""
THREAD_CALLS = {'plain': 260, 'tool': 472}
"""Of functions of the package and of asyncpg, in Python."""
COUNTED = (PACKAGE, f'{asyncpg.__path__[0]}{os.sep}')


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    returned = any(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
    if info.output_tools:
        return ModelResponse(parts=[ToolCallPart('final_result', {'response': 7})])
    called = returned or not info.function_tools
    return ModelResponse(parts=[TextPart('The answer.') if called else ToolCallPart('look')])


async def delta(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    yield 'The answer.'


def agent_of(task: str) -> Agent[None, Any]:
    model = FunctionModel(answer, stream_function=delta) if task == 'stream' else FunctionModel(answer)
    agent: Agent[None, Any] = Agent(model, name='agent', output_type=int if task == 'structured' else str)

    def look() -> str:
        return 'found'

    if task == 'tool':
        agent.tool_plain(look)
    return agent


async def streamed(client: Client) -> None:
    """Send a message, and read the stream of a task with one delta."""
    async with client.send_streaming() as stream:
        assert len(await stream.rest()) > 2


async def sent(client: Client) -> None:
    assert state_of(await client.send()) == 'COMPLETED'


def task_of(task: str, client: Client) -> Work:
    return partial(streamed if task == 'stream' else sent, client)


@pytest.mark.parametrize('task', ['plain', 'structured', 'tool', 'stream'])
async def test_task_takes_few_sqlite_commits(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: Counter[str] = Counter()

    class Counting(sqlite3.Connection):
        def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
            counts[sql.partition(' ')[0]] += 1
            return super().execute(sql, *args)

    opened = sqlite3.connect

    def connecting(*args: Any, **options: Any) -> sqlite3.Connection:
        return opened(*args, **options, factory=Counting)

    monkeypatch.setattr(sqlite_connect.sqlite3, 'connect', connecting)
    async with running_app(agent_of(task), backend=f'sqlite:///{tmp_path / "tasks.db"}') as app:
        counted = await count_per_task(task_of(task, Client(app)), counts)
    assert counted['COMMIT'] <= COMMITS[task]
    del counted['PRAGMA']  # polls for writes of other processes
    assert counted.total() <= STATEMENTS[task]


class DatabaseCalls:
    """Counts the calls of this process to PostgreSQL, and those of its neighbours."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        self.neighbours: set[int] = set()
        """Threads of other processes: all that have spoken before `begin`."""
        self._begun = False
        for name in ('execute', 'fetch', 'fetchval', 'executemany'):
            monkeypatch.setattr(asyncpg.Connection, name, self._counted(getattr(asyncpg.Connection, name)))

    def begin(self) -> None:
        """Count the threads that come now as this process."""
        self._begun = True

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(connection: object, query: str, *args: Any, **options: Any) -> Any:
            if not self._begun:
                self.neighbours.add(threading.get_ident())
            place = 'there' if threading.get_ident() in self.neighbours else 'here'
            self.counts[f'{place}: round trips'] += 1
            self.counts[f'{place}: commits'] += query.endswith('COMMIT') or '.a2a_' in query
            self.counts[f'{place}: notifications'] += query.count('pg_notify')
            return method(connection, query, *args, **options)

        return call


@pytest.mark.parametrize('task', ['plain', 'structured', 'tool', 'stream'])
async def test_task_takes_few_postgres_round_trips_and_no_notifications(
    task: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = DatabaseCalls(monkeypatch)
    apart = Postgres(postgres_url, pool_size=3)  # with equal settings, both would share their connections
    neighbour = PostgresBackend(apart, 'agent', reader_lag=READER_LAG)
    monkeypatch.setattr(neighbour, 'place', 'another process')  # else only one of the two may run tasks here
    app = to_a2a(agent_of(task), backend=postgres_url)
    stop = neighbour.listen(lambda _: None, lambda _: None)
    await neighbour.queued()
    conversation.begin()
    async with lifespan(app), asyncio.timeout(LIMIT):
        counted = await count_per_task(task_of(task, Client(app)), conversation.counts)
    stop()
    for each in (neighbour, app.backend):
        await asyncio.to_thread(each.close)
    assert counted['here: commits'] <= COMMITS[task]
    assert counted['here: round trips'] <= ROUND_TRIPS[task]
    assert counted['here: notifications'] == 0
    assert counted['there: round trips'] == 0


async def test_queued_task_of_remote_client_takes_few_commits(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation, numbers, slot = DatabaseCalls(monkeypatch), count(), Slot('holder', values.LEASE)
    apart = (Postgres(postgres_url, pool_size=size) for size in (3, 4))  # equal settings would share connections
    here, there = (PostgresBackend(settings, 'agent', reader_lag=READER_LAG) for settings in apart)
    stops: list[Callable[[], object]] = []
    for backend in (there, here):
        monkeypatch.setattr(backend, 'place', f'process {len(stops)}')
        stops.append(backend.listen(lambda _: None, lambda _: None))
        if backend is there:
            await there.queued()
            conversation.begin()

    started = await values.submit(there, values.message(new='first', at=there.now()), slot=slot)
    assert started.claim is not None
    running: list[tuple[Claim, Ending]] = []

    async def queued() -> None:
        """Queue a task, end the one before, which begins this one, and wait for that end."""
        task_id = f'task {next(numbers)}'
        ending = here.events.expect(task_id)
        assert ending is not None
        await values.submit(here, replace(values.message(new=task_id, at=here.now()), logged=False))
        claim, before = running.pop() if running else (started.claim, None)
        assert claim is not None
        following = await there.queue.finish(claim, values.finish_of(claim, artifacts=[], slot=slot))
        assert following is not None
        running.append((following, ending))
        if before is not None:
            task = await before.wait(0)
            assert task is not None
            assert task.header.state == 'completed'
            before.close()

    async with asyncio.timeout(LIMIT):
        counted = await count_per_task(queued, conversation.counts)
    for end in (*stops, here.close, there.close):
        await asyncio.to_thread(end)
    ready = counted.pop('here: notifications', 0)
    counted['here: round trips'] -= ready
    assert {name: number for name, number in counted.items() if number > QUEUED[name]} == {}


async def test_queued_tasks_share_worker_notifications(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most one in 50 ms. The last one comes after the last task."""
    conversation = DatabaseCalls(monkeypatch)
    conversation.begin()
    backend = PostgresBackend(Postgres(postgres_url), 'agent', reader_lag=READER_LAG)
    await backend.queued()
    begin = time.monotonic()
    messages = [values.message(new=f'task {n}', at=backend.now()) for n in range(30)]
    async with asyncio.timeout(LIMIT):
        await asyncio.gather(*(values.submit(backend, message) for message in messages))
    await asyncio.to_thread(backend.close)
    assert 2 <= conversation.counts['here: notifications'] <= 2 + (time.monotonic() - begin) / 0.05


@pytest.mark.parametrize('task', ['plain', 'tool'])
async def test_task_takes_few_calls_in_postgres_connection_thread(task: str, postgres_url: str) -> None:
    counts: Counter[str] = Counter()

    threading.setprofile(counter_of_calls(counts, *COUNTED))  # of the threads that start from now on
    app = to_a2a(agent_of(task), backend=postgres_url)
    try:
        async with lifespan(app), asyncio.timeout(LIMIT):
            counted = await count_per_task(task_of(task, Client(app)), counts)
    finally:
        threading.setprofile(None)
    await asyncio.to_thread(app.backend.close)
    assert 0 < counted['calls'] <= THREAD_CALLS[task]


async def test_task_list_takes_constant_postgres_round_trips(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversation = DatabaseCalls(monkeypatch)
    conversation.begin()
    async with running_app(agent_of('plain'), backend=postgres_url) as app:
        client = Client(app)
        for number in (1, 20):
            while len((await client.call('ListTasks'))['tasks']) < number:
                await client.send()
            counted = await count_per_task(
                lambda: client.call('ListTasks', {'includeArtifacts': True}), conversation.counts
            )
            assert counted['here: round trips'] <= PAGE_ROUND_TRIPS
    await asyncio.to_thread(app.backend.close)
