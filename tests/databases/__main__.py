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
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from pydantic_ai_a2a import A2AApp, Push, Retention, Workers, to_a2a
from pydantic_ai_a2a.server.store.sql.migrations import MIGRATIONS, newest

from ..app_client import Client, lifespan, message, state_of
from ..bounds import LIMIT
from ..constants import with_constants
from ..dialects import use_dialect
from ..postgres import StartedPostgres, postgres_server

AGES = timedelta(days=36_500)
RETENTION = Retention(tasks=AGES, waiting=AGES, contexts=AGES)
"""A hundred years: the tasks stay however old the stored database is."""
HOST = 'hooks.internal'
WEBHOOK = f'http://{HOST}:9/hook'


class Desk:
    """The agent whose tasks the stored databases hold: it repeats the prompts of its conversation.

    The prompt `look` begins with a tool that waits until the desk is open. The prompt `delete` begins with a tool that
    needs approval.
    """

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.looking = asyncio.Event()
        self.requests = 0
        self.hosts: list[str] = []
        """Hosts of webhooks that were looked up."""
        self.called = asyncio.Event()
        self.agent: Agent[object, Any] = Agent(FunctionModel(self._answer), name='desk')
        self.agent.tool_plain(self.look)
        self.agent.tool_plain(requires_approval=True)(self.delete)

    def app(self, backend: str) -> A2AApp:
        """Return the app that serves the agent over a backend. Webhooks have no addresses."""
        return to_a2a(
            self.agent,
            backend=backend,
            retention=RETENTION,
            workers=Workers(drain_grace=0.01),
            push=with_constants(Push, private_hosts=[HOST], resolve=self._resolve),
        )

    async def look(self) -> str:
        self.looking.set()
        await self.open.wait()
        return 'found'

    async def delete(self) -> str:
        return 'deleted'

    async def _resolve(self, host: str, port: int) -> list[str]:
        self.hosts.append(host)
        self.called.set()
        raise OSError

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.requests += 1
        parts = [part for message in messages for part in message.parts]
        prompts = [str(part.content) for part in parts if isinstance(part, UserPromptPart)]
        returned = [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]
        if prompts[-1] in ('look', 'delete') and not returned:
            return ModelResponse(parts=[ToolCallPart(prompts[-1])])
        return ModelResponse(parts=[TextPart(' + '.join([*prompts, *returned]))])


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


def postgres(server: StartedPostgres) -> str:
    """Return the SQL of a new PostgreSQL database."""
    url = server.url(server.create())
    asyncio.run(fill(url))
    program = server.program('pg_dump')
    command = [program, '--inserts', '--no-owner', '--no-privileges', '--no-comments', url]
    dumped = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=True).stdout
    return _PREAMBLE.sub('', dumped)


def main() -> int:
    with use_dialect('1.0'), tempfile.TemporaryDirectory() as folder, postgres_server() as server:
        stored('sqlite').write_text(sqlite(Path(folder)))
        stored('postgres').write_text(postgres(server))
    return 0


if __name__ == '__main__':
    sys.exit(main())
