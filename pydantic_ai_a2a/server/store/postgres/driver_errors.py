"""The errors of the PostgreSQL driver, and what they mean for a transaction."""

from __future__ import annotations

import asyncio
import re

import asyncpg

from ....errors import BackendUnusable, InvalidParamsError, StoreUnavailable
from .settings import Postgres

CONFLICTS = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.UniqueViolationError)
"""Conflicts with another transaction: the transaction is tried again, and then sees the writes of the other."""
LOST = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server announced its end on an open connection
)
"""Errors of the driver: the connection is lost, or cannot be opened."""
_AWAY = re.compile(
    '08'  # connections
    '|53'  # resources: the disk is full, or the memory, or there are too many connections
    '|57(?!014)'  # operator intervention: the server stops or starts
    '|58'  # the operating system, such as a failed read or write of a file
    '|25006'  # a read-only transaction: a standby, or a read-only database
    '|25P0[34]'  # a transaction that was idle, or open, for too long
    '|0A000'  # a writing transaction while the server is in recovery
)
"""SQLSTATEs or SQLSTATE classes of a database that may be available later."""
_BUSY = (asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError)
"""SQLSTATEs of a busy database: a slow statement or a lock of another transaction."""
_UNUSABLE = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InvalidSchemaNameError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedFunctionError,
)
_UNPREPARED = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)
"""Errors behind a pooler whose connections change: the prepared statement is on another connection."""


def is_away(error: BaseException) -> bool:
    """True if the database could not be reached, or takes no writes for now."""
    if isinstance(error, asyncpg.PostgresError):
        return _AWAY.match(error.sqlstate or '') is not None
    return isinstance(error, LOST) and not isinstance(error, ValueError)


def connection_error(settings: Postgres, error: BaseException) -> BaseException:
    """Return the error for callers: `StoreUnavailable` if the database may be available later."""
    if isinstance(error, _UNPREPARED):
        result: BaseException = unusable(
            settings,
            'prepared statements are lost, as behind a pooler in transaction mode such as PgBouncer. Write '
            'Postgres(url_of_pooler, listen_dsn=url_of_database, statement_cache_size=0)',
        )
    elif isinstance(error, _UNUSABLE):
        result = unusable(settings, str(error))
    elif isinstance(error, asyncpg.CharacterNotInRepertoireError):
        result = InvalidParamsError('Invalid parameters: ids must not contain the character U+0000.')
    elif is_away(error) or isinstance(error, asyncio.CancelledError):
        result = StoreUnavailable(_reason(error))
    elif isinstance(error, (*_BUSY, *CONFLICTS)):
        result = StoreUnavailable(_reason(error), busy=True)
    else:
        return error
    result.__cause__ = error
    return result


def _reason(error: BaseException) -> str:
    return f'{error} ({type(error).__name__})' if str(error) else type(error).__name__


def unusable(settings: Postgres, why: str) -> BackendUnusable:
    """Return an error with the database and the reason."""
    return BackendUnusable(f'The PostgreSQL database {settings.place} cannot be used: {why.rstrip(".")}.')
