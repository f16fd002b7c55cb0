"""Runs at an engine, whose servers or workers are killed: what is done again, what clients read, what a cancel ends."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import TypeAlias

import httpx
import pytest

from ...app_client import state_of, texts
from ...e2e.server import LIMIT, Process, process
from ...engines import TemporalKit, lose_activities, need_dbos
from ...long import size
from ..durable_processes import Remote, kill, started, stop, until, wait_for, where

PACKAGES = ('pydantic_ai.durable_exec.dbos', 'pydantic_ai.durable_exec.temporal')
Start: TypeAlias = Callable[..., AbstractContextManager[Remote]]


@pytest.fixture(params=['file', 'postgres'])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Start:
    """Starts a server on the test's store, whose tasks are lost a second after it was killed."""
    if request.param == 'file':
        need_dbos()
    database = f'sqlite:///{tmp_path}/agent.db' if request.param == 'file' else request.getfixturevalue('postgres_url')
    env = {
        'A2A_TEST_BACKEND': database,
        'A2A_TEST_ENGINE': database.replace('agent.db', 'dbos.db'),
        'A2A_TEST_LEDGER': str(tmp_path / 'ledger.txt'),
    }

    def run(lease: float = 1.0, attempts: int = 20, cancel_grace: float = LIMIT) -> AbstractContextManager[Remote]:
        env['A2A_TEST_LEASE'] = str(lease)
        env['A2A_TEST_CANCEL_GRACE'] = str(cancel_grace)
        env['A2A_TEST_ATTEMPTS'] = str(attempts)
        return started('tests.behaviour.durable_engine:app', env=env, packages=PACKAGES)

    return run


def ledger(folder: Path) -> list[str]:
    """What the models and tools have begun."""
    return [line.split()[0] for line in (folder / 'ledger.txt').read_text().splitlines()]


STEPS = [f'{kind}-{n}' for n in range(1, 6) for kind in ('model', 'tool')][:-1]
POINTS = size(['model-2', 'tool-3'], STEPS)


@pytest.mark.long
async def test_killed_run_repeats_only_interrupted_steps(start: Start, tmp_path: Path) -> None:
    task_id, opened = '', list[str]()
    for point in [*POINTS, '']:
        with start() as remote:
            task_id = task_id or (await remote.send(f'stop at {" ".join(POINTS)}', contextId='c', wait=False))['id']
            for gate in opened[-1:]:
                await remote.gates.open(gate)
            if point:
                await remote.gates.reached(point)
                opened.append(point)
                await kill(remote.server)
            else:
                done = await remote.ended(task_id)
                answer = await remote.send('recall', contextId='c')
                assert (texts(done), texts(answer)) == (['Step 5, done.'], [f'stop at {" ".join(POINTS)} + recall'])
    assert ledger(tmp_path) == [again for step in STEPS for again in [step] * (1 + (step in POINTS))]


async def test_run_killing_every_server_becomes_dead_letter(start: Start, tmp_path: Path) -> None:
    task_id = ''
    for _ in range(2):
        with start(attempts=2) as remote:
            task_id = task_id or (await remote.send('stop at tool-1', wait=False))['id']
            await remote.gates.reached('tool-1')
            await kill(remote.server)
    with start(attempts=2) as remote:
        dead = await remote.ended(task_id)
    assert dead['status']['message']['metadata']['failure'] == 'attempts'
    assert ledger(tmp_path) == ['model-1', 'tool-1', 'tool-1']


async def test_paused_server_leaves_run_to_its_successor(start: Start, tmp_path: Path) -> None:
    with start() as one, start() as two:
        task_id = (await one.send('stop at tool-2', wait=False))['id']
        first, second = await where('tool-2', one, two)
        stop(first, tmp_path / 'agent.db', tmp_path / 'dbos.db')
        await second.gates.reached('tool-2')
        first.server.signal(signal.SIGCONT)
        await wait_for(first, 'was taken over or has ended')
        await second.gates.open('tool-2')
        assert texts(await second.ended(task_id)) == ['Step 5, done.']
        assert texts(await first.ended(task_id)) == ['Step 5, done.']
    assert [step for step in ledger(tmp_path) if step != 'tool-2'] == [
        'model-1', 'tool-1', 'model-2', 'model-3', 'tool-3', 'model-4', 'tool-4', 'model-5'
    ]  # fmt: skip
    assert ledger(tmp_path).count('tool-2') == 2


async def test_run_continues_after_server_shutdown(start: Start, tmp_path: Path) -> None:
    with start() as remote:
        task_id = (await remote.send('stop at tool-2', wait=False))['id']
        await remote.gates.reached('tool-2')
        remote.server.signal(signal.SIGTERM)
        await remote.server.ended()
    with start() as remote:
        await remote.gates.open('tool-2')
        assert texts(await remote.ended(task_id)) == ['Step 5, done.']
    assert ledger(tmp_path).count('tool-2') == 2
    assert len(ledger(tmp_path)) == 10


