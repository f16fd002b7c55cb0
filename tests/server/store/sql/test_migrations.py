"""A store gets the steps of the schema that it lacks. Its tasks and conversations stay.

The last step of these tests is made up.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pydantic_ai_a2a import Postgres
from pydantic_ai_a2a.errors import BackendUnusable
from pydantic_ai_a2a.server.store.ports import Backend
from pydantic_ai_a2a.server.store.postgres import migration
from pydantic_ai_a2a.server.store.postgres.backend import PostgresBackend
from pydantic_ai_a2a.server.store.postgres.migration_steps import migrations_of, script_of
from pydantic_ai_a2a.server.store.sql import task_reads, totals
from pydantic_ai_a2a.server.store.sql.migrations import FIRST, MIGRATIONS, newest, script, steps
from pydantic_ai_a2a.server.store.sqlite.backend import SqliteFileBackend
from pydantic_ai_a2a.server.store.sqlite.connect import connect
from pydantic_ai_a2a.server.store.sqlite.execution import perform
from pydantic_ai_a2a.server.store.sqlite.settings import SqliteFile

from ....postgres import Postgres as Server
from ....suites.values import (
    OWNER,
    READER_LAG,
    claim_and_finish,
    conversation_texts,
    history_texts,
    message,
    model_turn,
    state_of,
    submit,
    text_of_body,
)
from ..blocking_session import database

STEP = (
    """
    CREATE TABLE note (
        seq INTEGER PRIMARY KEY,
        task_id TEXT NOT NULL,
        body BLOB
    )
    """,
    'ALTER TABLE task ADD COLUMN noted INTEGER NOT NULL DEFAULT 0',
    "UPDATE task SET noted = 1 WHERE state = 'completed'",
    'CREATE INDEX task_noted ON task (agent, noted)',
    """
    CREATE TRIGGER task_noted AFTER UPDATE OF noted ON task FOR EACH ROW BEGIN
        INSERT INTO note (task_id) VALUES (NEW.id);
    END
    """.strip(),
)
LATER = (*MIGRATIONS, STEP)
VERSIONS = range(FIRST, newest(LATER) + 1)
NOTED = 'SELECT id, noted FROM task ORDER BY id'


async def fill(backend: Backend) -> None:
    """Store a completed task and a queued one of the same context."""
    await submit(backend, message(new='done', context='c', text='hi'))
    await claim_and_finish(backend, 'done', messages=model_turn('hi', 'hello'))
    await submit(backend, message(new='queued', context='c', text='more'))


async def file_with_tasks(path: Path) -> SqliteFile:
    file = SqliteFile(path=path / 'agent.db')
    backend = SqliteFileBackend(file, 'agent', reader_lag=READER_LAG)
    await fill(backend)
    backend.close()
    return file


def schema(file: SqliteFile) -> list[tuple[str, str]]:
    """The name and the SQL of everything that a file has."""
    with closing(sqlite3.connect(file.path)) as connection:
        rows = connection.execute('SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL').fetchall()
    return sorted((name, ' '.join(sql.split())) for name, sql in rows)


async def test_sqlite_file_is_migrated_once_and_keeps_tasks(tmp_path: Path) -> None:
    file = await file_with_tasks(tmp_path)
    for _ in range(2):
        with closing(connect(file, LATER)) as connection:
            assert connection.execute('SELECT version FROM a2a_schema').fetchall() == [(n,) for n in VERSIONS]
            assert connection.execute(NOTED).fetchall() == [('done', 1), ('queued', 0)]
            loading = task_reads.load('agent', 'done', OWNER, history_length=None, artifacts=True)
            task = perform(connection, loading)
            assert task is not None
            assert [text_of_body(body) for body in task.history or ()] == ['hi']
            statement, values = totals.count_tasks('agent', None)
            assert connection.execute(statement, values).fetchall() == [(2,)]
            connection.execute('UPDATE task SET noted = noted')
            assert connection.execute('SELECT task_id FROM note ORDER BY task_id').fetchall()[0] == ('done',)


async def test_printed_sqlite_migration_equals_migration_at_start(tmp_path: Path) -> None:
    printed = script(steps(LATER, newest(MIGRATIONS)))
    assert printed.startswith(
        f'BEGIN;\nCREATE TABLE IF NOT EXISTS a2a_schema (version INTEGER NOT NULL);\n-- Step {newest(LATER)}\n'
    )
    files: list[SqliteFile] = []
    for name in ('printed', 'started'):
        (tmp_path / name).mkdir()
        files.append(await file_with_tasks(tmp_path / name))
    with closing(sqlite3.connect(files[0].path)) as connection:
        connection.executescript(printed)
    connect(files[0], LATER).close()
    connect(files[1], LATER).close()
    assert schema(files[0]) == schema(files[1])
    assert script(steps(LATER, newest(LATER))) == ''


async def test_postgres_database_is_migrated_once_and_keeps_tasks(
    postgres: Server, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = PostgresBackend(Postgres(postgres_url), 'agent', reader_lag=READER_LAG)
    await fill(backend)
    backend.close()
    monkeypatch.setattr(migration, 'MIGRATIONS', LATER)
    for _ in range(2):
        backend = PostgresBackend(Postgres(postgres_url), 'agent', reader_lag=READER_LAG)
        assert await state_of(backend, 'queued') == 'submitted'
        backend.close()
    assert in_schema(postgres, postgres_url, 'SELECT version FROM a2a_schema ORDER BY version') == [
        str(n) for n in VERSIONS
    ]
    assert in_schema(postgres, postgres_url, NOTED) == ['done|1', 'queued|0']
    backend = PostgresBackend(Postgres(postgres_url), 'agent', reader_lag=READER_LAG)
    await claim_and_finish(backend, 'queued', messages=model_turn('more', 'bye'))
    assert await history_texts(backend, 'done') == ['hi']
    assert await conversation_texts(backend, 'c') == ['hi', 'hello', 'more', 'bye']
    backend.close()
    postgres.run('UPDATE a2a.task SET noted = noted', database(postgres_url))
    assert in_schema(postgres, postgres_url, 'SELECT task_id FROM note ORDER BY task_id') == ['done', 'queued']


def in_schema(postgres: Server, url: str, query: str) -> list[str]:
    """The rows that a query finds in the tables of the package."""
    return postgres.run(query.replace('FROM ', 'FROM a2a.'), database(url))


def test_printed_postgres_migration_upgrades_schema(postgres: Server, postgres_url: str) -> None:
    settings = Postgres(postgres_url)
    postgres.run(script_of(settings, MIGRATIONS, 0), database(postgres_url))
    printed = script_of(settings, LATER, newest(MIGRATIONS))
    assert 'CREATE SCHEMA' not in printed
    assert all(statement.strip() in printed for statement in migrations_of(LATER)[-1][1:])
    postgres.run(printed, database(postgres_url))
    assert in_schema(postgres, postgres_url, 'SELECT version FROM a2a_schema ORDER BY version') == [
        str(n) for n in VERSIONS
    ]
    assert in_schema(postgres, postgres_url, 'SELECT COUNT(*) FROM note') == ['0']


@pytest.mark.parametrize('schema', [1, 6])
def test_sqlite_file_of_development_version_is_refused(tmp_path: Path, schema: int) -> None:
    file = SqliteFile(path=tmp_path / 'agent.db')
    with closing(sqlite3.connect(file.path)) as connection, connection:
        connection.execute('CREATE TABLE a2a_schema (version INTEGER NOT NULL)')
        connection.execute(f'INSERT INTO a2a_schema VALUES ({schema})')
    with pytest.raises(BackendUnusable) as refused:
        connect(file)
    assert str(refused.value) == (
        f'The SQLite file {file.path} cannot be used: it was written by a version of pydantic-ai-a2a from before the'
        f' first release (schema {schema}): use another database.'
    )
