"""All ports over one SQLite file, which several processes may share. Nothing is opened before the first use."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Coroutine
from functools import partial
from os import getpid
from typing import Any

from ...clock import SYSTEM, Clock
from ...types import TaskEvent
from ..events import EventBus, ThreadFuture
from ..ports import Swept
from ..shared import Peers, SharedBackend
from ..sql import reads
from ..sql.database import BoundWrite, WriteKind
from ..sql.transaction import Transaction
from .connect import (
    NOTE_CLOCK,
    ConnectionThread,
    OpenedFile,
    QueuedTransaction,
    SqliteFile,
    check_version,
    commit,
    give_back,
    perform,
    read,
    vacuum,
)


def _after_sweep() -> Transaction[None]:
    yield NOTE_CLOCK, ()
    yield from give_back()


_AFTER_SWEEP = WriteKind(_after_sweep)


class SqliteProcess:
    """One process's part in one namespace of a file."""

    def __init__(self, file: SqliteFile, namespace: str, reader_lag: int, clock: Clock) -> None:
        self.pid = getpid()
        self.event_bus = EventBus(self._read_events, reader_lag, self._begin_use)
        self.peers = Peers(self.event_bus, clock.steady)
        self._opened = opened = OpenedFile(file, clock)
        writing = partial(opened.connect, writes=True)
        self._writer = ConnectionThread('pydantic_ai_a2a writer', writing, opened.guarded(commit), _Polling(self))
        reading = opened.guarded(read)
        self._readers = [ConnectionThread('pydantic_ai_a2a reader', opened.connect, reading) for _ in range(_READERS)]
        self._namespace = namespace

    def stop(self) -> None:
        """Close the connections. Does nothing in a forked child, which must not touch them."""
        if self.pid == getpid():
            for thread in (self._writer, *self._readers):
                thread.stop()
            self._opened.closed()

    def read(self, make: Callable[[], Transaction[Any]]) -> Coroutine[Any, Any, Any]:
        """Run a read-only transaction."""
        answer = ThreadFuture()
        min(self._readers, key=len).put(QueuedTransaction(make, answer))
        return answer.wait()

    def write(self, write: BoundWrite[Any]) -> Coroutine[Any, Any, Any]:
        """Run a transaction, publish the events in the order of commits, and return the result."""

        def publish(result: Any) -> None:
            for task_id, events in write.published(result):
                self.event_bus.publish(task_id, events)

        answer = ThreadFuture(write.kind.undo and (lambda result: self.do(write.undo(result).make)))
        self._writer.put(QueuedTransaction(write.make, answer, publish), first=write.kind.first)
        return answer.wait()

    def wake(self) -> None:
        """Poll now for writes of other processes, if a reader or worker waits."""
        self._writer.wake()

    def _begin_use(self) -> None:
        """Poll for writes of other processes for a reader or a waiting caller. With a worker, the writer polls."""
        if not (self.peers.listeners and self._writer.running):
            self.wake()

    def do(self, make: Callable[[], Transaction[Any]]) -> None:
        """Run a transaction without waiting for the result."""
        self._writer.put(QueuedTransaction(make, _log_failure))

    def keep(self, kept: reads.Kept, answer: Callable[[Any, BaseException | None], None]) -> None:
        """Write the rows of this process."""
        self._writer.put(QueuedTransaction(partial(reads.keep, self._namespace, self.peers.id, kept), answer))

    async def _read_events(self, task_id: str, after: int, limit: int) -> list[TaskEvent]:
        return await self.read(partial(reads.events_after, self._namespace, task_id, after, limit))

    # --- what the others write --------------------------------------------------------------------------------------

    def notice(self, connection: sqlite3.Connection) -> bool:
        """Read new writes and notify readers and workers. Return True to poll again soon."""
        connection.execute('BEGIN')
        try:
            noticed = perform(connection, reads.look(self._namespace, self.peers.id))
        finally:
            connection.rollback()
        return self.peers.tell(noticed)


class SqliteFileBackend(SharedBackend[SqliteProcess]):
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
        self._reader_lag = reader_lag
        self.clock = clock
        super().__init__(str(file.path.resolve()), namespace)

    @property
    def settings(self) -> SqliteFile:
        return self._file

    def _make_process(self) -> SqliteProcess:
        return SqliteProcess(self._file, self.namespace, self._reader_lag, self.clock)

    async def after_sweep(self, swept: Swept) -> None:
        """Give back free pages, and note the clock in the file."""
        await self.write(_AFTER_SWEEP)

    async def compact(self) -> None:
        await asyncio.to_thread(vacuum, self._file)


# --- one process's part of a SQLite file ------------------------------------------------------------------------------
# Threads, readers, workers, and a poll for writes of other processes.
#
# A forked child process makes a new instance: threads do not survive a fork.

logger = logging.getLogger('pydantic_ai_a2a')

_INTERVAL = 0.025
"""Seconds between two polls for writes of other processes."""
_LATER = 1.0
"""Seconds until the next poll after a failed poll."""
_READERS = 2
"""Number of read-only connections: a long list does not block other reads."""


class _Polling:
    """Polls for writes of other processes: `data_version` of a writing connection is cheap to read."""

    def __init__(self, process: SqliteProcess) -> None:
        self._process = process
        self._next = 0.0
        self._version: tuple[sqlite3.Connection, int] | None = None
        """The connection and the last seen version; each connection has an own count."""
        self._again = False

    def due(self) -> float | None:
        """See `Poll.due`."""
        return max(0.0, self._next - time.monotonic()) if self._process.peers.interested() else None

    def __call__(self, connection: sqlite3.Connection) -> None:
        """Poll, if a poll is due."""
        if self.due() != 0.0:
            return
        self._next = time.monotonic() + _INTERVAL
        try:
            version = connection, connection.execute('PRAGMA data_version').fetchone()[0]
            if version != self._version or self._again:
                self._again = self._process.notice(connection)
                self._version = version
        except Exception:  # the thread of all writes goes on
            logger.exception('Changes of other processes could not be read; the next try follows in a moment.')
            self._next += _LATER
        if (kept := self._process.peers.to_keep()) is not None:
            self._process.keep(kept, partial(self._kept, kept))

    def _kept(self, kept: reads.Kept, result: None, error: BaseException | None) -> None:
        _log_failure(result, error)
        if error is not None:
            self._next = time.monotonic() + _LATER
        elif self._process.peers.kept(kept):
            self._again = True  # others may have written before they could know


def _log_failure(result: Any, error: BaseException | None) -> None:
    if error is not None:
        logger.error('A write in the background failed.', exc_info=error)
