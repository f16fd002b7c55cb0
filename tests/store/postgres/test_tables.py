"""The tables of a PostgreSQL database: who comes first makes them, however long that takes."""

from __future__ import annotations

import asyncio
import re

import pytest

from pydantic_ai_a2a.errors import BackendUnusable
from pydantic_ai_a2a.store.postgres import connect
from pydantic_ai_a2a.store.postgres.statements import lock
from pydantic_ai_a2a.store.sql.transaction import LockName

from ...postgres import Postgres as Server
from ...postgres_proxy import proxied
from ...suites.values import message, state_of, submit
from ..gates import database, gate
from .conftest import Open


async def test_a_server_that_is_too_old_is_refused(another: Open, postgres: Server, postgres_url: str) -> None:
    [version] = postgres.run('SHOW server_version')
    async with proxied(postgres_url) as proxy:
        proxy.version = version.encode(), re.sub(r'\d+', '13', version, count=1).encode()
        backend = another(proxy.url)
        with pytest.raises(BackendUnusable, match='its server is PostgreSQL 13, and 14 or later is needed'):
            await submit(backend, message(new='t'))
        await asyncio.to_thread(backend.close)


async def test_tables_may_take_longer_to_be_made_than_a_statement(
    another: Open, postgres: Server, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, 'LATE', 0.1)
    postgres.run(
        """
        CREATE FUNCTION linger() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(2.5); END $$;
        CREATE EVENT TRIGGER linger ON ddl_command_start WHEN TAG IN ('CREATE SCHEMA') EXECUTE FUNCTION linger()
        """,
        database(postgres_url),
    )
    await submit(another(statement_timeout=2), message(new='t'))


async def test_who_waits_for_others_to_make_the_tables_waits_longer_than_for_a_statement(
    another: Open, postgres: Server, postgres_url: str
) -> None:
    async with gate(postgres_url, lock(LockName(('schema', 'a2a')))) as held:
        submitting = asyncio.ensure_future(submit(another(statement_timeout=2), message(new='t')))
        await asyncio.to_thread(postgres.run, 'SELECT pg_sleep(2.5)')
        assert not submitting.done()
        await held.open()
        await submitting


async def test_several_calls_that_come_first_make_the_tables_once(another: Open) -> None:
    backend = another()
    await asyncio.gather(*(submit(backend, message(new=f't{n}')) for n in range(5)))
    assert await state_of(backend, 't4') == 'submitted'
