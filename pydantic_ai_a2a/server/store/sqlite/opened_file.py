"""The identity of an opened SQLite file.

Notices when the file is deleted or replaced while this process has it open, and when others can read it.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from contextlib import suppress
from threading import Lock

from ....clock import SYSTEM, Clock
from ....errors import StoreUnavailable
from .connect import connect
from .connection_thread import Work
from .group_commit import QueuedTransaction
from .settings import SqliteFile

logger = logging.getLogger('pydantic_ai_a2a')

Identity = tuple[int, int]
_OTHERS = 0o044
"""Permission to read for group and world."""


class OpenedFile:
    """A file, as opened by the connections of this process.

    Writes to a deleted file are lost at exit, so the file is refused while its path is missing or names another file.

    Args:
        file: The file.
        clock: Measures leases.
    """

    def __init__(self, file: SqliteFile, clock: Clock = SYSTEM) -> None:
        self._file = file
        self._clock = clock
        self._lock = Lock()
        self._path = str(file.path)  # each transaction asks for the status, and a `Path` makes a string each time
        self._wal = f'{self._path}-wal'
        self._identity: Identity | None = None
        """Device and inode of the file, once there is a connection."""
        self._wal_identity: Identity | None = None
        """Device and inode of the WAL, while connections are open."""

    def connect(self, *, writes: bool = False) -> sqlite3.Connection:
        """Open a connection; see `connect` for `writes`.

        Raises:
            BackendUnusable: See `connect`.
            StoreUnavailable: It would be to another file than the connections before.
        """
        with self._lock:
            if self._identity is not None:
                self._check()
            connection = connect(self._file, clock=self._clock, writes=writes)
            self._wal_identity = self._wal_identity or _identity_of(self._wal)
            if self._identity is not None:
                return connection
            status = self._file.path.stat()
            self._identity = status.st_dev, status.st_ino
            if os.name == 'posix' and status.st_mode & _OTHERS:
                logger.warning(
                    'Other users of this machine can read the SQLite file %s (mode %04o): it holds what clients send,'
                    ' and the credentials of webhooks. Consider: chmod 600 %s',
                    self._file.path,
                    status.st_mode & 0o7777,
                    self._file.path,
                )
            return connection

    def guarded(self, work: Work) -> Work:
        """Return the work of a connection thread, refused while the file is deleted or replaced."""

        def checked(connection: sqlite3.Connection, jobs: list[QueuedTransaction]) -> None:
            try:
                self._check(connection)
            except StoreUnavailable as error:
                for job in jobs:
                    job.done(None, StoreUnavailable(error.detail))
            else:
                work(connection, jobs)

        return checked

    def closed(self) -> None:
        """All connections are closed. SQLite deletes the WAL with the last one, and the next one creates a new WAL."""
        self._wal_identity = None

    def _check(self, connection: sqlite3.Connection | None = None) -> None:
        identity = _identity_of(self._path)
        if identity != self._identity:
            happened = 'replaced by another file' if identity else 'deleted'
            raise StoreUnavailable(
                f'{self._path} was {happened} while it is open. Put the file back, or restart this process.'
            )
        if self._wal_identity and _identity_of(self._wal) != self._wal_identity:
            # SQLite deletes the WAL when another file with the name of the database is opened. This connection still
            # has the deleted WAL open. Later connections would lose its writes, so move the writes into the database
            # now.
            if connection is not None:
                with suppress(sqlite3.Error):
                    connection.execute('PRAGMA wal_checkpoint(TRUNCATE)')
            raise StoreUnavailable(f'{self._wal} was deleted or replaced while it is open. Restart this process.')


def _identity_of(path: str) -> Identity | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
