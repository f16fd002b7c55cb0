"""A container whose root file system is read-only, with a SQLite file in a volume."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Generator
from contextlib import contextmanager
from os import environ, geteuid
from pathlib import Path

import httpx
import pytest

from ..behaviour.durable_processes import ServerClient
from ..commands.command import with_store
from ..suites.values import message as stored_message
from ..suites.values import submit
from .server import LIMIT, ROOT, Process, process

LARGE = 'x' * 900_000
"""A few of these are more than SQLite sorts in memory by default."""


@pytest.fixture(scope='module', autouse=True)
def mounts() -> None:
    """Skip the tests where this process may mount nothing, but never in continuous integration."""
    if (sys.platform != 'linux' or geteuid()) and not environ.get('CI'):
        pytest.skip('only root on Linux can make its file systems read-only')


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    folder = tmp_path / 'the volume'
    folder.mkdir()
    return folder


@contextmanager
def container(volume: Path, *arguments: str, folder: str = '') -> Generator[Process]:
    env = {'A2A_TEST_BACKEND': f'sqlite:///{volume}/agent.db', 'A2A_TEST_FOLDER': folder, 'PYTHONPATH': str(ROOT)}
    script = ROOT / 'tests/e2e/read_only.py'
    with process(str(script), str(volume), '-m', *arguments, cwd=Path('/'), env=env, fork=False) as running:
        yield running


def commands(volume: Path, *arguments: str) -> str:
    """What a command writes in the container."""
    url = f'sqlite:///{volume}/agent.db'
    with container(volume, 'pydantic_ai_a2a', *arguments, '--backend', url, '--namespace', 'weather') as running:
        assert running.exit_code() == 0, running.output
    return running.output


async def readiness(remote: ServerClient) -> tuple[int, str]:
    async with httpx.AsyncClient(timeout=LIMIT) as http:
        answer = await http.get(f'{remote.url}health/ready')
    return answer.status_code, answer.json()['components']['backend']


async def test_server_and_commands_need_no_temporary_folder(volume: Path) -> None:
    with container(volume, 'uvicorn', 'tests.e2e.office_apps:of_weather', '--factory', '--port', '0') as server:
        remote = ServerClient(server)
        for text in 'abcde':
            await remote.send(text + LARGE, contextId='c')
        listed = await remote.call('ListTasks', historyLength=9, includeArtifacts=True)
        assert [task['history'][0]['parts'][0]['text'][0] for task in listed['tasks']] == [*'edcba']
        assert await readiness(remote) == (200, 'ok')
        assert not [line for line in server.complaints if 'Application' not in line]
    assert len(commands(volume, 'export', '--owner', '/').splitlines()) == 6
    large = (volume / 'agent.db').stat().st_size
    commands(volume, 'erase', '--owner', '/', '--yes', '--compact')
    assert (volume / 'agent.db').stat().st_size < large / 10
    assert {path.name for path in volume.iterdir()} <= {'agent.db', 'agent.db-wal', 'agent.db-shm'}


@pytest.mark.parametrize('there', [False, True], ids=['new', 'existing'])
async def test_read_only_volume_prevents_server_start(volume: Path, there: bool) -> None:
    if there:
        await asyncio.to_thread(
            with_store,
            lambda backend: submit(backend, stored_message(new='t')),
            f'sqlite:///{volume}/agent.db',
            'weather',
        )
    app = 'tests.e2e.office_apps:of_weather'
    with container(volume, 'uvicorn', app, '--factory', '--port', '0', folder='read-only') as server:
        assert await server.ended() == 3
    assert f'The SQLite file {volume}/agent.db cannot be used: ' in server.output
