"""The in-memory backend: one SQLite connection in memory, used directly by the calling thread.

In memory means one process and no durability; every statement takes microseconds, so nothing is handed to a thread.
The lock keeps transactions whole when several threads use one app, as notebooks and tests do.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain
from threading import RLock
from typing import ParamSpec, TypeVar
from weakref import finalize

from pydantic_ai.messages import ModelMessage

from ..clock import SYSTEM, Clock
from ..ports import Backend
from ..types import TaskEvent
from .event_bus import EventBus
from .memory_budget import COPIES, ROW, MemoryBudget
from .sql import contexts, reads, vocabulary
from .sql.conversations import SqlConversationStore, prepare
from .sql.database import WriteKind
from .sql.histories import Histories
from .sql.migrations import MIGRATIONS
from .sql.ports import SqlEvents, SqlHousekeeping, SqlQueue, SqlQuotas, SqlReader
from .sql.push_ports import Due, SqlOutbox, SqlPushConfigs
from .sqlite.steps import check_version, perform, tell_time

__all__ = ('SqliteBackend',)

P = ParamSpec('P')
T = TypeVar('T')


class SqliteBackend(Backend):
    """All ports over one SQLite database in memory."""

    durable = False

    def __init__(self, namespace: str, *, reader_lag: int, max_bytes: int | None = None, clock: Clock = SYSTEM) -> None:
        check_version()
        self.clock = clock
        self.namespace = namespace
        self.event_bus = EventBus(self.read_events, reader_lag)
        self.ready_listeners: list[Callable[[str], None]] = []
        self.cancel_listeners: list[Callable[[str], None]] = []
        self.lock = RLock()
        """Held from a transaction's begin until its events are published, so that they are in order for readers."""
        self._histories = Histories()
        due = Due()
        self._budget = None if max_bytes is None else MemoryBudget(max_bytes, self._bytes)
        self.queue = SqlQueue(self, due, self._budget)
        self.reader = SqlReader(self)
        self.events = SqlEvents(self)
        self.housekeeping = SqlHousekeeping(self)
        self.quotas = SqlQuotas(self)
        self.push_configs, self.outbox = SqlPushConfigs(self, due), SqlOutbox(self, due)

    @cached_property
    def _connection(self) -> sqlite3.Connection:
        """Opened by the first statement, so that an app can be made before a fork."""
        connection = sqlite3.connect(':memory:', check_same_thread=False)
        finalize(self, connection.close)
        tell_time(connection, self.clock)
        for statement in chain.from_iterable(MIGRATIONS):
            connection.execute(statement)
        connection.commit()  # sqlite3 begins a transaction before each UPDATE
        prepare()
        return connection

    def _bytes(self) -> int:
        used = 'SELECT (page_count - freelist_count) * page_size FROM'
        pragmas = 'pragma_page_count(), pragma_freelist_count(), pragma_page_size()'
        with self.lock:
            return self._connection.execute(f'{used} {pragmas}').fetchone()[0]

    def run(self, transaction: vocabulary.Transaction[T]) -> T:
        """Run a transaction: commit, or roll back."""
        with self.lock:
            return self._run(transaction)

    def _run(self, transaction: vocabulary.Transaction[T]) -> T:
        connection = self._connection
        try:
            result = perform(connection, transaction)
            if connection.in_transaction:  # which the first write began
                connection.commit()
        except BaseException:
            connection.rollback()
            raise
        return result

    async def read(self, make: Callable[P, vocabulary.Transaction[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Database.read`."""
        with self.lock:
            return self._run(make(*args, **kwargs))

    async def write(self, kind: WriteKind[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Database.write`."""
        with self.lock:
            result = self._run(kind.make(*args, **kwargs))
            if kind.published is not None:
                for task_id, events in kind.published(result, *args, **kwargs):
                    self.event_bus.publish(task_id, events)
        return result

    async def read_events(self, task_id: str, after: int, limit: int) -> list[TaskEvent]:
        """Stored events after a number."""
        return self.run(reads.events_after(self.namespace, task_id, after, limit, checks=False))

    def take_room(self, size: int) -> None:
        if self._budget is not None:
            self._budget.measure(COPIES * size + ROW)

    def conversations(self, owner: str) -> SqlConversationStore:
        return SqlConversationStore(self, self.namespace, owner)

    async def context(self, owner: str, context_id: str, head: str) -> Sequence[ModelMessage]:
        return await self._histories.read(self.conversations(owner), owner, context_id, head)

    async def queued(self) -> bool:
        return await self.read(contexts.any_queued, self.namespace)

    def forget(self, owner: str, context_id: str | None = None) -> None:
        """See `Database.forget`."""
        self._histories.forget(owner, context_id)

    def listen(self, on_ready: Callable[[str], None], on_cancel: Callable[[str], None]) -> Callable[[], None]:
        self.ready_listeners.append(on_ready)
        self.cancel_listeners.append(on_cancel)

        def stop() -> None:
            self.ready_listeners.remove(on_ready)
            self.cancel_listeners.remove(on_cancel)

        return stop

    def close(self) -> None:
        self._connection.close()