async def test_canceled_run_keeps_messages_and_never_resumes(start: Start, tmp_path: Path) -> None:
    with start() as remote:
        task = await remote.send('stop at tool-2', contextId='c', wait=False)
        await remote.gates.reached('tool-2')
        canceled = await remote.call('CancelTask', id=task['id'])
        assert texts(await remote.send('recall', contextId='c')) == ['stop at tool-2 + recall']
    assert state_of(canceled) == 'CANCELED'
    with start() as remote:  # nothing goes on
        assert state_of(await remote.call('GetTask', id=task['id'])) == 'CANCELED'
    assert ledger(tmp_path) == ['model-1', 'tool-1', 'model-2', 'tool-2']


async def test_cancel_during_server_pause_ends_workflow_on_resume(start: Start, tmp_path: Path) -> None:
    with start(lease=30.0) as first:
        task = await first.send('stop at tool-2', wait=False)
        await first.gates.reached('tool-2')
        with start(lease=30.0, cancel_grace=0.1) as server:
            stop(first, tmp_path / 'agent.db', tmp_path / 'dbos.db')
            assert state_of(await server.call('CancelTask', id=task['id'])) == 'CANCELED'
            first.server.signal(signal.SIGCONT)
        await wait_for(first, 'was taken over or has ended')
        assert await first.gates.stopped('tool-2')
    assert ledger(tmp_path) == ['model-1', 'tool-1', 'model-2', 'tool-2']


async def kill_at_cancel(remote: Remote, task_id: str, folder: Path) -> None:
    """Kill a server as soon as its store says that it has to cancel the task."""
    canceling = asyncio.create_task(remote.call('CancelTask', id=task_id))

    async def is_asked() -> bool:
        with closing(sqlite3.connect(folder / 'agent.db')) as file:
            return file.execute('SELECT 1 FROM task WHERE cancel_requested = 1').fetchone() is not None

    await until(is_asked)
    await kill(remote.server)
    with pytest.raises(httpx.TransportError):
        await canceling


@pytest.mark.parametrize('start', ['file'], indirect=True)
async def test_cancel_survives_kill_before_workflow_is_stored(start: Start, tmp_path: Path) -> None:
    with start() as remote, closing(sqlite3.connect(tmp_path / 'dbos.db', isolation_level=None)) as file:
        file.execute('BEGIN EXCLUSIVE')
        task = await remote.send('stop at tool-1', wait=False)
        await kill_at_cancel(remote, task['id'], tmp_path)
    with start() as remote:
        assert state_of(await remote.ended(task['id'])) == 'CANCELED'
        assert await remote.gates.stopped('tool-1') or ledger(tmp_path) in ([], ['model-1'])


# --- servers and workers of Temporal ---------------------------------------------------------------------------------


APP = 'tests.behaviour.durable_temporal:app'


class Fleet:
    """Servers and workers of one app."""

    def __init__(self, folder: Path, store: str, address: str) -> None:
        self.kit = TemporalKit(folder, address)
        self.store = store
        self._folder = folder
        self._env = {
            'A2A_TEST_BACKEND': store,
            'A2A_TEST_TEMPORAL': address,
            'A2A_TEST_QUEUE': self.kit.queue,
            'A2A_TEST_LEDGER': str(folder / 'ledger.txt'),
            'A2A_TEST_LEASE': '1.0',
        }

    def server(self, **env: str) -> AbstractContextManager[Remote]:
        return started(APP, env={**self._env, **env}, packages=PACKAGES)

    @contextmanager
    def worker(self, name: str = 'Steps', *, tool_seconds: int = 0) -> Generator[Process]:
        env = {**self._env, 'A2A_TEST_NAME': name, 'A2A_TEST_TOOL_SECONDS': str(tool_seconds)}
        with process('-m', 'pydantic_ai_a2a', 'worker', '--engine', APP, env=env, packages=PACKAGES) as worker:
            worker.wait_for('the worker runs the workflows of')
            yield worker

    def close(self, gate: str) -> None:
        (self._folder / f'{gate}.closed').touch()
        for before in ('reached', 'opened'):
            (self._folder / f'{gate}.{before}').unlink(missing_ok=True)

    def open(self, gate: str) -> None:
        (self._folder / f'{gate}.opened').touch()

    async def found(self, name: str) -> None:
        """Wait for a file of a gate."""
        end = time.monotonic() + LIMIT
        while not (self._folder / name).exists():
            assert time.monotonic() < end, name
            await asyncio.sleep(0.01)

    async def over(self, workflow: str) -> None:
        """Wait until a workflow is over."""
        async with asyncio.timeout(LIMIT):
            while (await self.kit.workflows())[workflow] == 'open':  # noqa: ASYNC110 - its result lies in the store
                await asyncio.sleep(0.05)

    @property
    def ledger(self) -> list[str]:
        return ledger(self._folder)


@pytest.fixture(params=['file', 'postgres'])
def fleet(request: pytest.FixtureRequest, tmp_path: Path, temporal: str) -> Fleet:
    file = request.param == 'file'
    store = f'sqlite:///{tmp_path}/agent.db' if file else request.getfixturevalue('postgres_url')
    return Fleet(tmp_path, store, temporal)


FILE = pytest.mark.parametrize('fleet', ['file'], indirect=True)


