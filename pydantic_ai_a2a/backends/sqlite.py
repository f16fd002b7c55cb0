"""SQLite: one connection in memory, used directly by whoever calls. Runs the transactions of `sql`; decides nothing.

In memory means one process and no durability; every statement takes microseconds, so nothing is handed to a thread.
The lock keeps transactions whole when several threads use one app, as notebooks and tests do.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from functools import cached_property
from threading import RLock
from typing import Any, TypeVar
from weakref import finalize

from pydantic_ai.conversation_store import ConversationStore

from ..ports import (
    Accepted,
    Backend,
    Claim,
    EventLog,
    Finish,
    Housekeeping,
    Marks,
    Status,
    Submission,
    Subscription,
    TaskQueue,
    TaskReader,
)
from ..settings import Retention
from ..types import Page, StoredTask, TaskEvent, TaskHeader, TaskQuery
from . import accept, runs, sql, sweep, views
from .conversations import SqlConversationStore, prepare
from .schema import SCHEMA
from .tail import Tails

__all__ = ('SqliteBackend',)

T = TypeVar('T')
_MINIMUM = (3, 35, 0)


class SqliteBackend(Backend):
    """All ports over one SQLite database in memory."""

    durable = False

    def __init__(self, namespace: str, *, reader_lag: int) -> None:
        if sqlite3.sqlite_version_info < _MINIMUM:
            raise RuntimeError(f'SQLite {sqlite3.sqlite_version} is too old; 3.35 or later is needed (RETURNING).')
        self.namespace = namespace
        self.tails = Tails(self.read_events, reader_lag)
        self.ready_listeners: list[Callable[[str], None]] = []
        self.cancel_listeners: list[Callable[[str], None]] = []
        self.lock = RLock()
        """Held from a transaction's begin until its events are published, so that they are in order for readers."""
        self.queue = _Queue(self)
        self.reader = _Reader(self)
        self.events = _Events(self)
        self.housekeeping = _Housekeeping(self)

    @cached_property
    def _connection(self) -> sqlite3.Connection:
        """Opened by the first statement, so that an app can be made before a fork."""
        connection = sqlite3.connect(':memory:', isolation_level=None, check_same_thread=False)
        finalize(self, connection.close)
        for statement in SCHEMA:
            connection.execute(statement)
        prepare()
        return connection

    def run(self, transaction: sql.Transaction[T]) -> T:
        """Run a transaction, and commit it or leave nothing of it behind."""
        with self.lock:
            execute = self._connection.execute
            execute('BEGIN')
            try:
                result = self._drive(transaction)
                execute('COMMIT')
            except BaseException:
                execute('ROLLBACK')
                raise
            return result

    def run_bare(self, transaction: sql.Transaction[T]) -> T:
        """Run a transaction that only reads, or writes with a single statement: the lock is all that it needs."""
        with self.lock:
            return self._drive(transaction)

    def _drive(self, transaction: sql.Transaction[T]) -> T:
        execute, execute_many = self._connection.execute, self._connection.executemany
        try:
            statement, values = next(transaction)
            while True:
                if type(values) is list:
                    execute_many(statement, values)
                    statement, values = transaction.send([])
                else:
                    statement, values = transaction.send(execute(statement, values).fetchall())
        except StopIteration as stop:
            return stop.value

    async def read_events(self, task_id: str, after: int, limit: int) -> list[TaskEvent]:
        """Stored events after a number."""
        return self.run_bare(views.events_after(self.namespace, task_id, after, limit))

    def conversations(self, owner: str) -> ConversationStore:
        async def run(transaction: sql.Transaction[Any]) -> Any:
            return self.run(transaction)

        return SqlConversationStore(run, self.namespace, owner)

    def listen(self, on_ready: Callable[[str], None], on_cancel: Callable[[str], None]) -> Callable[[], None]:
        self.ready_listeners.append(on_ready)
        self.cancel_listeners.append(on_cancel)

        def stop() -> None:
            self.ready_listeners.remove(on_ready)
            self.cancel_listeners.remove(on_cancel)

        return stop

    def close(self) -> None:
        self._connection.close()


