"""The tables of a PostgreSQL database: which process makes them, and which steps they get beside open writes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

import pytest

from pydantic_ai_a2a import Postgres
from pydantic_ai_a2a.errors import BackendUnusable
from pydantic_ai_a2a.server.store.postgres import migration
from pydantic_ai_a2a.server.store.postgres.backend import PostgresBackend
from pydantic_ai_a2a.server.store.postgres.connect import once
from pydantic_ai_a2a.server.store.postgres.migration import migrate
from pydantic_ai_a2a.server.store.postgres.migration_steps import script_of
from pydantic_ai_a2a.server.store.postgres.sql_translation import lock
from pydantic_ai_a2a.server.store.sql.migrations import MIGRATIONS, newest
from pydantic_ai_a2a.server.store.sql.transaction import LockName

from ....bounds import LIMIT
from ....logs import log_event
from ....postgres import PASSWORD_USER
from ....postgres import Postgres as Server
from ....postgres_proxy import proxied
from ....suites.values import claim_and_finish, message, state_of, submit
from ..blocking_session import blocking_session, database
from .conftest import Open


async def test_unsupported_server_version_is_refused(open_backend: Open, postgres: Server, postgres_url: str) -> None:
    [version] = postgres.run('SHOW server_version')
    async with proxied(postgres_url) as proxy:
        proxy.version = version.encode(), re.sub(r'\d+', '13', version, count=1).encode()
        backend = open_backend(proxy.url)
        with pytest.raises(BackendUnusable, match='its server is PostgreSQL 13, and 14 or later is needed'):
            await submit(backend, message(new='t'))
        await asyncio.to_thread(backend.close)


async def test_table_creation_may_exceed_statement_timeout(
    open_backend: Open, postgres: Server, postgres_url: str, exceed_client_limits: Callable[[], Awaitable[None]]
) -> None:
    postgres.run(
        """
        CREATE SEQUENCE tries;
        CREATE FUNCTION linger() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
            ASSERT nextval('tries') = 1 AND current_setting('statement_timeout') = '0';
            PERFORM pg_advisory_xact_lock(1);
        END $$;
        CREATE EVENT TRIGGER linger ON ddl_command_start WHEN TAG IN ('CREATE SCHEMA') EXECUTE FUNCTION linger()
        """,
        database(postgres_url),
    )
    async with blocking_session(postgres_url, 'SELECT pg_advisory_xact_lock(1)') as held:
        submitting = asyncio.ensure_future(submit(open_backend(), message(new='t')))
        await held.reached()
        await exceed_client_limits()
        await held.open()
        await submitting


async def test_waiting_for_table_creation_may_exceed_statement_timeout(
    open_backend: Open, postgres: Server, postgres_url: str
) -> None:
    async with blocking_session(postgres_url, lock(LockName(('schema', 'a2a')))) as held:
        submitting = asyncio.ensure_future(submit(open_backend(statement_timeout=2), message(new='t')))
        await asyncio.to_thread(postgres.run, 'SELECT pg_sleep(2.5)')
        assert not submitting.done()
        await held.open()
        await submitting


@pytest.mark.parametrize('processes', [1, 5])
async def test_concurrent_first_calls_create_tables_once(open_backend: Open, processes: int) -> None:
    backends = [open_backend() for _ in range(processes)]
    await asyncio.gather(*(submit(backends[n % processes], message(new=f't{n}')) for n in range(5)))
    assert await state_of(open_backend(), 't4') == 'submitted'


COLUMN = ('ALTER TABLE task ADD COLUMN noted INTEGER NOT NULL DEFAULT 0',)
INDEXES = (
    'CREATE INDEX task_noted ON task (agent, noted) WHERE noted = 1',
    '-- A comment.\nCREATE UNIQUE INDEX task_number ON task (agent, queue_seq)',
)
LATER = (*MIGRATIONS, COLUMN, INDEXES)
VALID = """SELECT relname, indisvalid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
    WHERE relname IN ('task_noted', 'task_number') ORDER BY 1"""
OID = "SELECT oid FROM pg_class WHERE relname = 'task_noted'"


@pytest.fixture
async def old_backend(open_backend: Open, monkeypatch: pytest.MonkeyPatch) -> PostgresBackend:
    """A process of the older version, which has made the tables. Later processes are newer."""
    backend = open_backend()
    await submit(backend, message(new='t'))
    monkeypatch.setattr(migration, 'MIGRATIONS', LATER)
    return backend


async def upgrade(url: str) -> None:
    async with asyncio.timeout(LIMIT):
        await once(Postgres(url), migrate)


async def test_concurrent_upgrades_create_indexes_once(
    old_backend: PostgresBackend, postgres: Server, postgres_url: str
) -> None:
    await asyncio.gather(*(upgrade(postgres_url) for _ in range(3)))
    assert postgres.run(VALID, database(postgres_url)) == ['task_noted|t', 'task_number|t']
    versions = postgres.run('SELECT version FROM a2a.a2a_schema', database(postgres_url))
    assert sorted(map(int, versions))[-2:] == [newest(LATER) - 1, newest(LATER)]


async def test_indexes_are_created_during_open_write(
    old_backend: PostgresBackend, postgres: Server, postgres_url: str
) -> None:
    """CREATE INDEX would wait for the open write, and all later writes for CREATE INDEX."""
    await upgrade_column(postgres_url)
    async with blocking_session(postgres_url, "UPDATE a2a.task SET noted = 0 WHERE id = 't'") as write:
        upgrading = asyncio.create_task(upgrade(postgres_url))
        await write.reached()
        async with asyncio.timeout(LIMIT):
            await submit(old_backend, message(new='u'))
        assert not upgrading.done()
        await write.commit()
        await upgrading
    assert postgres.run(VALID, database(postgres_url)) == ['task_noted|t', 'task_number|t']


async def upgrade_column(url: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migration, 'MIGRATIONS', LATER[:-1])
        await upgrade(url)


async def test_table_in_use_delays_upgrade_but_no_write(old_backend: PostgresBackend, postgres_url: str) -> None:
    """A backup reads the table for a long time. The lock that the step waits for would block all writes behind it."""
    async with (
        blocking_session(postgres_url, 'LOCK TABLE a2a.task IN ACCESS SHARE MODE') as backup,
        asyncio.timeout(LIMIT),
    ):
        with log_event('cannot be upgraded yet, because a table is in use') as told:
            upgrading = asyncio.create_task(upgrade(postgres_url))
            assert await asyncio.to_thread(told.wait, LIMIT)
        await claim_and_finish(old_backend, 't')
        assert not upgrading.done()
        await backup.open()
        await upgrading
    assert await state_of(old_backend, 't') == 'completed'


async def test_invalid_indexes_are_rebuilt_by_next_upgrade(
    old_backend: PostgresBackend, postgres: Server, postgres_url: str
) -> None:
    await submit(old_backend, message(new='u'))
    postgres.run('UPDATE a2a.task SET queue_seq = 1', database(postgres_url))
    with pytest.raises(BackendUnusable, match='could not create unique index'):
        await once(Postgres(postgres_url), migrate)
    assert postgres.run(VALID, database(postgres_url)) == ['task_noted|t', 'task_number|f']
    noted = postgres.run(OID, database(postgres_url))
    postgres.run("UPDATE a2a.task SET queue_seq = 2 WHERE id = 'u'", database(postgres_url))
    await upgrade(postgres_url)
    assert postgres.run(VALID, database(postgres_url)) == ['task_noted|t', 'task_number|t']
    assert postgres.run(OID, database(postgres_url)) == noted


async def test_upgrade_without_permission_is_refused(
    old_backend: PostgresBackend, open_backend: Open, postgres: Server, postgres_url: str
) -> None:
    name = database(postgres_url)
    postgres.run(f"DROP ROLE IF EXISTS {PASSWORD_USER}; CREATE ROLE {PASSWORD_USER} LOGIN PASSWORD '{PASSWORD_USER}'")
    postgres.run(
        f'GRANT USAGE ON SCHEMA a2a TO {PASSWORD_USER}; GRANT SELECT ON ALL TABLES IN SCHEMA a2a TO {PASSWORD_USER}',
        name,
    )
    backend = open_backend(postgres.url(name, PASSWORD_USER, PASSWORD_USER))
    with pytest.raises(BackendUnusable, match=r'cannot be used: (permission denied for schema a2a|must be owner)'):
        await submit(backend, message(new='u'))
    postgres.run(f'DROP OWNED BY {PASSWORD_USER}', name)


async def test_printed_upgrade_creates_indexes_concurrently(
    old_backend: PostgresBackend, open_backend: Open, postgres: Server, postgres_url: str
) -> None:
    printed = script_of(Postgres(postgres_url), LATER, newest(MIGRATIONS))
    assert printed == (
        '\\set ON_ERROR_STOP on\n'
        'BEGIN;\n'
        'SET LOCAL search_path TO a2a;\n'
        'SET LOCAL lock_timeout TO 200;\n'
        'CREATE TABLE IF NOT EXISTS a2a_schema (version INTEGER NOT NULL);\n'
        f'-- Step {newest(LATER) - 1}\n'
        'ALTER TABLE task ADD COLUMN noted INTEGER NOT NULL DEFAULT 0;\n'
        f'INSERT INTO a2a_schema (version) VALUES ({newest(LATER) - 1});\n'
        f'-- Step {newest(LATER)}\n'
        'COMMIT;\n'
        'DROP INDEX CONCURRENTLY IF EXISTS a2a.task_noted;\n'
        'CREATE INDEX CONCURRENTLY task_noted ON a2a.task (agent, noted) WHERE noted = 1;\n'
        'DROP INDEX CONCURRENTLY IF EXISTS a2a.task_number;\n'
        '-- A comment.\n'
        'CREATE UNIQUE INDEX CONCURRENTLY task_number ON a2a.task (agent, queue_seq);\n'
        'BEGIN;\n'
        'SET LOCAL search_path TO a2a;\n'
        'SET LOCAL lock_timeout TO 200;\n'
        f'INSERT INTO a2a_schema (version) VALUES ({newest(LATER)});\n'
        'COMMIT;\n'
    )
    postgres.run_file(printed, database(postgres_url))
    assert postgres.run(VALID, database(postgres_url)) == ['task_noted|t', 'task_number|t']
    await claim_and_finish(open_backend(), 't')
