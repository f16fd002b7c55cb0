"""Full disks, and PostgreSQL that fails over or cancels statements: runs wait and are not repeated."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import asyncpg
import pytest

from pydantic_ai_a2a import Postgres, Workers
from pydantic_ai_a2a.server.store.postgres.backend import PostgresBackend

from ...app_client import LIMIT, state_of, texts
from ...dialects import in_no_version
from ...e2e.venvs import missing
from ...logs import log_event
from ...postgres import StartedPostgres, postgres_server
from ...serving import serving, wait_until_ended
from ...suites import READER_LAG
from ..promised_behaviours import covers
from ..waiting_tool import WaitingToolAgent, readiness, refused_by_store, wait_until_ready

pytestmark = in_no_version('where tasks are kept is below what versions differ in')
ROW = 'storage error in one task'


class Outage(ABC):
    """A store that a test makes unavailable.

    Args:
        backend: The store, as `to_a2a` takes it.
    """

    readiness = 'read-only'
    """The state of the backend meanwhile, which the server tells."""

    def __init__(self, backend: str | Postgres) -> None:
        self.backend = backend

    @abstractmethod
    async def begin(self) -> None:
        """Let every write fail that needs room, or all of them."""

    @abstractmethod
    async def end(self) -> None:
        """Let writes succeed again."""


class SmallFileSystem(Outage):
    """A tmpfs that another file fills: SQLite and PostgreSQL get ENOSPC."""

    def __init__(self, backend: str | Postgres, folder: Path) -> None:
        super().__init__(backend)
        self._filler = folder / 'filler'

    async def begin(self) -> None:
        with self._filler.open('wb', buffering=0) as filler, suppress(OSError):
            while True:
                filler.write(bytes(1024))
        assert not os.statvfs(self._filler).f_bavail

    async def end(self) -> None:
        self._filler.unlink()


class FileSizeLimit(Outage):
    """RLIMIT_FSIZE of this process, which needs no rights: SQLite gets EFBIG."""

    async def begin(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))

    async def end(self) -> None:
        self.lift()

    def lift(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class Failover(Outage):
    """A PostgreSQL server that is a standby until it is promoted."""

    def __init__(self, server: StartedPostgres) -> None:
        super().__init__(Postgres(server.url(), acquire_timeout=2))
        self._server = server

    async def begin(self) -> None:
        await asyncio.to_thread(self._server.become_standby)

    async def end(self) -> None:
        await asyncio.to_thread(self._server.promote)


class RenamedSchema(Outage):
    """A database whose tables are somewhere else."""

    readiness = 'failed'

    def __init__(self, url: str) -> None:
        super().__init__(Postgres(url))
        self._url = url

    async def begin(self) -> None:
        await self._rename('a2a', 'elsewhere')

    async def end(self) -> None:
        await self._rename('elsewhere', 'a2a')

    async def _rename(self, old: str, new: str) -> None:
        operator = await asyncpg.connect(self._url)
        await operator.execute(f'ALTER SCHEMA {old} RENAME TO {new}')
        await operator.close()


@contextmanager
def _mounted(folder: Path, size: int) -> Generator[None]:
    """Mount a tmpfs on the folder, for the folder's owner. Where a process may not mount one, CI fails."""
    owner = folder.stat()
    options = f'size={size},uid={owner.st_uid},gid={owner.st_gid}'
    mount = ['mount', '-t', 'tmpfs', '-o', options, 'tmpfs', str(folder)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        missing('this process may not mount a tmpfs; only SQLite is tested, with a limit of the size of files')
    try:
        yield
    finally:
        subprocess.run(['umount', '--lazy', str(folder)], check=True)


@contextmanager
def file_on_small_disk(request: pytest.FixtureRequest) -> Generator[Outage]:
    """A SQLite file on a tmpfs."""
    folder: Path = request.getfixturevalue('tmp_path')
    with _mounted(folder, 2_000_000):
        yield SmallFileSystem(f'sqlite:///{folder}/agent.db', folder)


@contextmanager
def file_of_limited_size(request: pytest.FixtureRequest) -> Generator[Outage]:
    """A SQLite file in a process that may not make files longer."""
    limited = FileSizeLimit(f'sqlite:///{request.getfixturevalue("tmp_path")}/agent.db')
    yield limited
    limited.lift()


@contextmanager
def full_tablespace(_: pytest.FixtureRequest) -> Generator[Outage]:
    """A PostgreSQL database in a tablespace on a tmpfs; the server's other files are elsewhere."""
    with postgres_server() as server:
        folder = server.make_folder('tablespace')
        with _mounted(folder, 32_000_000):
            server.run(f"CREATE TABLESPACE small LOCATION '{folder}'")
            server.run('CREATE DATABASE agent TEMPLATE template0 TABLESPACE small')
            yield SmallFileSystem(Postgres(server.url('agent'), acquire_timeout=2), folder)


@contextmanager
def failover(_: pytest.FixtureRequest) -> Generator[Outage]:
    with postgres_server() as server:
        yield Failover(server)


@contextmanager
def renamed_schema(request: pytest.FixtureRequest) -> Generator[Outage]:
    yield RenamedSchema(request.getfixturevalue('postgres_url'))


DISKS = [file_on_small_disk, file_of_limited_size, full_tablespace]


@pytest.fixture(params=[*DISKS, failover, renamed_schema])
def outage(request: pytest.FixtureRequest) -> Iterator[Outage]:
    with request.param(request) as made:
        yield made


@covers(ROW)
async def test_run_continues_after_store_outage_without_repeats(outage: Outage) -> None:
    clerk = WaitingToolAgent()
    async with serving(clerk.agent, backend=outage.backend, workers=Workers(lease=0.3, attempts=1)) as client:
        task = await client.send('hi', returnImmediately=True)
        await clerk.reached.wait()
        await outage.begin()
        with log_event('The store is unavailable; task') as waiting:
            clerk.go_on.set()
            assert await asyncio.to_thread(waiting.wait, LIMIT)
        assert await refused_by_store(client) == (503, '1', -32000)
        for _ in range(2):
            assert await readiness(client) == (503, outage.readiness)
        await outage.end()
        done = await wait_until_ended(client, task['id'])
        await wait_until_ready(client)
        assert state_of(await client.send('hi')) == 'COMPLETED'
    assert (state_of(done), texts(done)) == ('COMPLETED', ['booked'])
    assert (clerk.requests, clerk.calls) == (4, 2)


@covers(ROW)
@pytest.mark.parametrize('outage', DISKS, indirect=True)
async def test_full_disk_makes_idle_server_unready(outage: Outage) -> None:
    clerk = WaitingToolAgent()
    async with serving(clerk.agent, backend=outage.backend) as client:
        for _ in range(2):
            assert await readiness(client) == (200, 'ok')
        await outage.begin()
        assert await refused_by_store(client) == (503, '1', -32000)
        assert await readiness(client) == (503, 'read-only')
        await outage.end()
        await wait_until_ready(client)


@covers(ROW)
async def test_repeated_statement_timeouts_make_a_dead_letter(postgres_url: str) -> None:
    clerk = WaitingToolAgent()
    backend = PostgresBackend(Postgres(postgres_url, statement_timeout=2), 'agent', reader_lag=READER_LAG)
    async with serving(clerk.agent, backend=backend, workers=Workers(lease=0.3)) as client:
        task = await client.send('hi', returnImmediately=True)
        await clerk.reached.wait()
        locking = await asyncpg.connect(postgres_url)
        await locking.execute('BEGIN')
        await locking.execute('SELECT 1 FROM a2a.task FOR UPDATE')
        with log_event(f'Task {task["id"]} failed (storage') as failed:
            clerk.go_on.set()
            assert await asyncio.to_thread(failed.wait, LIMIT)
        await locking.close()
        dead = await wait_until_ended(client, task['id'])
        [letter] = await backend.housekeeping.dead_letters()
        retried = await backend.housekeeping.retry(task['id'], new_id='again', at=backend.now())
        done = await wait_until_ended(client, retried.id)
    assert (state_of(dead), dead['status']['message']['metadata']['failure']) == ('FAILED', 'storage')
    assert (letter.task_id, letter.failure, letter.attempts) == (task['id'], 'storage', 1)
    assert (state_of(done), texts(done)) == ('COMPLETED', ['booked'])
    assert clerk.calls == 2  # what the tool returned could not be stored
    backend.close()