class _Queue(TaskQueue):
    def __init__(self, backend: SqliteBackend) -> None:
        self._backend = backend
        self._agent = backend.namespace

    async def submit(self, submission: Submission, *, queue_limit: int, idempotency_window: int) -> Accepted:
        with self._backend.lock:
            accepted, events = self._backend.run(
                accept.submit(self._agent, submission, queue_limit=queue_limit, idempotency_window=idempotency_window)
            )
            self._backend.tails.publish(accepted.header.id, events)
        if not accepted.replayed and accepted.header.state == 'submitted':
            for listener in tuple(self._backend.ready_listeners):
                listener(accepted.header.id)
        return accepted

    async def cancel(self, task_id: str, owner: str | None, *, at: int, force: bool = False) -> TaskHeader:
        with self._backend.lock:
            header, events = self._backend.run(accept.cancel(self._agent, task_id, owner, at=at, force=force))
            self._backend.tails.publish(task_id, events)
        for listener in tuple(self._backend.cancel_listeners):
            listener(task_id)
        return header

    async def claim(self, holder: str, *, at: int, until: int, limit: int, task_id: str | None = None) -> list[Claim]:
        with self._backend.lock:
            taken = self._backend.run(runs.claim(self._agent, holder, at=at, until=until, limit=limit, task_id=task_id))
            for claim, events in taken:
                self._backend.tails.publish(claim.header.id, events)
        return [claim for claim, _ in taken]

    async def renew(self, holder: str, tasks: Sequence[str], *, until: int) -> Marks:
        return self._backend.run(runs.renew(self._agent, holder, tasks, until=until))

    async def emit(self, claim: Claim, events: Sequence[TaskEvent], status: Status | None = None) -> None:
        with self._backend.lock:
            run = self._backend.run_bare if len(events) == 1 and status is None else self._backend.run
            run(runs.emit(self._agent, claim, events, status))
            self._backend.tails.publish(claim.header.id, events)

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        with self._backend.lock:
            following, events = self._backend.run(runs.finish(self._agent, claim, finish))
            self._backend.tails.publish(claim.header.id, events)
        return following

    async def release(self, claim: Claim) -> None:
        self._backend.run(runs.release(self._agent, claim))


class _Reader(TaskReader):
    def __init__(self, backend: SqliteBackend) -> None:
        self._backend = backend

    async def load(
        self, task_id: str, owner: str | None, *, history_length: int | None = None, artifacts: bool = True
    ) -> StoredTask | None:
        return self._backend.run_bare(
            views.load(self._backend.namespace, task_id, owner, history_length=history_length, artifacts=artifacts)
        )

    async def list(self, query: TaskQuery) -> Page:
        return self._backend.run_bare(views.page(self._backend.namespace, query))


class _Events(EventLog):
    def __init__(self, backend: SqliteBackend) -> None:
        self._backend = backend
        self._tails = backend.tails

    def subscribe(self, task_id: str, on_drop: Callable[[], object]) -> Subscription:
        return self._tails.subscribe(task_id, on_drop)

    async def wait(self, task_id: str, after: int) -> None:
        async def stopped() -> bool:
            return self._backend.run_bare(views.stopped_after(self._backend.namespace, task_id, after))

        await self._tails.wait(task_id, stopped)

    def watched(self, task_id: str) -> bool:
        return self._tails.watched(task_id)

    async def has(self, task_id: str, n: int) -> bool:
        return self._backend.run_bare(views.resumable(self._backend.namespace, task_id, n))


class _Housekeeping(Housekeeping):
    def __init__(self, backend: SqliteBackend) -> None:
        self._backend = backend

    async def sweep(self, retention: Retention, *, at: int) -> int:
        return self._tell(sweep.sweep(self._backend.namespace, retention, at))

    async def erase_task(self, task_id: str, owner: str | None, *, at: int) -> bool:
        return self._tell(sweep.erase_task(self._backend.namespace, task_id, owner, at))

    async def erase_context(self, context_id: str, owner: str, *, at: int) -> bool:
        return self._tell(sweep.erase_context(self._backend.namespace, context_id, owner, at))

    def _tell(self, transaction: sql.Transaction[tuple[T, sweep.Told]]) -> T:
        with self._backend.lock:
            result, told = self._backend.run(transaction)
            for task_id, event in told:
                self._backend.tails.publish(task_id, [event])
        return result