@pytest.mark.long
async def test_temporal_run_continues_while_servers_are_killed(fleet: Fleet) -> None:
    task_id, points = '', size([1, 2], [0, 1, 2, 3, 4])
    for n in points:
        fleet.close(f'tool-{n}')
    with ExitStack() as stack:
        for n in points:  # in this tool, and at 0 as soon as the task is sent
            with fleet.server() as server:
                if not task_id:
                    stack.enter_context(fleet.worker(tool_seconds=size(0, 15)))
                    task_id = (await server.send('go', contextId='c', wait=False))['id']
                async with server.subscribe(task_id) as events:  # the later servers attach to a running workflow
                    while n and f'"Tool {n}."' not in json.dumps(await anext(events)):
                        pass
                await kill(server.server)
            fleet.open(f'tool-{n}')
        await fleet.over(f'{task_id}.1')
        assert await fleet.kit.workflows() == {f'{task_id}.1': 'done'}
        with fleet.server() as last:  # attaches to a workflow that has ended
            done = await last.ended(task_id)
            recalled = await last.send('recall', contextId='c')
    assert (texts(done), texts(recalled)) == (['Step 5, done.'], ['go + recall'])
    assert fleet.ledger == STEPS
    # Each server reads the whole stream of the workflow, and stores each note of a tool once.
    said = [part['text'] for each in done['history'] for part in each['parts']]
    assert [text for text in said if text.startswith('Tool ')] == ['Tool 1.', 'Tool 2.', 'Tool 3.', 'Tool 4.']


@pytest.mark.long
async def test_next_temporal_worker_repeats_only_interrupted_step(fleet: Fleet) -> None:
    gates = [f'tool-{n}' for n in size([2], [1, 2, 3, 4])]
    steps = [again for step in STEPS for again in [step] * (1 + (step in gates))]
    rounds = size(1, 3)
    with fleet.server() as server:
        for n in range(rounds):
            task_id = ''
            for gate in gates:
                fleet.close(gate)
            for gate in gates:
                with fleet.worker() as worker:
                    task_id = task_id or (await server.send('go', contextId=f'c{n}', wait=False))['id']
                    await fleet.found(f'{gate}.reached')
                    await kill(worker)
                    await lose_activities(fleet.kit.address, task_id)
                fleet.open(gate)
            with fleet.worker():
                assert texts(await server.ended(task_id)) == ['Step 5, done.']
    assert fleet.ledger == steps * rounds


@FILE
async def test_cancel_ends_temporal_workflow_and_tool(fleet: Fleet) -> None:
    fleet.close('tool-2')
    with fleet.server(A2A_TEST_CANCEL_GRACE=str(LIMIT)) as server, fleet.worker():
        task = await server.send('go', contextId='c', wait=False)
        await fleet.found('tool-2.reached')
        canceled = await server.call('CancelTask', id=task['id'])
        await fleet.found('tool-2.stopped')
        assert texts(await server.send('recall', contextId='c')) == ['go + recall']
        assert [*(await fleet.kit.workflows()).values()] == ['done', 'done']
    assert state_of(canceled) == 'CANCELED'
    assert fleet.ledger == STEPS[:4]


@FILE
async def test_cancel_survives_kill_before_workflow_starts(fleet: Fleet, tmp_path: Path) -> None:
    for gate in ('start', 'tool-1'):
        fleet.close(gate)
    with fleet.worker():
        with fleet.server() as server:
            task = await server.send('go', wait=False)
            await fleet.found('start.reached')
            await kill_at_cancel(server, task['id'], tmp_path)
        fleet.open('start')
        with fleet.server() as server:
            assert state_of(await server.ended(task['id'])) == 'CANCELED'
            await fleet.over(f'{task["id"]}.1')
        assert await fleet.kit.workflows() == {f'{task["id"]}.1': 'done'}


@FILE
async def test_server_paused_at_start_leaves_workflow_to_successor(fleet: Fleet, tmp_path: Path) -> None:
    for gate in ('start', 'tool-1'):
        fleet.close(gate)
    with fleet.worker(), fleet.server() as first:
        task_id = (await first.send('go', wait=False))['id']
        await fleet.found('start.reached')
        stop(first, tmp_path / 'agent.db')
        fleet.open('start')
        with fleet.server() as second:
            await fleet.found('tool-1.reached')
            first.server.signal(signal.SIGCONT)
            await wait_for(first, f'Task {task_id} was taken over or has ended')
            fleet.open('tool-1')
            assert texts(await second.ended(task_id)) == ['Step 5, done.']
        assert await fleet.kit.workflows() == {f'{task_id}.1': 'done'}
    assert fleet.ledger == STEPS


@FILE
async def test_worker_command_exits_when_temporal_worker_fails(fleet: Fleet, tmp_path: Path) -> None:
    with fleet.server() as server, fleet.worker() as worker:
        assert texts(await server.send('recall')) == ['recall']
        (tmp_path / 'fail').touch()
        assert await worker.ended() == 1
        last = worker.output.splitlines()[-1]
    assert last == 'Error: the worker of the engine has failed: Poll failure.'
    assert 'Traceback' not in worker.output
