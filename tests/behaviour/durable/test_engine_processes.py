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
from ...engines import TemporalSetup, lose_activities, skip_without_dbos
from ...sizes import short_or_long
from ..durable_processes import (
    ServerClient,
    expire_leases,
    holder_first,
    kill,
    pause,
    poll_until,
    server_process,
    wait_for,
)

PACKAGES = ('pydantic_ai.durable_exec.dbos', 'pydantic_ai.durable_exec.temporal')
Start: TypeAlias = Callable[..., AbstractContextManager[ServerClient]]


@pytest.fixture(params=['file', 'postgres'])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of what the test's servers share."""
    return f'sqlite:///{tmp_path}/agent.db' if request.param == 'file' else request.getfixturevalue('postgres_url')


@pytest.fixture
def start(store: str, tmp_path: Path) -> Start:
    """Starts a server on the test's store, whose tasks are lost a second after it was killed."""
    if store.startswith('sqlite:'):
        skip_without_dbos()
    env = {
        'A2A_TEST_BACKEND': store,
        'A2A_TEST_ENGINE': store.replace('agent.db', 'dbos.db'),
        'A2A_TEST_LEDGER': str(tmp_path / 'ledger.txt'),
    }

    def run(
        lease: float = 1.0, attempts: int = 20, cancel_grace: float = LIMIT
    ) -> AbstractContextManager[ServerClient]:
        env['A2A_TEST_LEASE'] = str(lease)
        env['A2A_TEST_CANCEL_GRACE'] = str(cancel_grace)
        env['A2A_TEST_ATTEMPTS'] = str(attempts)
        return server_process('tests.behaviour.durable_engine:app', env=env, packages=PACKAGES)

    return run


def ledger(folder: Path) -> list[str]:
    """What the models and tools have begun."""
    return [line.split()[0] for line in (folder / 'ledger.txt').read_text().splitlines()]


FILE = pytest.mark.parametrize('store', ['file'], indirect=True)
POSTGRES = pytest.mark.parametrize('store', ['postgres'], indirect=True)
STEPS = [f'{kind}-{n}' for n in range(1, 6) for kind in ('model', 'tool')][:-1]
POINTS = short_or_long(['model-2', 'tool-3'], STEPS)


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


@FILE
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


async def test_paused_server_leaves_run_to_its_successor(start: Start, store: str, tmp_path: Path) -> None:
    with start(lease=9.0) as one, start(lease=9.0) as two:
        task_id = (await one.send('stop at tool-2', wait=False))['id']
        first, second = await holder_first('tool-2', one, two)
        pause(first, tmp_path / 'agent.db', tmp_path / 'dbos.db')
        await expire_leases(store)
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


@POSTGRES
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


@FILE
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


@POSTGRES
async def test_cancel_during_server_pause_ends_workflow_on_resume(start: Start, tmp_path: Path) -> None:
    with start(lease=30.0) as first:
        task = await first.send('stop at tool-2', wait=False)
        await first.gates.reached('tool-2')
        with start(lease=30.0, cancel_grace=0.1) as server:
            pause(first, tmp_path / 'agent.db', tmp_path / 'dbos.db')
            assert state_of(await server.call('CancelTask', id=task['id'])) == 'CANCELED'
            first.server.signal(signal.SIGCONT)
        await wait_for(first, 'was taken over or has ended')
        assert await first.gates.stopped('tool-2')
    assert ledger(tmp_path) == ['model-1', 'tool-1', 'model-2', 'tool-2']


async def kill_at_cancel(remote: ServerClient, task_id: str, folder: Path) -> None:
    """Kill a server as soon as its store says that it has to cancel the task."""
    canceling = asyncio.create_task(remote.call('CancelTask', id=task_id))

    async def is_asked() -> bool:
        with closing(sqlite3.connect(folder / 'agent.db')) as file:
            return file.execute('SELECT 1 FROM task WHERE cancel_requested = 1').fetchone() is not None

    await poll_until(is_asked)
    await kill(remote.server)
    with pytest.raises(httpx.TransportError):
        await canceling


@FILE
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


class TemporalDeployment:
    """Servers and workers of one app."""

    def __init__(self, folder: Path, store: str, address: str) -> None:
        self.kit = TemporalSetup(folder, address)
        self.store = store
        self._folder = folder
        self._env = {
            'A2A_TEST_BACKEND': store,
            'A2A_TEST_TEMPORAL': address,
            'A2A_TEST_QUEUE': self.kit.queue,
            'A2A_TEST_LEDGER': str(folder / 'ledger.txt'),
            'A2A_TEST_LEASE': '1.0',
        }

    def server(self, **env: str) -> AbstractContextManager[ServerClient]:
        return server_process(APP, env={**self._env, **env}, packages=PACKAGES)

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


@pytest.fixture(params=['file'])
def temporal_deployment(request: pytest.FixtureRequest, tmp_path: Path, temporal: str) -> TemporalDeployment:
    """Servers and workers over the test's store: a SQLite file, or an indirect parameter."""
    file = request.param == 'file'
    store = f'sqlite:///{tmp_path}/agent.db' if file else request.getfixturevalue('postgres_url')
    return TemporalDeployment(tmp_path, store, temporal)


