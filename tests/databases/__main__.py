"""Writes the stored databases of the newest schema version: `python -m tests.databases`.

The files of a released version are never written again: they show that later versions of the package open them.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from pydantic_ai_a2a.store.sql.schema import MIGRATIONS, newest

from ..bounds import LIMIT
from ..client import Client, lifespan, message, state_of
from ..dialects import speaking
from ..postgres import OwnPostgres, postgres_server
from .agent import WEBHOOK, Desk

FOLDER = Path(__file__).parent
_PREAMBLE = re.compile(
    r'^(?:\\(?:un)?restrict .*|SET (?:\w+_timeout|default_\w+|row_security) .*|--.*|)\n', re.MULTILINE
)
"""Lines of `pg_dump` that older servers do not know, that differ from run to run, or that say nothing."""


def stored(backend: str, version: int = newest(MIGRATIONS)) -> Path:
    """Return the path of a stored database."""
    return FOLDER / f'version_{version}.{backend}.sql'


async def fill(backend: str) -> None:
    """Store a conversation of two tasks, and interrupted, waiting, cancelled and queued tasks; one has a webhook."""
    desk = Desk()
    app = desk.app(backend)
    client = Client(app)
    async with lifespan(app), asyncio.timeout(LIMIT):
        for text in ('one', 'two'):
            assert state_of(await client.send(message(text, contextId='conversation'))) == 'COMPLETED'
        assert state_of(await client.send('delete')) == 'INPUT_REQUIRED'
        await client.send('look', returnImmediately=True)
        await desk.looking.wait()
    await asyncio.to_thread(app.backend.close)
    app = Desk().app(backend)
    app.hosting.runs_tasks = False
    client = Client(app)
    async with lifespan(app), asyncio.timeout(LIMIT):
        cancelled = await client.send('never', returnImmediately=True)
        assert state_of(await client.call('CancelTask', {'id': cancelled['id']})) == 'CANCELED'
        webhook = {'id': 'webhook', 'url': WEBHOOK}
        three = message('three', contextId='conversation')
        await client.send(three, returnImmediately=True, taskPushNotificationConfig=webhook)
    await asyncio.to_thread(app.backend.close)


def sqlite(folder: Path) -> str:
    """Return the SQL of a new database file."""
    asyncio.run(fill(f'sqlite:///{folder}/desk.db'))
    with closing(sqlite3.connect(folder / 'desk.db')) as connection:
        return '\n'.join([*connection.iterdump(), ''])


def postgres(server: OwnPostgres) -> str:
    """Return the SQL of a new PostgreSQL database."""
    url = server.url(server.create())
    asyncio.run(fill(url))
    program = server.program('pg_dump')
    command = [program, '--inserts', '--no-owner', '--no-privileges', '--no-comments', url]
    dumped = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=True).stdout
    return _PREAMBLE.sub('', dumped)


def main() -> int:
    with speaking('1.0'), tempfile.TemporaryDirectory() as folder, postgres_server() as server:
        stored('sqlite').write_text(sqlite(Path(folder)))
        stored('postgres').write_text(postgres(server))
    return 0


if __name__ == '__main__':
    sys.exit(main())
