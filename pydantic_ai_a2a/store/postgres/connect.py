"""Connections to PostgreSQL: opening, migrating, running transactions, and translating driver errors."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from itertools import count
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from ...clock import SYSTEM, Clock
from ...errors import BackendUnusable, InvalidParamsError, StoreUnavailable
from ..sql.schema import MIGRATIONS, Migrations, missing, script, version
from ..sql.transaction import LockName, LockTasks, Rows, Step, Transaction
from .functions import FUNCTIONS
from .settings import Postgres

T = TypeVar('T')
Connection: TypeAlias = 'asyncpg.Connection[asyncpg.Record] | PoolConnectionProxy[asyncpg.Record]'
Pool: TypeAlias = 'asyncpg.Pool[asyncpg.Record]'

CONFLICTS = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.UniqueViolationError)
"""A conflict with another transaction: a repetition sees the writes of the other transaction."""
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
_OLDEST = 14
_UNUSED = 300.0
"""Seconds until an unused connection is closed."""
_LATE = 5.0
"""Seconds after the database's own time-out until the connection counts as dead."""


def is_away(error: BaseException) -> bool:
    """True if the database could not be reached, or takes no writes for now."""
    if isinstance(error, asyncpg.PostgresError):
        return _AWAY.match(error.sqlstate or '') is not None
    return isinstance(error, _LOST) and not isinstance(error, ValueError)


def connection_error(settings: Postgres, error: BaseException) -> BaseException:
    """Return the error for callers: `StoreUnavailable` if the database may be available later."""
    if isinstance(error, _UNUSABLE):
        result: BaseException = unusable(settings, str(error))
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
        'command_timeout': settings.statement_timeout + _LATE,
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
    if await stored_version(settings, connection) == len(MIGRATIONS):
        return  # a role without CREATE rights can use a complete schema
    patient = await open_connection(settings, settings.url, patient=True)
    try:
        await _in_transaction(settings, patient, lambda: _create(settings, patient))
    finally:
        await patient.close(timeout=_LATE)


async def stored_version(settings: Postgres, connection: Connection) -> int:
    """Return the number of schema steps in a database; 0 if it has no tables.

    Raises:
        BackendUnusable: As for `migrate`.
    """
    server = connection.get_server_version()
    if server.major < _OLDEST:
        raise unusable(settings, f'its server is PostgreSQL {server.major}, and {_OLDEST} or later is needed')
    if await connection.fetchval(f"SELECT to_regclass('{settings.schema}.a2a_schema')") is None:
        return 0
    try:
        return await _in_transaction(settings, connection, lambda: perform(connection, version(MIGRATIONS)))
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


async def _create(settings: Postgres, connection: Connection) -> None:
    # No timeout: another process may hold the lock, and a step over a large table takes long.
    await connection.execute('SET LOCAL statement_timeout TO 0; ' + lock(LockName(('schema', settings.schema))))
    if not await connection.fetchval('SELECT 1 FROM pg_namespace WHERE nspname = $1', settings.schema):
        await connection.execute(f'CREATE SCHEMA {settings.schema}')
    await perform(connection, missing(migrations_of(MIGRATIONS)))


async def _in_transaction(settings: Postgres, connection: Connection, work: Callable[[], Awaitable[T]]) -> T:
    try:
        await connection.execute(begin(settings))
        result = await work()
        await connection.execute('COMMIT')
    except BaseException:
        await roll_back(connection)
        raise
    return result


async def roll_back(connection: Connection) -> None:
    """Roll back a transaction; terminate a busy or lost connection."""
    try:
        async with asyncio.timeout(_LATE):  # in Python 3.11, wait_for may swallow a cancellation
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
        case LockName(wait=True):
            await connection.execute(lock(step))
            return []
        case LockName():
            return await connection.fetch(lock(step))
        case LockTasks():
            return await _lock_tasks(connection, step)
        case _:
            statement, values = step
            return await connection.fetch(translated(statement), *values)


async def _lock_tasks(connection: Connection, step: LockTasks) -> Rows:
    tasks = 'SELECT id FROM task WHERE agent = $1 AND id = ANY($2)'
    locking = f'{tasks} ORDER BY id COLLATE "C" FOR NO KEY UPDATE'
    if step.wait:
        await connection.fetch(locking, step.agent, step.task_ids)
        return []
    locked = {row[0] for row in await connection.fetch(f'{locking} SKIP LOCKED', step.agent, step.task_ids)}
    others = [task_id for task_id in step.task_ids if task_id not in locked]
    return await connection.fetch(tasks, step.agent, others) if others else []


# --- translation of the shared SQL for PostgreSQL ---------------------------------------------------------------------
# Numbered parameters, column types, locks and notifications.