@pytest.mark.long
@pytest.mark.parametrize('temporal_deployment', ['postgres'], indirect=True)
async def test_temporal_run_continues_while_servers_are_killed(temporal_deployment: TemporalDeployment) -> None:
    task_id, points = '', short_or_long([1, 2], [0, 1, 2, 3, 4])
    for n in points:
        temporal_deployment.close(f'tool-{n}')
    with ExitStack() as stack:
        for n in points:  # in this tool, and at 0 as soon as the task is sent
            with temporal_deployment.server() as server:
                if not task_id:
                    stack.enter_context(temporal_deployment.worker(tool_seconds=short_or_long(0, 15)))
                    task_id = (await server.send('go', contextId='c', wait=False))['id']
                async with server.subscribe(task_id) as events:  # the later servers attach to a running workflow
                    while n and f'"Tool {n}."' not in json.dumps(await anext(events)):
                        pass
                await kill(server.server)
            temporal_deployment.open(f'tool-{n}')
        await temporal_deployment.over(f'{task_id}.1')
        assert await temporal_deployment.kit.workflows() == {f'{task_id}.1': 'done'}
        with temporal_deployment.server() as last:  # attaches to a workflow that has ended
            done = await last.ended(task_id)
            recalled = await last.send('recall', contextId='c')
    assert (texts(done), texts(recalled)) == (['Step 5, done.'], ['go + recall'])
    assert temporal_deployment.ledger == STEPS
    # Each server reads the whole stream of the workflow, and stores each note of a tool once.
    said = [part['text'] for each in done['history'] for part in each['parts']]
    assert [text for text in said if text.startswith('Tool ')] == ['Tool 1.', 'Tool 2.', 'Tool 3.', 'Tool 4.']


@pytest.mark.long
async def test_next_temporal_worker_repeats_only_interrupted_step(temporal_deployment: TemporalDeployment) -> None:
    gates = [f'tool-{n}' for n in short_or_long([2], [1, 2, 3, 4])]
    steps = [again for step in STEPS for again in [step] * (1 + (step in gates))]
    rounds = short_or_long(1, 3)
    with temporal_deployment.server() as server:
        for n in range(rounds):
            task_id = ''
            for gate in gates:
                temporal_deployment.close(gate)
            for gate in gates:
                with temporal_deployment.worker() as worker:
                    task_id = task_id or (await server.send('go', contextId=f'c{n}', wait=False))['id']
                    await temporal_deployment.found(f'{gate}.reached')
                    await kill(worker)
                    await lose_activities(temporal_deployment.kit.address, task_id)
                temporal_deployment.open(gate)
            with temporal_deployment.worker():
                assert texts(await server.ended(task_id)) == ['Step 5, done.']
    assert temporal_deployment.ledger == steps * rounds


async def test_cancel_ends_temporal_workflow_and_tool(temporal_deployment: TemporalDeployment) -> None:
    temporal_deployment.close('tool-2')
    with temporal_deployment.server(A2A_TEST_CANCEL_GRACE=str(LIMIT)) as server, temporal_deployment.worker():
        task = await server.send('go', contextId='c', wait=False)
        await temporal_deployment.found('tool-2.reached')
        canceled = await server.call('CancelTask', id=task['id'])
        await temporal_deployment.found('tool-2.stopped')
        assert texts(await server.send('recall', contextId='c')) == ['go + recall']
        assert [*(await temporal_deployment.kit.workflows()).values()] == ['done', 'done']
    assert state_of(canceled) == 'CANCELED'
    assert temporal_deployment.ledger == STEPS[:4]


async def test_cancel_survives_kill_before_workflow_starts(
    temporal_deployment: TemporalDeployment, tmp_path: Path
) -> None:
    for gate in ('start', 'tool-1'):
        temporal_deployment.close(gate)
    with temporal_deployment.worker():
        with temporal_deployment.server() as server:
            task = await server.send('go', wait=False)
            await temporal_deployment.found('start.reached')
            await kill_at_cancel(server, task['id'], tmp_path)
        temporal_deployment.open('start')
        with temporal_deployment.server() as server:
            assert state_of(await server.ended(task['id'])) == 'CANCELED'
            await temporal_deployment.over(f'{task["id"]}.1')
        assert await temporal_deployment.kit.workflows() == {f'{task["id"]}.1': 'done'}


async def test_server_paused_at_start_leaves_workflow_to_successor(
    temporal_deployment: TemporalDeployment, tmp_path: Path
) -> None:
    for gate in ('start', 'tool-1'):
        temporal_deployment.close(gate)
    with temporal_deployment.worker(), temporal_deployment.server(A2A_TEST_LEASE='9.0') as first:
        task_id = (await first.send('go', wait=False))['id']
        await temporal_deployment.found('start.reached')
        pause(first, tmp_path / 'agent.db')
        await expire_leases(temporal_deployment.store)
        temporal_deployment.open('start')
        with temporal_deployment.server(A2A_TEST_LEASE='9.0') as second:
            await temporal_deployment.found('tool-1.reached')
            first.server.signal(signal.SIGCONT)
            await wait_for(first, f'Task {task_id} was taken over or has ended')
            temporal_deployment.open('tool-1')
            assert texts(await second.ended(task_id)) == ['Step 5, done.']
        assert await temporal_deployment.kit.workflows() == {f'{task_id}.1': 'done'}
    assert temporal_deployment.ledger == STEPS


async def test_worker_command_exits_when_temporal_worker_fails(
    temporal_deployment: TemporalDeployment, tmp_path: Path
) -> None:
    with temporal_deployment.server() as server, temporal_deployment.worker() as worker:
        assert texts(await server.send('recall')) == ['recall']
        (tmp_path / 'fail').touch()
        assert await worker.ended() == 1
        last = worker.output.splitlines()[-1]
    assert last == 'Error: the worker of the engine has failed: Poll failure.'
    assert 'Traceback' not in worker.output
