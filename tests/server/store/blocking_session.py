"""Somebody who is in the way of a backend over PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from pydantic_ai_a2a.server.store.postgres.execution import perform
from pydantic_ai_a2a.server.store.postgres.sql_translation import key_of
from pydantic_ai_a2a.server.store.sql.transaction import Transaction

from ...suites.values import WAIT_LIMIT


class BlockingSession:
    """A transaction of somebody else, in the way of others until it ends."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self._connection = connection

    async def reached(self) -> int:
        """The process of who waits for it."""
        async with asyncio.timeout(WAIT_LIMIT):
            while not (pid := await self._connection.fetchval(_WAITING)):
                pass
        return pid

    async def is_taken(self, *name: str) -> bool:
        """Whether somebody has the lock of another name."""
        return not await self._connection.fetchval('SELECT pg_try_advisory_xact_lock($1)', key_of(name))

    async def value(self, query: str) -> Any:
        """Return the value that a query finds."""
        return await self._connection.fetchval(query)

    async def perform(self, transaction: Transaction[Any]) -> None:
        """Do the steps of a transaction, without an end."""
        await perform(self._connection, transaction)

    async def open(self) -> None:
        """Let the others through."""
        await self._connection.execute('ROLLBACK')

    async def commit(self) -> None:
        """Let the others through, to what was done here."""
        await self._connection.execute('COMMIT')


_WAITING = 'SELECT pid FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))'


@asynccontextmanager
async def blocking_session(url: str, sql: str) -> AsyncGenerator[BlockingSession]:
    """Somebody who holds what this locks."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f'BEGIN; {sql}')
        yield BlockingSession(connection)
    finally:
        await connection.close()


def database(url: str) -> str:
    """The name of a database."""
    return urlsplit(url).path[1:]
