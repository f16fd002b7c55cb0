"""Connections to PostgreSQL: opening, and limits of time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

import asyncpg

from .database_clock import DatabaseClock
from .driver_errors import unusable
from .execution import LATE, Connection
from .settings import Postgres

T = TypeVar('T')

Pool: TypeAlias = 'asyncpg.Pool[asyncpg.Record]'
_UNUSED = 300.0
"""Seconds until an unused connection is closed."""


def _options(settings: Postgres) -> dict[str, Any]:
    return {
        'timeout': settings.connect_timeout,
        'command_timeout': settings.statement_timeout + LATE,
        'statement_cache_size': settings.statement_cache_size,
    }


async def open_connection(settings: Postgres, url: str, *, patient: bool = False) -> asyncpg.Connection[asyncpg.Record]:
    """Open a connection; `patient` connections leave time limits to the database."""
    options = _options(settings)
    if patient:
        del options['command_timeout']
    return await asyncpg.connect(url, **options)


async def open_pool(settings: Postgres, size: int, clock: DatabaseClock) -> Pool:
    """Make a pool that opens connections on demand, and reads the database's clock over each new connection."""

    async def reset(_: object) -> None:
        """Do nothing: a transaction leaves no state to reset."""

    return await asyncpg.create_pool(
        settings.url,
        min_size=0,
        max_size=size,
        max_inactive_connection_lifetime=_UNUSED,
        init=clock.ask,
        reset=reset,
        **_options(settings),
    )


async def once(settings: Postgres, work: Callable[[Postgres, Connection], Awaitable[T]]) -> T:
    """Call a function with a new connection.

    Raises:
        BackendUnusable: The database is unreachable or unusable.
    """
    try:
        connection = await open_connection(settings, settings.url)
        try:
            return await work(settings, connection)
        finally:
            await connection.close()
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise unusable(settings, str(error) or type(error).__name__) from error
