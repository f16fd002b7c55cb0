"""Connections to PostgreSQL: opening, migrating, running transactions, and translating driver errors."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from ...clock import SYSTEM, Clock
from ...errors import BackendUnusable, InvalidParamsError, StoreUnavailable
from ..sql.migrations import MIGRATIONS, newest, version
from ..sql.transaction import LockName, LockTasks, Rows, Step, Transaction, TryNames
from .settings import Postgres
from .statements import CLOCK, begin, key_of, lock, steps_of, translated

logger = logging.getLogger('pydantic_ai_a2a')

T = TypeVar('T')
Connection: TypeAlias = 'asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]'
Pool: TypeAlias = 'asyncpg.Pool[asyncpg.Record]'

CONFLICTS = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.UniqueViolationError)
"""Conflicts with another transaction: the transaction is tried again, and then sees the writes of the other."""
_LOST = (
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
_OLDEST = 14
_UNUSED = 300.0
"""Seconds until an unused connection is closed."""
_TURN = 0.5
"""Seconds between two attempts to upgrade the schema."""
_VALID_INDEXES = """SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
    WHERE indisvalid AND relnamespace = to_regnamespace($1)"""
LATE = 5.0
"""Seconds after the database's own time-out until the connection counts as dead."""


def is_away(error: BaseException) -> bool:
    """True if the database could not be reached, or takes no writes for now."""
    if isinstance(error, asyncpg.PostgresError):
        return _AWAY.match(error.sqlstate or '') is not None
    return isinstance(error, _LOST) and not isinstance(error, ValueError)


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


async def migrate(settings: Postgres, connection: Connection) -> None:
    """Migrate the tables to the newest schema; processes that start at once take turns.

    Raises:
        BackendUnusable: The server is too old, or the tables are newer than the package.
    """
    warned = False
    # A role without CREATE rights can use a complete schema.
    while await stored_version(settings, connection) < newest(MIGRATIONS):
        turn = f'{begin(settings)}; SET LOCAL idle_in_transaction_session_timeout TO 0'
        try:
            if await in_transaction(connection, turn, lambda: _take_turn(settings, connection)):
                continue
        except asyncpg.LockNotAvailableError as error:
            text = 'The schema of the database cannot be upgraded yet, because a table is in use: %s'
            logger.log(logging.DEBUG if warned else logging.WARNING, text, error)
            warned = True
        await asyncio.sleep(_TURN)


async def _take_turn(settings: Postgres, connection: Connection) -> bool:
    """Take the missing steps over another connection; return False if another process is doing that.

    No statement waits for the turn: CREATE INDEX CONCURRENTLY would wait for the statement. `execute` leaves no open
    cursor, for which it would wait too.
    """
    key = key_of(('schema', settings.schema))
    if await connection.execute(f'SELECT 1 WHERE pg_try_advisory_xact_lock({key})') == 'SELECT 0':
        return False
    patient = await open_connection(settings, settings.listen_dsn or settings.url, patient=True)  # not of a pooler
    try:
        taken = await stored_version(settings, patient)
        made = await in_transaction(patient, begin(settings), lambda: patient.fetch(_VALID_INDEXES, settings.schema))
        # For the session, because an index is created outside of a transaction.
        await patient.execute('SET statement_timeout TO 0; SET default_transaction_read_only TO off')
        for statement in steps_of(settings, MIGRATIONS, taken, [row[0] for row in made]):
            await patient.execute(statement)
    finally:
        await patient.close(timeout=LATE)
    return True


async def stored_version(settings: Postgres, connection: Connection) -> int:
    """Return the number of the last step that a database has taken; 0 if it has no tables.

    Raises:
        BackendUnusable: As for `migrate`.
    """
    server = connection.get_server_version()
    if server.major < _OLDEST:
        raise unusable(settings, f'its server is PostgreSQL {server.major}, and {_OLDEST} or later is needed')
    if await connection.fetchval(f"SELECT to_regclass('{settings.schema}.a2a_schema')") is None:
        return 0
    try:
        return await in_transaction(connection, begin(settings), lambda: perform(connection, version(MIGRATIONS)))
    except BackendUnusable as error:
        raise unusable(settings, str(error)) from error


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


