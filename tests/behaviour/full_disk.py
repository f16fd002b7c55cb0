"""Stores whose disk is full for a while: on a small tmpfs, and below a limit of a file's size."""

from __future__ import annotations

import os
import resource
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pydantic_ai_a2a import Postgres

from ..e2e.venvs import missing
from ..postgres import postgres_server

__all__ = ('Disk', 'disk')


class Disk(ABC):
    """The disk of a store, which a test fills.

    Args:
        backend: The store, as `to_a2a` takes it.
    """

    def __init__(self, backend: str | Postgres) -> None:
        self.backend = backend

    @abstractmethod
    def fill(self) -> None:
        """Let every write fail that needs room."""

    @abstractmethod
    def free(self) -> None:
        """Let writes succeed again."""


class SmallFileSystem(Disk):
    """A tmpfs that another file fills: SQLite and PostgreSQL get ENOSPC."""

    def __init__(self, backend: str | Postgres, folder: Path) -> None:
        super().__init__(backend)
        self._filler = folder / 'filler'

    def fill(self) -> None:
        with self._filler.open('wb', buffering=0) as filler, suppress(OSError):
            while True:
                filler.write(bytes(1024))
        assert not os.statvfs(self._filler).f_bavail

    def free(self) -> None:
        self._filler.unlink()


class FileSizeLimit(Disk):
    """RLIMIT_FSIZE of this process, which needs no rights: SQLite gets EFBIG."""

    def fill(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))

    def free(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


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
def file_on_small_disk(folder: Path) -> Generator[Disk]:
    """A SQLite file on a tmpfs."""
    with _mounted(folder, 2_000_000):
        yield SmallFileSystem(f'sqlite:///{folder}/agent.db', folder)


@contextmanager
def file_of_limited_size(folder: Path) -> Generator[Disk]:
    """A SQLite file in a process that may not make files longer."""
    limited = FileSizeLimit(f'sqlite:///{folder}/agent.db')
    yield limited
    limited.free()


@contextmanager
def full_tablespace(_: Path) -> Generator[Disk]:
    """A PostgreSQL database in a tablespace on a tmpfs; the server's other files are elsewhere."""
    with postgres_server() as server:
        folder = server.make_folder('tablespace')
        with _mounted(folder, 32_000_000):
            server.run(f"CREATE TABLESPACE small LOCATION '{folder}'")
            server.run('CREATE DATABASE agent TEMPLATE template0 TABLESPACE small')
            yield SmallFileSystem(Postgres(server.url('agent'), acquire_timeout=2), folder)


@pytest.fixture(params=[file_on_small_disk, file_of_limited_size, full_tablespace])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """Each kind of disk."""
    with request.param(tmp_path) as made:
        yield made
