"""Servers in processes of their own, their CPU time and their memory; the databases behind them. Linux only."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Unpack

from tests.postgres import DefaultPostgres, StartedPostgres, postgres_server

from .targets import Spec

ROOT = Path(__file__).parent.parent
_TICK = os.sysconf('SC_CLK_TCK')
_PAGE = resource.getpagesize()
_CORES = sorted(os.sched_getaffinity(0))
CLIENT_CORE, SERVER_CORE = _CORES[-1], _CORES[0]


def pin(pid: int, core: int) -> None:
    """Keep a process, and its later children, on a core: the client does not disturb the servers."""
    os.sched_setaffinity(pid, {core})


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of all threads of a process."""
    total = 0
    for path in Path(f'/proc/{pid}/task').glob('*/schedstat'):
        try:
            total += int(path.read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended
    return total / 1e9


def children(pid: int) -> list[int]:
    """Return the child processes of a process."""
    return [int(child) for child in Path(f'/proc/{pid}/task/{pid}/children').read_text().split()]


@dataclass(frozen=True)
class Served:
    """A server under test."""

    pid: int
    port: int

    def cpu(self) -> float:
        """Return the CPU seconds so far."""
        return cpu_of(self.pid)

    def memory(self) -> int:
        """Return the resident bytes."""
        return int(Path(f'/proc/{self.pid}/statm').read_text().split()[1]) * _PAGE


@contextmanager
def server(**spec: Unpack[Spec]) -> Iterator[Served]:
    """Run a server in a process of its own."""
    command = [sys.executable, '-m', 'benchmarks.targets', json.dumps(spec)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        pin(process.pid, SERVER_CORE)
        assert process.stdout is not None
        try:
            yield Served(process.pid, int(process.stdout.readline()))
        finally:
            process.terminate()


@dataclass
class Databases:
    """Makes empty databases."""

    folder: Path
    postgres: StartedPostgres
    _numbers: Iterator[int] = field(default_factory=count)

    def make(self, name: str) -> str:
        """Return the URL of a new database: `memory`, `normal`, `full` (both SQLite) or `postgres`."""
        if name == 'memory':
            return name
        if name == 'postgres':
            return self.postgres.url(self.postgres.create())
        return f'sqlite:///{self.folder}/{next(self._numbers)}.db?synchronous={name}'

    def postgres_cpu(self) -> float:
        """Return the CPU seconds of the PostgreSQL server so far, with those of its ended processes."""
        ended = Path(f'/proc/{self.postgres.pid}/stat').read_text().rpartition(') ')[2].split()[13:15]
        return sum(map(cpu_of, children(self.postgres.pid))) + sum(map(int, ended)) / _TICK

    def wal_bytes(self) -> int:
        """Return the position in the WAL of the PostgreSQL server."""
        return int(self.postgres.run("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")[0])


@contextmanager
def databases() -> Iterator[Databases]:
    """Provide databases for a block: files in a folder, and a PostgreSQL server with its default settings."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix='a2a-bench-'))
        postgres = stack.enter_context(postgres_server(DefaultPostgres))
        for pid in (postgres.pid, *children(postgres.pid)):
            pin(pid, SERVER_CORE)
        yield Databases(Path(folder), postgres)