async def in_transaction(connection: Connection, start: str, work: Callable[[], Awaitable[T]]) -> T:
    """Call a function between the statement that starts a transaction and COMMIT."""
    try:
        await connection.execute(start)
        result = await work()
        await connection.execute('COMMIT')
    except BaseException:
        await roll_back(connection)
        raise
    return result


async def roll_back(connection: Connection) -> None:
    """Roll back a transaction; terminate a busy or lost connection."""
    try:
        async with asyncio.timeout(LATE):  # in Python 3.11, wait_for may swallow a cancellation
            await connection.execute('ROLLBACK')
    except (*_LOST, asyncpg.PostgresError):
        give_up(connection)


def give_up(connection: Connection) -> None:
    """Terminate a connection in an unknown state."""
    with suppress(asyncpg.InterfaceError):  # the pool has already closed a lost connection
        connection.terminate()


async def perform(connection: Connection, transaction: Transaction[T]) -> T:
    """Execute the steps of a transaction one after another, and return the result."""
    try:
        step = next(transaction)
        while True:
            step = transaction.send(await _execute(connection, step))
    except StopIteration as stop:
        return stop.value


async def _execute(connection: Connection, step: Step) -> Rows:
    match step:
        case list():
            for statement, values in step:
                if len(values) == 1:
                    await connection.execute(translated(statement), *values[0])
                elif values:
                    await connection.executemany(translated(statement), values)
            return []
        case LockName():
            await connection.execute(lock(step))
            return []
        case TryNames():
            return await _try_names(connection, step)
        case LockTasks():
            return await _lock_tasks(connection, step)
        case _:
            statement, values = step
            return await connection.fetch(translated(statement), *values)


async def _try_names(connection: Connection, step: TryNames) -> Rows:
    names = {key_of(name): name for name in step.names}
    taken = await connection.fetch(
        'SELECT key FROM unnest($1::bigint[]) AS key WHERE NOT pg_try_advisory_xact_lock(key)', [*names]
    )
    return [(names[key],) for (key,) in taken]


async def _lock_tasks(connection: Connection, step: LockTasks) -> Rows:
    tasks = 'SELECT id FROM task WHERE agent = $1 AND id = ANY($2)'
    locking = f'{tasks} ORDER BY id COLLATE "C" FOR NO KEY UPDATE'
    if step.wait:
        await connection.fetch(locking, step.agent, step.task_ids)
        return []
    locked = {row[0] for row in await connection.fetch(f'{locking} SKIP LOCKED', step.agent, step.task_ids)}
    others = [task_id for task_id in step.task_ids if task_id not in locked]
    return await connection.fetch(tasks, step.agent, others) if others else []


# --- the wall clock of a PostgreSQL database, which is the same for all machines that share the database --------------


class DatabaseClock(Clock):
    """Estimates the database's wall clock from this machine's steady clock, which nobody sets.

    The database is asked whenever a connection is opened, and every few seconds while the process listens. Leases do
    not depend on this estimate: the statements that write and compare them read the database's clock themselves.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ahead = SYSTEM.now() - SYSTEM.steady()
        """Milliseconds that the database's wall clock is ahead of the steady clock; before the first answer, this
        machine's wall clock."""

    def now(self) -> int:
        return self.steady() + self._ahead

    async def ask(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        """Ask the database for the time over a connection that is idle."""
        asked = self.steady()
        there = await connection.fetchval(f'SELECT {CLOCK}')
        took = self.steady() - asked
        ahead = there - asked - took // 2
        if abs(ahead - self._ahead) > took:  # a smaller difference may be network delay
            self._ahead = ahead
