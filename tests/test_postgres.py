"""The PostgreSQL servers of the tests: that they start, restart, and end with whoever started them."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import sysconfig
import time
from os import getuid
from pathlib import Path
from pwd import getpwnam
from urllib.parse import unquote, urlsplit

import pytest

from .e2e.server import LIMIT, ROOT, process
from .postgres import ExternalPostgres, Postgres, postgres_server, shared_postgres


def test_database_is_empty_for_each_block(postgres: Postgres) -> None:
    names: list[str] = []
    for _ in range(2):
        with postgres.database() as url:
            name = urlsplit(url).path[1:]
            assert postgres.run(_EVERYTHING, name) == ['public|']
            postgres.run(f"ALTER DATABASE {name} SET search_path TO 'elsewhere'")
            postgres.run('CREATE TABLE public.t (n INTEGER); CREATE SCHEMA other; CREATE TABLE other.t ()', name)
            names.append(name)

    assert len({*names}) == 2
    assert postgres.run(f"SELECT 1 FROM pg_database WHERE datname IN ('{names[0]}', '{names[1]}')") == []
    with postgres.database() as url:
        assert postgres.run('SHOW search_path', urlsplit(url).path[1:]) == ['"$user", public']


_EVERYTHING = """
SELECT nspname, relname FROM pg_namespace n LEFT JOIN pg_class c ON c.relnamespace = n.oid
WHERE nspname NOT LIKE 'pg%' AND nspname <> 'information_schema'
"""


def test_schema_tables_are_kept_without_rows(postgres: Postgres) -> None:
    create = """
    CREATE TABLE kept.a2a_schema (version INTEGER);
    CREATE TABLE kept.t (n INTEGER GENERATED ALWAYS AS IDENTITY, text TEXT);
    CREATE TABLE kept.log (n INTEGER);
    CREATE FUNCTION kept.log() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO kept.log VALUES (OLD.n); RETURN OLD; END $$;
    CREATE TRIGGER deleted AFTER DELETE ON kept.t FOR EACH ROW EXECUTE FUNCTION kept.log();
    INSERT INTO kept.a2a_schema VALUES (1);
    """
    add = "INSERT INTO kept.t (text) VALUES ('row') RETURNING n"
    names: list[str] = []
    for statements in (f'CREATE SCHEMA kept; CREATE SCHEMA other; {create}', 'SELECT 1'):
        with postgres.database('kept') as url:
            name = urlsplit(url).path[1:]
            postgres.run(statements, name)
            assert postgres.run('SELECT version FROM kept.a2a_schema', name) == ['1']
            assert postgres.run('SELECT 1 FROM kept.log', name) == []
            assert postgres.run(add, name) == ['1']
            names.append(name)

    assert len({*names}) == 2
    with postgres.database('kept') as url:
        name = urlsplit(url).path[1:]
        assert postgres.run("SELECT 1 FROM pg_namespace WHERE nspname = 'other'", name) == []
        assert postgres.run('SELECT 1 FROM kept.t', name) == []


def test_committed_rows_survive_restart_and_kill() -> None:
    with postgres_server() as server:
        server.run('CREATE TABLE kept (n INTEGER)')
        for n, end in enumerate((server.stop, server.kill)):
            server.run(f'INSERT INTO kept VALUES ({n})')
            end()
            server.start()

        assert server.run('SELECT n FROM kept ORDER BY n') == ['0', '1']


def test_server_named_in_environment_is_used(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('A2A_TEST_POSTGRES', postgres.url())
    with shared_postgres() as given, given.database() as url:
        name = urlsplit(url).path[1:]
        assert postgres.run(f"SELECT 1 FROM pg_database WHERE datname = '{name}'") == ['1']
        assert given.run('SELECT current_database()', name) == [name]


def test_given_server_url_changes_only_database_and_user() -> None:
    server = ExternalPostgres('postgresql://me:secret@db.example:5433/app?sslmode=require')
    assert server.url('test_1') == 'postgresql://me:secret@db.example:5433/test_1?sslmode=require'
    assert server.url('test_1', 'ann', 'a b') == 'postgresql://ann:a%20b@db.example:5433/test_1?sslmode=require'


def test_server_starts_without_root() -> None:
    if getuid() != 0:
        pytest.skip('all other tests show it')
    nobody = getpwnam('nobody')

    def run(python: str, program: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python, '-B', '-c', program],
            user=nobody.pw_uid,
            group=nobody.pw_gid,
            extra_groups=[],
            cwd=ROOT,
            env={'PYTHONPATH': sysconfig.get_path('purelib')},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    def works(python: str) -> bool:
        """Whether it is where this user may look."""
        try:
            return not run(python, 'import tests.postgres').returncode
        except OSError:
            return False

    python = next(filter(works, (sys.executable, '/usr/bin/python3')), None)
    if python is None:
        pytest.skip('there is no Python that nobody may execute')
    program = "from tests.postgres import postgres_server as p\nwith p() as s: print(*s.run('SELECT 1'))"
    ran = run(python, program)
    assert (ran.stdout, ran.stderr) == ('1\n', '')


def test_server_ends_when_owner_process_dies() -> None:
    program = 'from tests.postgres import postgres_server as p\nwith p() as s: print(s.url(), flush=True); input()'
    with process('-c', f'import os, sys; sys.stdin = open(os.pipe()[0])\n{program}') as owner:
        folder = Path(unquote(owner.wait_for(r'host=(\S+?)&')[1]))
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(LIMIT)
            connection.connect(str(folder / '.s.PGSQL.5432'))
            owner.signal(signal.SIGKILL)
            owner.exit_code()

            assert connection.recv(1) == b''

    until = time.monotonic() + LIMIT
    while folder.exists():
        assert time.monotonic() < until
        time.sleep(0.01)
