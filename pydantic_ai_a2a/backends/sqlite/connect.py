"""Connections to a SQLite file: URL, opening, migration and compaction."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from ...clock import SYSTEM, Clock
from ...errors import BackendUnusable
from ..sql.migrations import MIGRATIONS, Migrations, missing, version
from .errors import is_busy, reason_of
from .steps import perform, tell_time

__all__ = ('NOTE_CLOCK', 'SqliteFile', 'connect', 'stored_version', 'vacuum')

Synchronous = Literal['full', 'normal']

_PAUSE = 0.01
"""Seconds between two attempts at a lock without a wait in SQLite."""
NOTE_CLOCK = "UPDATE a2a_boot SET clock = a2a_clock() WHERE id = ''"
"""Remember how far the steady clock has come, where the system names no boot: after a restart, the clock is behind."""
_WAL_PAGES = 4000
"""Pages of 4 kB in the WAL before SQLite copies them: 4,000 cost a commit 15 % less CPU than the default 1,000."""
_SHRINKS = 'PRAGMA auto_vacuum = INCREMENTAL'
_FORM = "'sqlite:///relative/path.db' or 'sqlite:////absolute/path.db', with ?synchronous=normal if you like"


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteFile:
    """A database file with the write settings."""

    path: Path
    """Absolute path: the process may change the working directory."""
    synchronous: Synchronous = 'full'
    """`full`: answered writes survive a power failure. `normal`: they survive only the end of the process."""
    busy_timeout: float = 10.0
    """Seconds to wait for the write of another process."""

    @classmethod
    def of(cls, url: str) -> SqliteFile:
        """Read a URL.

        Raises:
            ValueError: It has another form, or an option that there is not.
        """
        parts = urlsplit(url)
        path = unquote(parts.path)[1:]
        if parts.netloc or parts.fragment or not path or path.endswith('/') or path == ':memory:':
            raise ValueError(f'{url!r} names no file: write {_FORM}. For tasks in memory, write {"memory"!r}.')
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        return cls(path=Path(path).absolute(), synchronous=_synchronous(url, options))


def _synchronous(url: str, options: Mapping[str, str]) -> Synchronous:
    if unknown := sorted({*options} - {'synchronous'}):
        raise ValueError(f'{url!r} has the unknown option {unknown[0]!r}: the only option is synchronous.')
    chosen = options.get('synchronous', 'full').lower()
    if chosen not in ('full', 'normal'):
        raise ValueError(f"{url!r}: synchronous is 'full' or 'normal', not {chosen!r}.")
    return chosen


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
        raise _unusable(file, error) from error
    try:
        tell_time(connection, clock)
        _prepare(connection, file, migrations)
        if writes:
            _end_leases_of_another_boot(connection, clock)
    except (sqlite3.Error, BackendUnusable) as error:
        connection.close()
        if isinstance(error, sqlite3.Error) and is_busy(error):
            raise
        raise _unusable(file, error) from error
    return connection


def _create(path: Path) -> None:
    """Create an empty file, readable by the owner only; SQLite gives the WAL the same mode."""
    with suppress(OSError):  # the file exists, or SQLite raises the error at its opening
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _unusable(file: SqliteFile, error: Exception) -> BackendUnusable:
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
        connection.execute('UPDATE task SET watched_until = 0 WHERE watched_until > 0')
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
        raise _unusable(file, error) from error


def vacuum(file: SqliteFile) -> None:
    """Rewrite the file without deleted data, and empty the WAL. Writes of other processes wait.

    Later sweeps return the free pages of the file to the disk, also for files of older versions.

    Raises:
        BackendUnusable: Other processes use the file for longer than the time-out, or the disk has no room for a copy.
    """
    try:
        with closing(connect(file)) as connection:
            connection.execute(_SHRINKS)
            connection.execute('VACUUM')
            in_use: int = connection.execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchone()[0]
    except sqlite3.Error as error:
        raise _unusable(file, error) from error
    if in_use:
        raise BackendUnusable(
            f'The WAL of {file.path} cannot be emptied, because other connections still read the WAL: try again later.'
        )


def _use_wal(connection: sqlite3.Connection, until: float) -> str:
    """Switch to the WAL, with retries: two processes at once may both get "busy" at once.

    The setting for returning free pages comes first: SQLite accepts the setting only before the first page.
    """
    while True:
        try:
            if not connection.execute('PRAGMA page_count').fetchone()[0]:
                connection.execute(_SHRINKS)
            return connection.execute('PRAGMA journal_mode = WAL').fetchone()[0]
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > until:
                raise
        time.sleep(_PAUSE)
