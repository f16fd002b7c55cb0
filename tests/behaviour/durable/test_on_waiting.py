"""The hook `on_waiting` in processes that are killed before, in and after its call."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from ...app_client import message
from ...dialects import in_no_version
from ..durable_processes import ServerClient, kill, poll_until, server_process

pytestmark = in_no_version('where tasks are kept is below what versions differ in')


class Servers:
    """Starts servers over one store, and reads their ledger."""

    def __init__(self, store: str, folder: Path) -> None:
        self._ledger = folder / 'ledger.txt'
        self._env = {'A2A_TEST_BACKEND': store, 'A2A_TEST_LEDGER': str(self._ledger), 'A2A_TEST_LEASE': '1.0'}

    def start(self) -> AbstractContextManager[ServerClient]:
        # Without a wait for the requests at gates that no call comes to.
        options = ('--timeout-graceful-shutdown', '1')
        return server_process('tests.behaviour.durable_waiting:app', *options, env=self._env)

    def calls(self) -> list[str]:
        """The calls of the hook that have begun, as lines of task, number and question."""
        return [line for line in self._lines() if not line.endswith(' is done')]

    def _lines(self) -> list[str]:
        return self._ledger.read_text().splitlines() if self._ledger.exists() else []

    async def deleted(self, task: dict[str, Any], number: int) -> None:
        """Wait until the store has no call for a pause."""

        async def is_done() -> bool:
            return f'{task["id"]} {number} is done' in self._lines()

        await poll_until(is_done)

    async def wait_for(self, *calls: str) -> None:
        """Wait until the ledger has exactly these calls."""

        async def told() -> bool:
            return len(self.calls()) >= len(calls)

        await poll_until(told)
        assert sorted(self.calls()) == sorted(calls)


@pytest.fixture(params=['file', 'postgres'])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Servers:
    file = f'sqlite:///{tmp_path}/agent.db'
    return Servers(file if request.param == 'file' else request.getfixturevalue('postgres_url'), tmp_path)


async def test_next_process_makes_missing_hook_call_after_kill(servers: Servers) -> None:
    with servers.start() as remote:
        task = await remote.send('die at run', wait=False)
        await remote.gates.reached('run')
        with suppress(httpx.HTTPError):  # the process may die before it has answered
            await remote.gates.open('run')
        await remote.server.ended()
        assert servers.calls() == []
    with servers.start():
        await servers.wait_for(f'{task["id"]} 1 die at run')


async def test_living_process_repeats_hook_call_of_killed_process(servers: Servers) -> None:
    with servers.start() as remote:
        task = await remote.send('stop at hook')
        call = f'{task["id"]} 1 stop at hook'
        await remote.gates.reached('hook')
        with servers.start() as other:
            await kill(remote.server)
            await other.gates.reached('hook')
            await servers.wait_for(call, call)  # the same task and number
            await other.gates.open('hook')
            await other.call('SendMessage', message=answer_to(task, 'next'))
            await servers.wait_for(call, call, f'{task["id"]} 2 next')


async def test_completed_hook_call_is_not_repeated_after_kill(servers: Servers) -> None:
    with servers.start() as remote:
        done = await remote.send('done')
        await servers.deleted(done, 1)
        waits = await remote.send('stop at hook')
        await remote.gates.reached('hook')
        await kill(remote.server)
    with servers.start() as remote:  # it takes what is left, and finds only the second call
        await remote.gates.reached('hook')
        repeated = f'{waits["id"]} 1 stop at hook'
        await servers.wait_for(f'{done["id"]} 1 done', repeated, repeated)


async def test_answered_pause_of_killed_process_calls_no_hook(servers: Servers) -> None:
    with servers.start() as remote:
        task = await remote.send('stop at hook')
        await remote.gates.reached('hook')
        await remote.call('SendMessage', message=answer_to(task, 'next'))
        first, second = f'{task["id"]} 1 stop at hook', f'{task["id"]} 2 next'
        await servers.deleted(task, 2)
        last = await remote.send('also at hook')
        await servers.wait_for(first, second, f'{last["id"]} 1 also at hook')
        await kill(remote.server)
    with servers.start():
        await servers.wait_for(first, second, *[f'{last["id"]} 1 also at hook'] * 2)


def answer_to(task: dict[str, Any], text: str) -> dict[str, Any]:
    return message(text, taskId=task['id'])
