"""All ports over one SQLite file, which several processes may share. Nothing is opened before the first use.

Each process has threads and connections of its own, made when it first uses the backend: an app can be made before a
fork, and be used from several event loops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from os import getpid
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary, finalize

from pydantic_ai.messages import ModelMessage

from ..errors import BackendUnusable
from ..ports import Accepted, Backend, Submission
from .conversations import SqlConversationStore
from .database import Operation
from .histories import Histories
from .notice import WATCH
from .sql_ports import SqlEvents, SqlHousekeeping, SqlQueue, SqlReader
from .sqlite_connect import SqliteFile
from .sqlite_lane import Job
from .sqlite_process import Answer, Listener, Process
from .sqlite_steps import check_version
from .tail import Tails
from .transaction import Transaction

__all__ = ('SqliteFile', 'SqliteFileBackend')

P = ParamSpec('P')
T = TypeVar('T')

_listening: WeakValueDictionary[tuple[str, str], SqliteFileBackend] = WeakValueDictionary()
"""The backends that workers of this process listen to: one for each namespace of each file."""


class SqliteFileBackend(Backend):
    """Tasks and conversations in a file: they outlive the process.

    Args:
        file: The file.
        namespace: Stable name under which the tasks are stored.
        reader_lag: Bytes that a reader may be behind.

    Raises:
        RuntimeError: The SQLite library is too old.
        ValueError: A running app of this process has this namespace of this file.
    """

    durable = True
    flush_delay = 0.01

    def __init__(self, file: SqliteFile, namespace: str, *, reader_lag: int) -> None:
        check_version()
        self.namespace = namespace
        self._file = file
        self._reader_lag = reader_lag
        self._key = (str(file.path.resolve()), namespace)
        self._processes: dict[int, Process] = {}
        """By process id. That of a parent process is kept, because its connections must not be closed here."""
        self._histories = Histories()
        self.queue = _Queue(self)
        self.reader = SqlReader(self)
        self.events = _Events(self)
        self.housekeeping = SqlHousekeeping(self)
        self._check_alone()

    @property
    def process(self) -> Process:
        """What this process has of the file."""
        process = self._processes.get(getpid())
        if process is None:
            process = self._processes.setdefault(getpid(), Process(self._file, self.namespace, self._reader_lag))
            finalize(self, process.stop)
        return process

    @property
    def tails(self) -> Tails:
        """See `Database.tails`."""
        return self.process.tails

    @property
    def ready_listeners(self) -> Sequence[Callable[[str], object]]:
        """See `Database.ready_listeners`."""
        return [listener.on_ready for listener in self.process.listeners]

    @property
    def cancel_listeners(self) -> Sequence[Callable[[str], object]]:
        """See `Database.cancel_listeners`."""
        return [listener.on_cancel for listener in self.process.listeners]

    async def read(self, make: Callable[P, Transaction[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Database.read`."""
        return await self.process.read(partial(make, *args, **kwargs))

    async def write(self, operation: Operation[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Database.write`."""
        process = self.process
        published, undo = operation.published, operation.undo

        def publish(result: T) -> None:
            for task_id, events in () if published is None else published(result, *args, **kwargs):
                process.tails.publish(task_id, events)

        answer = Answer(undo and (lambda result: process.do(partial(undo, result, *args, **kwargs))))
        process.writer.put(Job(partial(operation.make, *args, **kwargs), answer, publish), first=operation.first)
        return await answer.wait()

    def conversations(self, owner: str) -> SqlConversationStore:
        return SqlConversationStore(self, self.namespace, owner)

    async def context(self, owner: str, context_id: str, head: str) -> Sequence[ModelMessage]:
        return await self._histories.read(self.conversations(owner), owner, context_id, head)

    def forget(self, owner: str, context_id: str | None = None) -> None:
        """See `Database.forget`."""
        self._histories.forget(owner, context_id)

    def listen(
        self, on_ready: Callable[[str | None], object], on_cancel: Callable[[str], object]
    ) -> Callable[[], None]:
        self._check_alone()
        _listening[self._key] = self
        process, listener = self.process, Listener(asyncio.get_running_loop(), on_ready, on_cancel)
        process.listeners.append(listener)
        process.writer.wake()
        return partial(process.listeners.remove, listener)

    def _check_alone(self) -> None:
        """Two backends of one process would not see each other's readers and workers, and compete for every task."""
        other = _listening.get(self._key)
        if other is not None and other is not self and other.process.live():
            raise BackendUnusable(
                f'A running app of this process has the namespace {self.namespace!r} of the SQLite file'
                f' {self._file.path} already: give this one another namespace= or another file.'
            )

    def close(self) -> None:
        self.process.stop()


class _Queue(SqlQueue):
    def __init__(self, backend: SqliteFileBackend) -> None:
        super().__init__(backend)
        self._backend = backend

    async def submit(self, submission: Submission, *, queue_limit: int, idempotency_window: int) -> Accepted:
        process = self._backend.process
        if process.tails.watched(submission.task_id):  # another process may run it
            submission = replace(submission, watched_until=submission.at + WATCH)
            process.will_mark(submission.task_id, submission.watched_until)
        return await super().submit(submission, queue_limit=queue_limit, idempotency_window=idempotency_window)


class _Events(SqlEvents):
    def __init__(self, backend: SqliteFileBackend) -> None:
        super().__init__(backend)
        self._backend = backend

    def watched(self, task_id: str) -> bool:
        return self._backend.process.watched(task_id)
