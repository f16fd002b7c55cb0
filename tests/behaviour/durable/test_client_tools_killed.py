"""The tools of a message hold in every process that runs its task."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from pydantic_ai_a2a.conversion.schemas import CLIENT_TOOLS_URI

from ...client import state_of, texts
from ...e2e.server import Process, process
from ..asking import asked, result, tool
from .test_durable_processes import Remote

STOPPED = ('TASK_STATE_INPUT_REQUIRED', 'TASK_STATE_COMPLETED')
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
        with process('-m', 'uvicorn', 'tests.behaviour.durable_declaring:app', '--port', '0', env=env) as server:
            assert server.url
            yield server

    return run


async def answer(remote: Remote, task: dict[str, Any], value: Any, *, wait: bool = True) -> dict[str, Any]:
    """Answer the only call of a task."""
    [call] = asked(task)
    data = {'callAnswers': [result(call, value)]}
    return await remote.send('', wait=wait, parts=[{'data': data}], taskId=task['id'])


async def stopped(remote: Remote, task_id: str) -> dict[str, Any]:
    """The task once it waits or is over."""
    async with remote.subscribe(task_id) as events:
        async for _, event in events:
            if event.get('statusUpdate', event.get('task', {})).get('status', {}).get('state') in STOPPED:
                break
    return await remote.call('GetTask', id=task_id)


async def test_the_tools_of_a_task_survive_a_killed_run_a_pause_and_a_killed_run_after_the_answer(
    start: Start, tmp_path: Path
) -> None:
    declared = {CLIENT_TOOLS_URI: {'tools': [tool(), tool('fetch')]}}
    with start() as server:
        remote = Remote(server)
        task_id = (await remote.send('go', wait=False, metadata=declared))['id']
        await remote.gates.reached('step-0')
        server.signal(signal.SIGKILL)
    with start() as server:
        remote = Remote(server)
        await remote.gates.open('step-0')
        waiting = await stopped(remote, task_id)
        server.signal(signal.SIGKILL)
    with start() as server:
        remote = Remote(server)
        await answer(remote, waiting, 'hit', wait=False)
        await remote.gates.reached('step-1')
        server.signal(signal.SIGKILL)
    with start() as server:
        remote = Remote(server)
        await remote.gates.open('step-1')
        waiting = await stopped(remote, task_id)
        await remote.gates.open('step-2')
        done = await answer(remote, waiting, 'page')
    assert (state_of(done), texts(done)) == ('COMPLETED', ['hit + page'])
    assert (tmp_path / 'ledger.txt').read_text().splitlines() == [
        'step-0 fetch,search',
        'step-0 fetch,search',
        'step-1 fetch,search',
        'step-1 fetch,search',
        'step-2 fetch,search',
    ]
