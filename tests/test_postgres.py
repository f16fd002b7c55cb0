"""The PostgreSQL servers of the tests: that they start, restart, and end with whoever started them."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .e2e.server import LIMIT, process
from .postgres import Postgres, postgres_server


def test_each_database_is_empty_and_gone_after_its_block(postgres: Postgres) -> None:
    with postgres.database() as url:
        name = urlsplit(url).path[1:]
        assert postgres.run("SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'", name) == ['0']

    assert postgres.run(f"SELECT 1 FROM pg_database WHERE datname = '{name}'") == []


def test_what_was_committed_outlives_a_restart_and_a_kill() -> None:
    with postgres_server() as server:
        server.run('CREATE TABLE kept (n INTEGER)')
        for n, end in enumerate((server.stop, server.kill)):
            server.run(f'INSERT INTO kept VALUES ({n})')
            end()
            server.start()

        assert server.run('SELECT n FROM kept ORDER BY n') == ['0', '1']


def test_a_server_ends_with_the_process_that_started_it() -> None:
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
