"""What one process has of a SQLite file: its threads, its readers, who listens, and what it notices of the others.

Threads and tails belong to a process, and a fork makes another one: nothing here is used by more than one.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import Context
from functools import partial
from os import getpid
from typing import Any, NamedTuple

from ..types import TaskEvent
from . import notice, views
from .notice import WATCH
from .sqlite_connect import SqliteFile, connect
from .sqlite_lane import Job, Lane, commit, read
from .sqlite_steps import perform
from .tail import Tails
from .transaction import Transaction

__all__ = ('Answer', 'Listener', 'Process')

logger = logging.getLogger('pydantic_ai_a2a')

_INTERVAL = 0.025
"""Seconds between two looks at whether another process has written."""
_LATER = 1.0
"""Seconds until the next look after one that failed."""
_READERS = 2
"""Connections that only read: one long list does not hold up everything."""


class Listener(NamedTuple):
    """A worker of this process."""

    loop: asyncio.AbstractEventLoop
    on_ready: Callable[[str | None], object]
    on_cancel: Callable[[str], object]


class Answer:
    """Brings the outcome of a job to the coroutine that waits for it.

    Args:
        undo: Given a result that nobody waits for any longer.
    """

    def __init__(self, undo: Callable[[Any], object] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[Any] = self._loop.create_future()
        self._undo = undo

    def __call__(self, result: Any, error: BaseException | None) -> None:
        """Answer, from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._settle, result, error)
        except RuntimeError:  # the loop is closed
            self._unclaimed(result, error)

    def _settle(self, result: Any, error: BaseException | None) -> None:
        if self._future.done():
            self._unclaimed(result, error)
        elif error is not None:
            self._future.set_exception(error)
        else:
            self._future.set_result(result)

    def _unclaimed(self, result: Any, error: BaseException | None) -> None:
        if error is None and self._undo is not None:
            self._undo(result)

    async def wait(self) -> Any:
        """The result, or the error raised."""
        try:
            return await self._future
        except asyncio.CancelledError:
            if not self._future.cancelled():  # it came together with the cancellation
                error = self._future.exception()
                self._unclaimed(None if error is not None else self._future.result(), error)
            raise


class Process:
    """One process's part in one namespace of a file."""

    def __init__(self, file: SqliteFile, namespace: str, reader_lag: int) -> None:
        self.pid = getpid()
        self.tails = Tails(self._read_events, reader_lag, self._wake)
        self.listeners: list[Listener] = []
        self.writer = Lane('pydantic_ai_a2a writer', partial(connect, file), commit, _Polling(self))
        self._readers = [Lane('pydantic_ai_a2a reader', partial(connect, file), read) for _ in range(_READERS)]
        self._namespace = namespace
        self._newest: Mapping[str, int | None] = {}
        """The newest events of the tasks that are watched here, as they were last noticed."""
        self._elsewhere: Mapping[str, int] = {}
        """Tasks with a reader in some process, and until when that is known (ms)."""
        self._ready = False
        """Whether a task waited to be run at the last look."""
        self._marked: dict[str, int] = {}
        """Tasks whose readers here the other processes know of, and until when (ms)."""

    def stop(self) -> None:
        """Close the connections; in another process than this one's they are not to be touched."""
        if self.pid == getpid():
            for lane in (self.writer, *self._readers):
                lane.stop()

    async def read(self, make: Callable[[], Transaction[Any]]) -> Any:
        """Run a transaction that only reads."""
        answer = Answer()
        min(self._readers, key=len).put(Job(make, answer))
        return await answer.wait()

    def _wake(self) -> None:
        self.writer.wake()

    def do(self, make: Callable[[], Transaction[Any]]) -> None:
        """Run a transaction for which nobody waits."""
        self.writer.put(Job(make, _log_failure))

    async def _read_events(self, task_id: str, after: int, limit: int) -> list[TaskEvent]:
        return await self.read(partial(views.events_after, self._namespace, task_id, after, limit))

    # --- who is interested ------------------------------------------------------------------------------------------

    def live(self) -> bool:
        """Whether a worker listens whose loop has not ended."""
        return any(not listener.loop.is_closed() for listener in self.listeners)

    def interested(self) -> bool:
        """Whether anybody here has to know what the others write."""
        return bool(self.listeners) or self.tails.in_use

    def watched(self, task_id: str) -> bool:
        """Whether a task has a reader here or, as far as is known, in another process."""
        return self.tails.watched(task_id) or self._elsewhere.get(task_id, 0) > _now()

    def will_mark(self, task_id: str, until: int) -> None:
        """Remember that a mark is being written with the task."""
        self._marked[task_id] = until

    # --- what the others write --------------------------------------------------------------------------------------

    def notice(self, connection: sqlite3.Connection) -> bool:
        """See what has been written, and tell whom it concerns; whether to look again soon.

        A task that waits is left to the process that took its message until the next look, because it may run there in
        the context of its request.
        """
        connection.execute('BEGIN')
        try:
            noticed = perform(connection, notice.look(self._namespace, self.tails.awaited_tasks(), _now()))
        finally:
            connection.rollback()
        before, self._newest = self._newest, noticed.newest
        for task_id, newest in noticed.newest.items():
            if task_id not in before or before[task_id] != newest:
                self.tails.hint(task_id, newest)
        self._elsewhere = noticed.watched
        still_ready, self._ready = noticed.ready and self._ready, noticed.ready
        for listener in tuple(self.listeners):
            for task_id in noticed.canceled:
                _call(listener.loop, listener.on_cancel, task_id)
            if still_ready:
                _call(listener.loop, listener.on_ready, None)
        return noticed.ready and not still_ready

    def mark(self) -> None:
        """Tell the others of the tasks that are read here, before they forget."""
        now = _now()
        marked = {task_id: self._marked.get(task_id, 0) for task_id in self.tails.read_tasks()}
        due = [task_id for task_id, until in marked.items() if until < now + WATCH // 2]
        if due:
            self.do(partial(notice.mark, self._namespace, due, now + WATCH))
        self._marked = marked | dict.fromkeys(due, now + WATCH)


class _Polling:
    """Looks for what other processes have written. SQLite says cheaply whether any has, to a connection that writes."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._next = 0.0
        self._version: tuple[sqlite3.Connection, int] | None = None
        """Each connection counts for itself."""
        self._again = False

    def due(self) -> float | None:
        """See `Poll.due`."""
        return max(0.0, self._next - time.monotonic()) if self._process.interested() else None

    def __call__(self, connection: sqlite3.Connection) -> None:
        """Look, if it is time."""
        if self.due() != 0.0:
            return
        self._next = time.monotonic() + _INTERVAL
        try:
            version = connection, connection.execute('PRAGMA data_version').fetchone()[0]
            if version != self._version or self._again:
                self._again = self._process.notice(connection)
                self._version = version
        except sqlite3.Error:
            logger.exception('What other processes have written cannot be read; it is tried again in a moment.')
            self._next += _LATER
        self._process.mark()


def _call(loop: asyncio.AbstractEventLoop, callback: Callable[[Any], object], value: str | None) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(callback, value, context=Context())


def _log_failure(result: Any, error: BaseException | None) -> None:
    if error is not None:
        logger.error('A write for which nobody waits has failed.', exc_info=error)


def _now() -> int:
    return time.time_ns() // 1_000_000
