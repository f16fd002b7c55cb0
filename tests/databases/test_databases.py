"""A database of every schema version, opened with today's code: its tasks are read, answered and run to their ends."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from ..app_client import LIMIT, Client, lifespan, message, state_of, texts
from ..behaviour.pending_calls import answer_message, approve, pending_calls
from ..dialects import use_dialect
from ..postgres import Postgres
from ..serving import wait_until_ended
from .__main__ import FOLDER, HOST, WEBHOOK, Desk, stored

REPAIR = 'the schema of a version that is not released has changed; run: python -m tests.databases'
VERSIONS = sorted({int(path.name.split('.')[0].removeprefix('version_')) for path in FOLDER.glob('version_*.sql')})
PROMPTS = {'one': 'COMPLETED', 'two': 'COMPLETED', 'delete': 'INPUT_REQUIRED', 'never': 'CANCELED'}
"""States of the stored tasks that nothing runs, by prompt. The tasks `look` and `three` run when a worker starts."""


@pytest.fixture(autouse=True)
def version_1_0() -> Iterator[None]:
    with use_dialect('1.0'):
        yield


async def execute(url: str, sql: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


@pytest.fixture(
    params=[(backend, version) for backend in ('sqlite', 'postgres') for version in VERSIONS],
    ids=lambda case: f'{case[0]}-{case[1]}',
)
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a copy of a stored database."""
    name, version = request.param
    sql = stored(name, version).read_text()
    if name == 'postgres':
        url: str = request.getfixturevalue('postgres_url')
        await execute(url, sql)
        return url
    with closing(sqlite3.connect(tmp_path / 'desk.db')) as connection:
        connection.executescript(sql)
    return f'sqlite:///{tmp_path}/desk.db'


async def tasks_by_prompt(client: Client) -> dict[str, dict[str, Any]]:
    found = (await client.call('ListTasks', {'includeArtifacts': True, 'historyLength': 100}))['tasks']
    return {task['history'][0]['parts'][0]['text']: task for task in found}


async def test_old_database_is_read_and_its_tasks_continue(backend: str) -> None:
    desk = Desk()
    desk.open.set()
    app = desk.app(backend)
    client = Client(app)
    async with lifespan(app), asyncio.timeout(LIMIT):
        tasks = await tasks_by_prompt(client)
        assert {*tasks} == {*PROMPTS, 'look', 'three'}
        assert {prompt: state_of(tasks[prompt]) for prompt in PROMPTS} == PROMPTS
        assert texts(tasks['one']) == ['one']
        assert texts(tasks['two']) == ['one + two']
        # The queued task continues the conversation, and its webhook is called.
        three = tasks['three']['id']
        assert texts(await wait_until_ended(client, three)) == ['one + two + three']
        configs = await client.call('ListTaskPushNotificationConfigs', {'taskId': three})
        assert [config['url'] for config in configs['configs']] == [WEBHOOK]
        await desk.called.wait()
        assert {*desk.hosts} == {HOST}
        # The interrupted task goes on at its checkpoint: the model is not asked again for the tool call.
        assert texts(await wait_until_ended(client, tasks['look']['id'])) == ['look + found']
        assert desk.requests == 2
        # The waiting task takes its approval.
        waiting = tasks['delete']
        assert [task.id for task, _ in await app.backend.reader.open_approvals('/', limit=9)] == [waiting['id']]
        [call] = pending_calls(waiting)
        assert texts(await client.send(answer_message(waiting, approve(call['id'])))) == ['delete + deleted']
        # New tasks continue the old conversation.
        four = await client.send(message('four', contextId='conversation'))
        assert texts(four) == ['one + two + three + four']
    await asyncio.to_thread(app.backend.close)


def schema_of_file(path: Path) -> set[tuple[str, str]]:
    """Return the tables, indexes and triggers of a SQLite file."""
    with closing(sqlite3.connect(path)) as connection:
        return {*connection.execute('SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL')}


async def test_newest_stored_sqlite_file_has_current_schema(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / 'stored.db')) as connection:
        connection.executescript(stored('sqlite').read_text())
    new = Desk().app(f'sqlite:///{tmp_path}/new.db')
    async with lifespan(new):
        pass
    await asyncio.to_thread(new.backend.close)
    assert schema_of_file(tmp_path / 'stored.db') == schema_of_file(tmp_path / 'new.db'), REPAIR


SCHEMA = """
SELECT format('%s.%s %s %s', table_name, column_name, data_type, is_nullable) FROM information_schema.columns
WHERE table_schema = 'a2a'
UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'a2a'
UNION ALL SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'a2a'::regnamespace
UNION ALL SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
"""


async def schema_of_database(url: str) -> set[str]:
    """Return the columns, indexes, functions and triggers of a PostgreSQL database."""
    connection = await asyncpg.connect(url)
    try:
        return {row[0] for row in await connection.fetch(SCHEMA)}
    finally:
        await connection.close()


async def test_newest_stored_postgres_database_has_current_schema(postgres: Postgres, postgres_url: str) -> None:
    await execute(postgres_url, stored('postgres').read_text())
    with postgres.database() as url:
        new = Desk().app(url)
        async with lifespan(new):
            pass
        await asyncio.to_thread(new.backend.close)
        assert await schema_of_database(postgres_url) == await schema_of_database(url), REPAIR
