"""Several services over one store, in processes of their own: none gets what belongs to another."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from ..behaviour.durable_processes import ServerClient, server_process
from .server import ASYNCIO, SERVERS, process

APPS = 'tests.e2e.office_apps'
TASKS = 10


@pytest.fixture(params=['file', 'postgres'])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f'sqlite:///{tmp_path}/office.db' if request.param == 'file' else request.getfixturevalue('postgres_url')


def server(store: str, app: str, *options: str) -> AbstractContextManager[ServerClient]:
    return server_process(f'{APPS}:{app}', '--factory', *(options or ASYNCIO), env={'A2A_TEST_BACKEND': store})


def answer(task: dict[str, Any]) -> Any:
    [part] = task['artifacts'][0]['parts']
    return part.get('text') or part['data']


@pytest.mark.parametrize(
    'arguments',
    [
        ('uvicorn', f'{APPS}:unnamed', '--factory', '--port', '0'),
        ('pydantic_ai_a2a', 'serve', f'{APPS}:weather', '--port', '0'),
        ('pydantic_ai_a2a', 'worker', f'{APPS}:weather'),
    ],
    ids=lambda arguments: ' '.join(arguments[:2]),
)
def test_unnamed_agent_is_not_served_over_store(store: str, arguments: tuple[str, ...]) -> None:
    named = () if arguments[0] == 'uvicorn' else ('--backend', store)
    with process('-m', *arguments, *named, env={'A2A_TEST_BACKEND': store}) as refused:
        assert refused.exit_code() != 0
    assert "Agent(…, name='weather'), to_a2a(name='weather') or Retention(namespace='weather')" in refused.output
    assert 'Uvicorn running' not in refused.output


@SERVERS
async def test_agents_in_shared_store_keep_tasks_apart(store: str, options: tuple[str, ...]) -> None:
    with ExitStack() as stack:
        names = ['weather', 'joker'] * 2
        remotes = [stack.enter_context(server(store, f'of_{name}', *options)) for name in names]
        tasks = await asyncio.gather(*(remote.send('hello') for remote in remotes for _ in range(TASKS)))
        assert [answer(task) for task in tasks] == [name for name in names for _ in range(TASKS)]
        for name, remote in zip(names, remotes, strict=True):
            listed = (await remote.call('ListTasks', includeArtifacts=True))['tasks']
            assert [answer(task) for task in listed] == [name] * 2 * TASKS


@SERVERS
async def test_agent_versions_share_tasks_during_deploy(store: str, options: tuple[str, ...]) -> None:
    with ExitStack() as stack:
        apps = ('version_1', 'version_2', 'version_3')
        remotes = [stack.enter_context(server(store, app, *options)) for app in apps]
        tasks = await asyncio.gather(*(remote.send('hello') for remote in remotes for _ in range(TASKS)))
        assert {str(answer(task)) for task in tasks} <= {'look', "{'result': {'sky': 'measure'}}"}
        assert len((await remotes[0].call('ListTasks'))['tasks']) == 3 * TASKS
    said = [[line for line in remote.server.output.splitlines() if 'namespace' in line] for remote in remotes]
    [warning] = said.pop()
    assert not any(said)
    assert "serves 'weather', and this one serves 'weather' with the skills 'measure'. Each runs" in warning


async def test_renamed_agent_keeps_tasks_by_namespace(store: str) -> None:
    with server(store, 'of_weather') as weather:
        await weather.send('hello')
    with server(store, 'of_joker') as joker:
        await asyncio.to_thread(joker.server.wait_for, "The namespace 'joker' has no data in .* of 'weather'")
        assert not (await joker.call('ListTasks'))['tasks']
    with server(store, 'renamed') as renamed:
        assert len((await renamed.call('ListTasks'))['tasks']) == 1
        assert renamed.server.output.count('namespace') == 0