_TYPES = (
    ('INTEGER PRIMARY KEY', 'BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY'),
    ('BLOB', 'BYTEA'),
    (' WITHOUT ROWID', ''),
)
_TRIGGER = re.compile(r'(CREATE TRIGGER (\w+) .*) BEGIN(.*)END', re.DOTALL)
"""A SQLite trigger with statements. A PostgreSQL trigger calls a function."""
CLOCK = 'CAST(EXTRACT(epoch FROM clock_timestamp()) * 1000 AS BIGINT)'
"""The database's clock (ms since the epoch), as it is when the expression is evaluated."""
_PAYLOAD = 7000
"""The most bytes of a notification: PostgreSQL takes less than 8000."""
_IDLE_LIMIT = 5000
"""Time limit of the database for the next statement of a transaction (ms)."""
WRITE = 'ISOLATION LEVEL READ COMMITTED READ WRITE'
"""Isolation of writes: a statement after a lock sees the writes of earlier lock holders."""
READ = 'ISOLATION LEVEL REPEATABLE READ READ ONLY'
"""Isolation of reads: all statements of a transaction see the same state."""


@lru_cache(maxsize=1024)
def translated(statement: str) -> str:
    """A statement with `$1` for the first `?`, the database's clock, and what is there for PostgreSQL alone."""
    numbers = count(1)
    numbered = re.sub(r'\?', lambda _: f'${next(numbers)}', statement)
    return re.sub(r'/\*(.*?)\*/', r'\1', numbered.replace('a2a_clock()', CLOCK))


def migrations_of(migrations: Migrations) -> Migrations:
    """Translate the steps of the schema for PostgreSQL, with the functions of each step."""
    return [
        [typed for statement in (*statements, *FUNCTIONS.get(number, ())) for typed in _typed(statement)]
        for number, statements in enumerate(migrations, 1)
    ]


def script_of(settings: Postgres, migrations: Migrations, taken: int) -> str:
    """Return the steps after the first `taken` ones as SQL, like `script`."""
    first = [f'SET LOCAL search_path TO {settings.schema}']
    if not taken:
        first = [f'CREATE SCHEMA IF NOT EXISTS {settings.schema}', *first]
    return script(migrations_of(migrations), taken, first)


def _typed(statement: str) -> list[str]:
    for ours, theirs in _TYPES:
        statement = statement.replace(ours, theirs)
    statement = translated(statement)
    if trigger := _TRIGGER.fullmatch(statement):
        # With SET search_path, the function finds the tables under any search path of the session.
        create, name, body = trigger.groups()
        function = f'CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT'
        return [f'{function} AS $$ BEGIN{body}RETURN NULL; END $$', f'{create} EXECUTE FUNCTION {name}()']
    return [statement]


def begin(settings: Postgres, options: str = WRITE, *, locks: Sequence[LockName] = ()) -> str:
    """Begin a transaction with all settings: behind a pooler, each transaction has another connection."""
    statements = [
        f'BEGIN {options}',
        f'SET LOCAL search_path TO {settings.schema}',
        f'SET LOCAL statement_timeout TO {round(settings.statement_timeout * 1000)}',
    ]
    # A process that is paused inside a transaction would hold its locks until the process continues.
    statements.append(f'SET LOCAL idle_in_transaction_session_timeout TO {_IDLE_LIMIT}')
    return '; '.join([*statements, *map(lock, locks)])


def lock(lock: LockName) -> str:
    """Take an advisory lock. Without waiting, return a row if another transaction has the lock."""
    key = key_of(lock)
    return (
        f'SELECT pg_advisory_xact_lock({key})' if lock.wait else f'SELECT 1 WHERE NOT pg_try_advisory_xact_lock({key})'
    )


def key_of(lock: LockName) -> int:
    """Return the number of an advisory lock."""
    return int.from_bytes(blake2b('\0'.join(lock.name).encode(), digest_size=8).digest(), signed=True)


def channel(settings: Postgres, namespace: str) -> str:
    """Return the notification channel of the processes of one namespace."""
    return 'a2a_' + blake2b(f'{settings.schema}\0{namespace}'.encode(), digest_size=12).hexdigest()


def notify(channel: str, sender: str, flags: str, tasks: Iterable[tuple[str, int]]) -> str:
    """Tell of tasks, each with the number of its newest event or 0, in as few notifications as there can be."""
    payloads = [f'{sender} {flags}']
    for task_id, newest in tasks:
        entry = f' {quote(task_id, safe="")}:{newest}'  # has no character that would end a literal
        if len(payloads[-1]) + len(entry) > _PAYLOAD:
            payloads.append(f'{sender} {flags}')
        payloads[-1] += entry
    return '; '.join(f"SELECT pg_notify('{channel}', '{payload}')" for payload in payloads)


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
