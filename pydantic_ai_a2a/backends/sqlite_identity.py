"""Notices when a SQLite file is deleted or replaced while this process has it open, and when others can read it."""

from __future__ import annotations

import logging
import os
import sqlite3
from threading import Lock

from ..clock import SYSTEM, Clock
from ..errors import StoreUnavailable
from .sqlite_connect import SqliteFile, connect
from .sqlite_lane import Job, Work

__all__ = ('OpenedFile',)

logger = logging.getLogger('pydantic_ai_a2a')

_OTHERS = 0o044
"""Permission of group and others to read."""


class OpenedFile:
    """One file, as the connections of one process have opened it.

    What is written to a file without a name is lost when the process ends, so nothing is read or written while another
    file, or none, has the name.

    Args:
        file: The file.
        clock: Measures leases.
    """

    def __init__(self, file: SqliteFile, clock: Clock = SYSTEM) -> None:
        self._file = file
        self._clock = clock
        self._lock = Lock()
        self._identity: tuple[int, int] | None = None
        """Device and inode, once there is a connection."""

    def connect(self, *, writes: bool = False) -> sqlite3.Connection:
        """Open a connection; see `connect` for `writes`.

        Raises:
            BackendUnusable: See `connect`.
            StoreUnavailable: It would be to another file than the connections before.
        """
        with self._lock:
            if self._identity is not None:
                self._check()
                return connect(self._file, clock=self._clock, writes=writes)
            connection = connect(self._file, clock=self._clock, writes=writes)
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
        """The work of a lane, refused while the file is not there."""

        def checked(connection: sqlite3.Connection, jobs: list[Job]) -> None:
            try:
                self._check()
            except StoreUnavailable as error:
                for job in jobs:
                    job.done(None, StoreUnavailable(error.detail))
            else:
                work(connection, jobs)

        return checked

    def _check(self) -> None:
        try:
            status = self._file.path.stat()
            found = status.st_dev, status.st_ino
        except OSError:
            found = None
        if found != self._identity:
            happened = 'deleted' if found is None else 'replaced by another file'
            raise StoreUnavailable(
                f'{self._file.path} was {happened} while it is open. Put the file back, or restart this process.'
            )
