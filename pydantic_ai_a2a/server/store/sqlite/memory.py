"""All ports in memory: the statements of the other stores, on a SQLite database without a file.

In memory means one process and no durability. The calling thread does all work under one lock, so that several threads
and event loops may use one app.

A finished task with a short message and an answer of 200 characters takes 3.9 kB: 1.2 kB for its row, with the message
and twice the answer, 1.0 kB for two model messages, 0.4 kB for the conversation, and 0.5 kB for nine keys and indexes.
The rest is free space in pages, headers of pages, and gaps between pages.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from threading import RLock
from typing import ParamSpec, TypeVar
from weakref import finalize

from ....clock import SYSTEM, Clock
from ....errors import OverloadedError
from ....types.stored_events import TaskEvent
from ..event_bus import EventBus
from ..model_messages import prepare
from ..ports import Swept
from ..sql import event_log
from ..sql.backend import SqlBackend
from ..sql.database import WorkerCallbacks
from ..sql.migrations import MIGRATIONS, missing
from ..sql.transaction import Done, Transaction, done_of
from .execution import perform, tell_time
from .free_pages import PAGES, SHRINKS, give_back
from .library_version import check_version

P = ParamSpec('P')
T = TypeVar('T')

_COPIES = 4
"""Copies of a message: in the task, in the conversation, and in later values."""
_ROW = 16_384
"""The least bytes of a message with all that follows from it: a page in each of some tables and indexes."""
_STATEMENTS = 512
"""Prepared statements of the connection: more than the package has."""


class MemoryBackend(SqlBackend):
    """Tasks and conversations in the memory of one process.

    Args:
        namespace: Name of the agent; a backend in memory serves one agent.
        reader_lag: Bytes that a reader may be behind.
        max_bytes: Limit of the stored bytes; None for none.
        clock: Measures leases and gives timestamps.

    Raises:
        RuntimeError: The SQLite library is too old.
    """

    durable = False

    def __init__(self, namespace: str, *, reader_lag: int, max_bytes: int | None = None, clock: Clock = SYSTEM) -> None:
        check_version()
        self.clock = clock
        self._event_bus = EventBus(self._read_events, reader_lag)
        self._max_bytes = max_bytes
        self._empty = 0
        self._lock = RLock()
        self._workers: list[WorkerCallbacks] = []
        super().__init__(namespace)

    @property
    def event_bus(self) -> EventBus:
        return self._event_bus

    @cached_property
    def _connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            ':memory:', check_same_thread=False, isolation_level=None, cached_statements=_STATEMENTS
        )
        finalize(self, connection.close)
        connection.execute(SHRINKS)
        connection.execute('PRAGMA temp_store = MEMORY')  # a sort of long messages would be written to the disk
        tell_time(connection, self.clock)
        perform(connection, missing(MIGRATIONS))
        self._empty = _used(connection)
        return connection

    @property
    def workers(self) -> Sequence[WorkerCallbacks]:
        return self._workers

    async def read(self, make: Callable[P, Transaction[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._lock:
            return perform(self._connection, make(*args, **kwargs))

    async def write(self, make: Callable[P, Transaction[Done[T] | T]], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._lock:
            connection = self._connection
            try:
                connection.execute('BEGIN')
                done = done_of(perform(connection, make(*args, **kwargs)))
                connection.execute('COMMIT')
            except BaseException:
                connection.rollback()
                raise
            for task_id, events in done.events:  # under the lock: in the order of commits
                self._event_bus.publish(task_id, events)
        return done.value

    async def after_sweep(self, swept: Swept) -> None:
        """Give back memory after the last batch: SQLite alone would keep it for the next rows."""
        given_back = 0 if swept.full else PAGES
        while given_back == PAGES:
            await asyncio.sleep(0)
            given_back = await self.write(give_back)

    async def _read_events(self, task_id: str, after: int, limit: int) -> list[TaskEvent] | None:
        return await self.read(partial(event_log.events_after, self.namespace, task_id, after, limit))

    @property
    def size(self) -> int:
        """The bytes of the pages in use, without those of empty tables."""
        with self._lock:
            return _used(self._connection) - self._empty

    def take_room(self, size: int) -> None:
        if self._max_bytes is not None and self.size + _COPIES * size + _ROW > self._max_bytes:
            raise OverloadedError(headers={'Retry-After': '60'})

    def listen(self, on_ready: Callable[[str], None], on_cancel: Callable[[str], None]) -> Callable[[], None]:
        prepare()
        worker = WorkerCallbacks(asyncio.get_running_loop(), on_ready, on_cancel)
        self._workers.append(worker)
        return partial(self._workers.remove, worker)

    def close(self) -> None:
        """Do nothing: an app that starts again has its tasks. The database goes with the backend."""


def _used(connection: sqlite3.Connection) -> int:
    pages, free, page = (
        connection.execute(f'PRAGMA {name}').fetchone()[0] for name in ('page_count', 'freelist_count', 'page_size')
    )
    return (pages - free) * page
