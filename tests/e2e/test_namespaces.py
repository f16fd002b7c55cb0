"""Several services over one store, in processes of their own: none gets what belongs to another."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from ..behaviour.durable_processes import ServerClient, server_process
from .server import ASYNCIO

TASKS = 10


def server(store: str, app: str) -> AbstractContextManager[ServerClient]:
    return server_process(f'tests.e2e.office_apps:{app}', '--factory', *ASYNCIO, env={'A2A_TEST_BACKEND': store})


def answer(task: dict[str, Any]) -> Any:
    [part] = task['artifacts'][0]['parts']
    return part.get('text') or part['data']


async def test_agents_in_shared_store_keep_tasks_apart(tmp_path: Path) -> None:
    with ExitStack() as stack:
        names = ['weather', 'joker'] * 2
        remotes = [stack.enter_context(server(f'sqlite:///{tmp_path}/office.db', f'of_{name}')) for name in names]
        tasks = await asyncio.gather(*(remote.send('hello') for remote in remotes for _ in range(TASKS)))
        assert [answer(task) for task in tasks] == [name for name in names for _ in range(TASKS)]
        for name, remote in zip(names, remotes, strict=True):
            listed = (await remote.call('ListTasks', includeArtifacts=True))['tasks']
            assert [answer(task) for task in listed] == [name] * 2 * TASKS


async def test_agent_versions_share_tasks_during_deploy(postgres_url: str) -> None:
    with ExitStack() as stack:
        apps = ('version_1', 'version_2', 'version_3')
        remotes = [stack.enter_context(server(postgres_url, app)) for app in apps]
        tasks = await asyncio.gather(*(remote.send('hello') for remote in remotes for _ in range(TASKS)))
        assert {str(answer(task)) for task in tasks} <= {'look', "{'result': {'sky': 'measure'}}"}
        assert len((await remotes[0].call('ListTasks'))['tasks']) == 3 * TASKS
    said = [[line for line in remote.server.output.splitlines() if 'namespace' in line] for remote in remotes]
    [warning] = said.pop()
    assert not any(said)
    assert "serves 'weather', and this one serves 'weather' with the skills 'measure'. Each runs" in warning
