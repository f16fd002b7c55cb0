"""The migration of a PostgreSQL database to the newest schema, in which processes that start at once take turns."""

from __future__ import annotations

import asyncio
import logging

import asyncpg

from ....errors import BackendUnusable
from ..sql.migrations import MIGRATIONS, newest, version
from .connect import open_connection
from .driver_errors import unusable
from .execution import LATE, Connection, in_transaction, perform
from .migration_steps import steps_of
from .settings import Postgres
from .sql_translation import begin, key_of

logger = logging.getLogger('pydantic_ai_a2a')
_OLDEST = 14
_TURN = 0.5
"""Seconds between two attempts to upgrade the schema."""
_VALID_INDEXES = """SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
    WHERE indisvalid AND relnamespace = to_regnamespace($1)"""


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
