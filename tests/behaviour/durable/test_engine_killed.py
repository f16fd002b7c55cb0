"""Runs at an engine, whose servers are killed: what is done again, what clients read, and what a cancel ends."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from ...client import state_of, texts
from ...e2e.server import Process, process
from ...engines import need_dbos
from .test_checkpoints_killed import kill
from .test_durable_processes import Remote

Start: TypeAlias = Callable[[], AbstractContextManager[Process]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a server on the test's files, whose tasks are lost a second after it was killed."""
    need_dbos()
    env = {
        'A2A_TEST_BACKEND': f'sqlite:///{tmp_path}/agent.db',
        'A2A_TEST_ENGINE': f'sqlite:///{tmp_path}/dbos.db',
        'A2A_TEST_LEDGER': str(tmp_path / 'ledger.txt'),
        'A2A_TEST_LEASE': '1.0',
    }

    @contextmanager
    def run() -> Generator[Process]:
        with process('-m', 'uvicorn', 'tests.behaviour.durable_engine:app', '--port', '0', env=env) as server:
            assert server.url
            yield server

    return run


def ledger(folder: Path) -> list[str]:
    """What the models and tools have begun."""
    return [line.split()[0] for line in (folder / 'ledger.txt').read_text().splitlines()]


async def test_a_run_that_was_killed_several_times_repeats_only_the_steps_that_were_cut(
    start: Start, tmp_path: Path
) -> None:
    with start() as server:
        remote = Remote(server)
        await remote.send('recall', contextId='c')
        task_id = (await remote.send('stop at model-2 tool-3', contextId='c', wait=False))['id']
        await remote.gates.reached('model-2')
        await kill(server)
    with start() as server:
        remote = Remote(server)
        await remote.gates.open('model-2')
        await remote.gates.reached('tool-3')
        await kill(server)
    with start() as server:
        remote = Remote(server)
        await remote.gates.open('tool-3')
        done = await remote.ended(task_id)
        assert texts(await remote.send('recall', contextId='c')) == ['recall + stop at model-2 tool-3 + recall']
    assert texts(done) == ['Step 5, done.']
    steps = ['model-1', 'tool-1', 'model-2', 'model-2', 'tool-2', 'model-3', 'tool-3', 'tool-3', 'model-4', 'tool-4']
    assert ledger(tmp_path) == [*steps, 'model-5']


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
