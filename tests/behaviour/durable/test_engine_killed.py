"""Runs at an engine, whose servers are killed: what is done again, what clients read, and what a cancel ends."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from ...client import state_of, texts
from ...e2e.server import Process, process
from ...engines import need_dbos
from ...long import size
from .test_checkpoints_killed import kill
from .test_durable_processes import Remote, stop, where

PACKAGES = ('pydantic_ai.durable_exec.dbos', 'pydantic_ai.durable_exec.temporal')
Start: TypeAlias = Callable[..., AbstractContextManager[Process]]


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

    @contextmanager
    def run(lease: float = 1.0) -> Generator[Process]:
        env['A2A_TEST_LEASE'] = str(lease)
        app = 'tests.behaviour.durable_engine:app'
        with process('-m', 'uvicorn', app, '--port', '0', env=env, packages=PACKAGES) as server:
            assert server.url
            yield server

    return run


def ledger(folder: Path) -> list[str]:
    """What the models and tools have begun."""
    return [line.split()[0] for line in (folder / 'ledger.txt').read_text().splitlines()]


POINTS = size(['model-2', 'tool-3'], [f'{kind}-{n}' for n in range(1, 6) for kind in ('model', 'tool')][:-1])


@pytest.mark.long
async def test_a_run_that_was_killed_several_times_repeats_only_the_steps_that_were_cut(
    start: Start, tmp_path: Path
) -> None:
    task_id, opened = '', list[str]()
    for point in [*POINTS, '']:
        with start() as server:
            remote = Remote(server)
            task_id = task_id or (await remote.send(f'stop at {" ".join(POINTS)}', contextId='c', wait=False))['id']
            for gate in opened[-1:]:
                await remote.gates.open(gate)
            if point:
                await remote.gates.reached(point)
                opened.append(point)
                await kill(server)
            else:
                done = await remote.ended(task_id)
                answer = await remote.send('recall', contextId='c')
                assert (texts(done), texts(answer)) == (['Step 5, done.'], [f'stop at {" ".join(POINTS)} + recall'])
    steps = [f'{kind}-{n}' for n in range(1, 6) for kind in ('model', 'tool')][:-1]
    assert ledger(tmp_path) == [again for step in steps for again in [step] * (1 + (step in POINTS))]


async def test_a_server_that_was_stopped_for_a_while_leaves_its_run_to_the_server_that_took_over(
    start: Start, tmp_path: Path
) -> None:
    with start() as stopped, start() as server:
        remotes = [Remote(stopped), Remote(server)]
        task_id = (await remotes[0].send('stop at tool-2', wait=False))['id']
        first, second = await where('tool-2', *remotes)
        first.server.stop()
        await second.gates.reached('tool-2')
        first.server.signal(signal.SIGCONT)
        await asyncio.to_thread(first.server.wait_for, 'was taken over or has ended')
        await second.gates.open('tool-2')
        assert texts(await second.ended(task_id)) == ['Step 5, done.']
        assert texts(await first.ended(task_id)) == ['Step 5, done.']
    assert [step for step in ledger(tmp_path) if step != 'tool-2'] == [
        'model-1', 'tool-1', 'model-2', 'model-3', 'tool-3', 'model-4', 'tool-4', 'model-5'
    ]  # fmt: skip
    assert ledger(tmp_path).count('tool-2') == 2


async def test_a_server_that_is_shut_down_leaves_its_runs_to_the_next(start: Start, tmp_path: Path) -> None:
    with start() as server:
        remote = Remote(server)
        task_id = (await remote.send('stop at tool-2', wait=False))['id']
        await remote.gates.reached('tool-2')
        server.signal(signal.SIGTERM)
        await server.ended()
    with start() as server:
        remote = Remote(server)
        await remote.gates.open('tool-2')
        assert texts(await remote.ended(task_id)) == ['Step 5, done.']
    assert ledger(tmp_path).count('tool-2') == 2
    assert len(ledger(tmp_path)) == 10


async def test_a_cancel_ends_a_run_and_its_tool_at_once_and_keeps_its_messages(start: Start, tmp_path: Path) -> None:
    with start() as server:
        remote = Remote(server)
        task = await remote.send('stop at tool-2', contextId='c', wait=False)
        await remote.gates.reached('tool-2')
        canceled = await remote.call('CancelTask', id=task['id'])
        assert texts(await remote.send('recall', contextId='c')) == ['stop at tool-2 + recall']
    assert state_of(canceled) == 'CANCELED'
    with start() as server:  # nothing goes on
        assert state_of(await Remote(server).call('GetTask', id=task['id'])) == 'CANCELED'
    assert ledger(tmp_path) == ['model-1', 'tool-1', 'model-2', 'tool-2']


async def test_a_task_that_is_cancelled_while_its_server_is_stopped_ends_the_workflow_once_the_server_goes_on(
    start: Start, tmp_path: Path
) -> None:
    with start(lease=30.0) as stopped:
        first = Remote(stopped)
        task = await first.send('stop at tool-2', wait=False)
        await first.gates.reached('tool-2')
        with start(lease=30.0) as server:
            stop(first, tmp_path / 'agent.db')
            assert state_of(await Remote(server).call('CancelTask', id=task['id'])) == 'CANCELED'
            stopped.signal(signal.SIGCONT)
        await asyncio.to_thread(stopped.wait_for, 'was taken over or has ended')
        assert await first.gates.stopped('tool-2')
    assert ledger(tmp_path) == ['model-1', 'tool-1', 'model-2', 'tool-2']
