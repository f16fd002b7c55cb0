"""Connections to a SQLite file: opening and migration."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from ....clock import SYSTEM, Clock
from ....errors import BackendUnusable
from ..sql.migrations import MIGRATIONS, Migrations, missing, version
from .driver_errors import is_busy, reason_of
from .execution import perform, tell_time
from .free_pages import SHRINKS
from .settings import SqliteFile

_LOCK_WAIT = 0.01
"""Seconds between two attempts at a lock without a wait in SQLite."""
NOTE_CLOCK = "UPDATE a2a_boot SET clock = a2a_clock() WHERE id = ''"
"""Remember how far the steady clock has come, where the system names no boot: after a restart, the clock is behind."""
_WAL_PAGES = 4000
"""Pages of 4 kB in the WAL before SQLite copies them: 4,000 cost a commit 15 % less CPU than the default 1,000."""


def connect(
    file: SqliteFile, migrations: Migrations = MIGRATIONS, *, clock: Clock = SYSTEM, writes: bool = False
) -> sqlite3.Connection:
    """Open a connection for the calling thread; create missing files and tables.

    The first writing connection (`writes`) after a boot of the machine ends all leases of earlier boots.

    Raises:
        BackendUnusable: The file is another program's, damaged, newer than the package, or cannot be opened.
        sqlite3.OperationalError: Another process locks the file for longer than the time-out.
    """
    _create(file.path)
    try:
        connection = sqlite3.connect(file.path, timeout=0, isolation_level=None)
    except sqlite3.Error as error:
        raise unusable(file, error) from error
    try:
        tell_time(connection, clock)
        _prepare(connection, file, migrations)
        if writes:
            _end_leases_of_another_boot(connection, clock)
    except (sqlite3.Error, BackendUnusable) as error:
        connection.close()
        if isinstance(error, sqlite3.Error) and is_busy(error):
            raise
        raise unusable(file, error) from error
    return connection


def _create(path: Path) -> None:
    """Create an empty file, readable by the owner only; SQLite gives the WAL the same mode."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileNotFoundError:
        raise BackendUnusable(f'The SQLite file {path} cannot be made: there is no folder {path.parent}.') from None
    except OSError:
        pass  # the file exists, or SQLite raises the error at its opening


def unusable(file: SqliteFile, error: Exception) -> BackendUnusable:
    """Return the error of a file that cannot be used."""
    return BackendUnusable(f'The SQLite file {file.path} cannot be used: {reason_of(error)}.')


def _prepare(connection: sqlite3.Connection, file: SqliteFile, migrations: Migrations) -> None:
    mode = _use_wal(connection, time.monotonic() + file.busy_timeout)
    if mode != 'wal':
        raise BackendUnusable(
            f'its file system has no shared memory for the WAL (the journal mode stays {mode!r}):'
            ' use a file on a local disk'
        )
    connection.execute(f'PRAGMA busy_timeout = {round(file.busy_timeout * 1000)}')
    connection.execute(f'PRAGMA synchronous = {file.synchronous}')
    connection.execute(f'PRAGMA wal_autocheckpoint = {_WAL_PAGES}')
    # Sorts and statements of many rows spill. A container with a read-only root has no folder for temporary files.
    connection.execute('PRAGMA temp_store = MEMORY')
    connection.execute('BEGIN IMMEDIATE')
    perform(connection, missing(migrations))
    connection.execute('COMMIT')


def _end_leases_of_another_boot(connection: sqlite3.Connection, clock: Clock) -> None:
    """End the leases of earlier boots: the steady clock of the machine restarts at a boot.

    The table is no step of the schema, because PostgreSQL does not need the table. Any writer of the file may create
    the table.
    """
    now = clock.steady()
    connection.execute('BEGIN IMMEDIATE')
    connection.execute('CREATE TABLE IF NOT EXISTS a2a_boot (id TEXT NOT NULL, clock BIGINT NOT NULL)')
    # Without a boot id from the system, a clock below the stored clock shows that the machine has restarted.
    if not connection.execute('SELECT 1 FROM a2a_boot WHERE id = ? AND clock <= ?', (clock.boot, now)).fetchone():
        connection.execute('DELETE FROM a2a_boot')
        connection.execute('INSERT INTO a2a_boot (id, clock) VALUES (?, ?)', (clock.boot, now))
        connection.execute("UPDATE task SET lease_until = 0 WHERE state = 'working'")
        connection.execute('UPDATE push_config SET due_at = 0 WHERE due_at IS NOT NULL')
        connection.execute('DELETE FROM process')
    connection.execute('COMMIT')


def stored_version(file: SqliteFile) -> int:
    """Return the number of schema steps in a file, without changing the file; 0 if the file does not exist.

    Raises:
        BackendUnusable: The file is no database, or newer than the package.
    """
    if not file.path.exists():
        return 0
    try:
        with closing(sqlite3.connect(file.path, timeout=file.busy_timeout)) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'a2a_schema'").fetchone():
                return 0
            return perform(connection, version(MIGRATIONS))
    except (sqlite3.Error, BackendUnusable) as error:
        raise unusable(file, error) from error


def _use_wal(connection: sqlite3.Connection, until: float) -> str:
    """Switch to the WAL, with retries: two processes at once may both get "busy" at once.

    The setting for returning free pages comes first: SQLite accepts the setting only before the first page.
    """
    while True:
        try:
            if not connection.execute('PRAGMA page_count').fetchone()[0]:
                connection.execute(SHRINKS)
            return connection.execute('PRAGMA journal_mode = WAL').fetchone()[0]
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > until:
                raise
        time.sleep(_LOCK_WAIT)
