"""All ports over one SQLite file, which several processes may share. Nothing is opened before the first use.

`SqliteProcess` has the threads, readers and workers of one process, and a poll for writes of other processes. A forked
child process makes a new instance: threads do not survive a fork.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import sqlite3
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any
from urllib.parse import quote

from ....clock import SYSTEM, Clock
from ..database_backend import DatabaseBackend, Process
from ..ports import Swept
from ..sql import peers
from ..sql.transaction import ContextKey, Transaction, done_of
from ..thread_future import ThreadFuture
from .connect import NOTE_CLOCK
from .connection_thread import ConnectionThread, Work
from .execution import perform
from .free_pages import give_back
from .job_batches import QueuedTransaction, commit, read
from .library_version import check_version
from .opened_file import OpenedFile
from .settings import SqliteFile
from .vacuum import vacuum

logger = logging.getLogger('pydantic_ai_a2a')

_INTERVAL = 0.025
"""Seconds between two polls for writes of other processes."""
LATER = 1.0
"""Seconds until the next poll after a failed poll."""
_READERS = 2
"""Number of read-only connections: a long list does not block other reads."""


def _after_sweep() -> Transaction[None]:
    yield NOTE_CLOCK, ()
    yield from give_back()


class SqliteProcess(Process):
    """The threads, readers and workers of one process, for one namespace of a file."""

    def __init__(self, file: SqliteFile, namespace: str, reader_lag: int, clock: Clock) -> None:
        super().__init__(namespace, reader_lag, clock)
        self._opened = opened = OpenedFile(file, clock)
        self._writer = _WriterThread(self, partial(opened.connect, writes=True), opened.guarded(commit))
        reading = opened.guarded(read)
        self._readers = [ConnectionThread('pydantic_ai_a2a reader', opened.connect, reading) for _ in range(_READERS)]

    def close(self) -> None:
        for thread in (self._writer, *self._readers):
            thread.stop()
        self._opened.closed()

    def read(self, make: Callable[[], Transaction[Any]]) -> Coroutine[Any, Any, Any]:
        answer = ThreadFuture()
        min(self._readers, key=len).put(QueuedTransaction(make, answer))
        return answer.wait()

    def write(
        self, make: partial[Transaction[Any]], context: ContextKey | None, *, first: bool
    ) -> Coroutine[Any, Any, Any]:
        # A file has one writer, and needs no locks.
        answer = ThreadFuture(self._take_back)
        self._writer.put(QueuedTransaction(make, answer, self._publish), first=first)
        return answer.wait()

    def _publish(self, result: Any) -> None:
        for task_id, events in done_of(result).events:
            self.event_bus.publish(task_id, events)

    def _take_back(self, result: Any) -> None:
        """Undo a write whose caller has gone."""
        if (undo := done_of(result).undo) is not None:
            self._writer.put(QueuedTransaction(undo, _log_failure))

    def wake(self) -> None:
        self._writer.wake()

    @property
    def looks(self) -> bool:
        return self._writer.running


class SqliteFileBackend(DatabaseBackend[SqliteProcess]):
    """Tasks and conversations in a file: they outlive the process.

    Args:
        file: The file.
        namespace: Stable name under which the tasks are stored.
        reader_lag: Bytes that a reader may be behind.
        clock: Measures leases and gives timestamps. All processes that share the file need the same clock.

    Raises:
        RuntimeError: The SQLite library is too old.
        BackendUnusable: A running app of this process has this namespace of this file.
    """

    store = 'SQLite file'

    def __init__(self, file: SqliteFile, namespace: str, *, reader_lag: int, clock: Clock = SYSTEM) -> None:
        check_version()
        self._file = file
        self.clock = clock
        make_process = partial(SqliteProcess, file, namespace, reader_lag, clock)
        super().__init__(file, str(file.path.resolve()), namespace, make_process)
        self.target = shlex.join(['--backend', f'sqlite:///{quote(self.place)}'])

    async def after_sweep(self, swept: Swept) -> None:
        """Give back free pages, and note the clock in the file."""
        await self.write(_after_sweep)

    async def compact(self) -> None:
        await asyncio.to_thread(vacuum, self._file)


class _WriterThread(ConnectionThread):
    """Writes, and polls for writes of other processes: `data_version` of a writing connection is cheap to read."""

    def __init__(self, process: SqliteProcess, connect: Callable[[], sqlite3.Connection], work: Work) -> None:
        super().__init__('pydantic_ai_a2a writer', connect, work)
        self._process = process
        self._next = 0.0
        self._version: tuple[sqlite3.Connection, int] | None = None
        """The connection and the last seen version; each connection has an own count."""
        self._again = False

    def due(self) -> float | None:
        return max(0.0, self._next - time.monotonic()) if self._process.peers.interested() else None

    def poll(self, connection: sqlite3.Connection) -> None:
        if self.due() != 0.0:
            return
        self._next = time.monotonic() + _INTERVAL
        try:
            version = connection, connection.execute('PRAGMA data_version').fetchone()[0]
            if version != self._version or self._again:
                self._again = self._notice(connection)
                self._version = version
        except Exception:  # the thread of all writes goes on
            logger.exception('Changes of other processes could not be read; the next try follows in a moment.')
            self._next += LATER
        if (kept := self._process.peers.to_keep()) is not None:
            keep = partial(peers.keep, self._process.namespace, self._process.peers.id, kept)
            self.put(QueuedTransaction(keep, partial(self._kept, kept)))

    def _notice(self, connection: sqlite3.Connection) -> bool:
        """Read new writes and notify readers and workers. Return True to poll again soon."""
        connection.execute('BEGIN')
        try:
            noticed = perform(connection, peers.look(self._process.namespace, self._process.peers.id))
        finally:
            connection.rollback()
        return self._process.peers.tell(noticed)

    def _kept(self, kept: peers.Kept, result: None, error: BaseException | None) -> None:
        _log_failure(result, error)
        if error is not None:
            self._next = time.monotonic() + LATER
        elif self._process.peers.kept(kept):
            self._again = True  # others may have written before they could know


def _log_failure(result: Any, error: BaseException | None) -> None:
    if error is not None:
        logger.error('A write in the background failed.', exc_info=error)
