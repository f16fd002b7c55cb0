"""A run whose process is killed goes on in another one from its last step."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from ...client import state_of, texts
from ...e2e.server import Process, process
from .test_durable_processes import Remote

Start: TypeAlias = Callable[[], AbstractContextManager[Process]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a server on the test's file, whose tasks are lost a second after it was killed."""
    env = {
        'A2A_TEST_BACKEND': f'sqlite:///{tmp_path}/agent.db',
        'A2A_TEST_LEDGER': str(tmp_path / 'ledger.txt'),
        'A2A_TEST_LEASE': '1.0',
    }

    @contextmanager
    def run() -> Generator[Process]:
        with process('-m', 'uvicorn', 'tests.behaviour.durable_steps:app', '--port', '0', env=env) as server:
            assert server.url
            yield server

    return run


async def kill(server: Process) -> None:
    server.signal(signal.SIGKILL)
    assert await server.ended() == -signal.SIGKILL


def stored(folder: Path, query: str) -> Any:
    """A value of the test's file."""
    database = sqlite3.connect(folder / 'agent.db')
    [[value]] = database.execute(query).fetchall()
    database.close()
    return value


async def test_a_run_that_was_killed_in_its_fourth_step_does_no_step_before_it_again(
    start: Start, tmp_path: Path
) -> None:
    with start() as server:
        remote = Remote(server)
        await remote.send('recall', contextId='c')
        task = await remote.send('stop at model-4', contextId='c', wait=False)
        await remote.gates.reached('model-4')
        async with remote.subscribe(task['id']) as stream:  # from now on the task has a log
            newest, _ = await anext(stream)
        await kill(server)
    with start() as server:
        remote = Remote(server)
        await remote.gates.open('model-4')
        async with remote.subscribe(task['id'], Last_Event_ID=f'{newest}') as stream:
            events = [event async for event in stream]
        done = await remote.call('GetTask', id=task['id'])
        assert texts(await remote.send('recall', contextId='c')) == ['recall + stop at model-4 + recall']
    assert (state_of(done), texts(done)) == ('COMPLETED', ['Step 5, done.'])
    assert [n for n, _ in events] == list(range(newest + 1, newest + len(events) + 1))
    notes = [event['statusUpdate']['status'].get('message') for _, event in events if 'statusUpdate' in event]
    assert [each['parts'][0]['text'] for each in notes if each] == ['Step 4, done.']
    begun = [line.split()[0] for line in (tmp_path / 'ledger.txt').read_text().splitlines()]
    assert begun[:7] == ['model-1', 'tool-1', 'model-2', 'tool-2', 'model-3', 'tool-3', 'model-4']
    assert begun[7:] == ['model-4', 'tool-4', 'model-5']
    usage = json.loads(stored(tmp_path, 'SELECT record FROM conversation'))['usage']
    assert (usage['requests'], usage['tool_calls']) == (1 + 5 + 1, 4)
    assert stored(tmp_path, 'SELECT COUNT(*) FROM entry') == 2 + 10 + 2
    assert stored(tmp_path, 'SELECT COUNT(*) FROM checkpoint') == 0


async def test_a_run_may_be_killed_several_times_and_its_tools_see_which_attempt_it_is(
    start: Start, tmp_path: Path
) -> None:
    with start() as server:
        remote = Remote(server)
        task_id = (await remote.send('stop at tool-2 model-4', wait=False))['id']
        await remote.gates.reached('tool-2')
        await kill(server)
    with start() as server:
        remote = Remote(server)
        await remote.gates.open('tool-2')
        await remote.gates.reached('model-4')
        await kill(server)
    with start() as server:
        remote = Remote(server)
        await remote.gates.open('model-4')
        assert texts(await remote.ended(task_id)) == ['Step 5, done.']
    lines = (tmp_path / 'ledger.txt').read_text().splitlines()
    assert [line for line in lines if 'tool' in line] == [
        f'tool-1 call-1 {task_id}.1 attempt 1',
        f'tool-2 call-2 {task_id}.1 attempt 1',
        f'tool-2 call-2 {task_id}.1 attempt 2',
        f'tool-3 call-3 {task_id}.1 attempt 2',
        f'tool-4 call-4 {task_id}.1 attempt 3',
    ]
    assert [line for line in lines if 'model' in line] == [f'model-{n}' for n in (1, 2, 3, 4, 4, 5)]
    usage = json.loads(stored(tmp_path, 'SELECT record FROM conversation'))['usage']
    assert (usage['requests'], usage['tool_calls']) == (5, 4)
