"""Base of the backends whose database several processes share: SQLite files and PostgreSQL.

Each process has connections and readers of its own, made when it first uses the backend: an app can be made before a
fork, and be used from several event loops.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from os import getpid
from typing import Any, ClassVar, Generic, ParamSpec, Protocol, TypeVar
from weakref import WeakValueDictionary, finalize

from pydantic_ai.messages import ModelMessage

from ..errors import BackendUnusable, LeaseLost
from ..ports import Accepted, Backend, Checkpoint, Claim, Finish, Slot, Status, Submission
from ..types import TaskEvent
from .availability import Availability, probe
from .event_bus import EventBus
from .histories import Histories
from .peers import Peers, WorkerCallbacks
from .sql import contexts
from .sql.conversations import SqlConversationStore
from .sql.database import BoundWrite, WriteKind
from .sql.notice import WATCH
from .sql.ports import SqlCredentials, SqlEvents, SqlHousekeeping, SqlQueue, SqlQuotas, SqlReader
from .sql.push_ports import Due, SqlOutbox, SqlPushConfigs
from .sql.transaction import Transaction

__all__ = ('Process', 'SharedBackend')

P = ParamSpec('P')
T = TypeVar('T')


class Process(Protocol):
    """The part of one process in one namespace of a database. A forked child makes a separate instance."""

    event_bus: EventBus
    peers: Peers

    def read(self, make: Callable[[], Transaction[Any]]) -> Awaitable[Any]:
        """Run a read-only transaction."""
        ...

    def write(self, write: BoundWrite[Any]) -> Awaitable[Any]:
        """Run a transaction, publish the events in the order of commits, and return the result."""
        ...

    def wake(self) -> None:
        """Look for writes of other processes, and mark the tasks with new readers."""
        ...

    def stop(self) -> None:
        """Close the connections. Does nothing in a forked child, which must not touch them."""
        ...


ProcessT = TypeVar('ProcessT', bound=Process)

_listening: WeakValueDictionary[tuple[str, str], SharedBackend[Any]] = WeakValueDictionary()
"""The backends with a listening worker in this process: one for each namespace of each database."""


_PROBE = WriteKind(probe)


class SharedBackend(Backend, Generic[ProcessT]):
    """Tasks and conversations in a database that outlives the process.

    Args:
        place: Name of the database, to find other users of the same database in this process.
        namespace: Stable name of the stored tasks.

    Raises:
        BackendUnusable: A running app of this process uses the same namespace of the same database.
    """

    durable = True
    flush_delay = 0.01
    store: ClassVar[str]
    """Name of this kind of database in messages."""

    def __init__(self, place: str, namespace: str) -> None:
        self.namespace = namespace
        self._place = place
        self._processes: dict[int, ProcessT] = {}
        """Parts by process id. A forked child keeps the parent's part: only the parent may close the connections."""
        self._histories = Histories()
        self._availability = Availability(f'{self.store} {place}')
        due = Due()
        self.queue = _Queue(self, due)
        self.reader = SqlReader(self)
        self.events = SqlEvents(self)
        self.housekeeping = SqlHousekeeping(self)
        self.quotas = SqlQuotas(self)
        self.credentials = SqlCredentials(self)
        self.push_configs, self.outbox = SqlPushConfigs(self, due), SqlOutbox(self, due)
        self._check_alone()

    @property
    @abstractmethod
    def settings(self) -> Hashable:
        """The database's settings; equal settings mean the same database."""

    @abstractmethod
    def _make_process(self) -> ProcessT:
        """Make the running process's part of the backend."""

    @property
    def process(self) -> ProcessT:
        """The part of the running process, made at first use."""
        process = self._processes.get(getpid())
        if process is None:
            process = self._processes.setdefault(getpid(), self._make_process())
            finalize(self, process.stop)
        return process

    @property
    def event_bus(self) -> EventBus:
        """See `Database.event_bus`."""
        return self.process.event_bus

    @property
    def ready_listeners(self) -> Sequence[Callable[[str], object]]:
        """See `Database.ready_listeners`."""
        return [listener.on_ready for listener in self.process.peers.listeners]

    @property
    def cancel_listeners(self) -> Sequence[Callable[[str], object]]:
        """See `Database.cancel_listeners`."""
        return [listener.on_cancel for listener in self.process.peers.listeners]

    async def read(self, make: Callable[P, Transaction[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Database.read`."""
        return await self._availability.watch(self.process.read(partial(make, *args, **kwargs)))

    async def write(self, kind: WriteKind[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `Database.write`."""
        write = BoundWrite(kind, args, kwargs)
        result = await self._availability.watch(self.process.write(write))
        if self._availability.refused and any(stored for _, stored in write.published(result)):
            self._availability.written()
        return result

    async def check_writes(self) -> None:
        await self._availability.check(lambda: self.write(_PROBE, self.namespace))

    def conversations(self, owner: str) -> SqlConversationStore:
        return SqlConversationStore(self, self.namespace, owner)

    async def context(self, owner: str, context_id: str, head: str) -> Sequence[ModelMessage]:
        return await self._histories.read(self.conversations(owner), owner, context_id, head)

    async def queued(self) -> bool:
        return await self.read(contexts.any_queued, self.namespace)

    def watched(self, task_id: str) -> bool:
        """See `Database.watched`."""
        return self.process.peers.watched(task_id)

    def wake(self) -> None:
        """See `Database.wake`."""
        self.process.wake()

    def forget(self, owner: str, context_id: str | None = None) -> None:
        """See `Database.forget`."""
        self._histories.forget(owner, context_id)

    def listen(
        self, on_ready: Callable[[str | None], object], on_cancel: Callable[[str], object]
    ) -> Callable[[], None]:
        self._check_alone()
        _listening[self._place, self.namespace] = self
        process, listener = self.process, WorkerCallbacks(asyncio.get_running_loop(), on_ready, on_cancel)
        process.peers.listeners.append(listener)
        process.wake()
        return partial(process.peers.listeners.remove, listener)

    def _check_alone(self) -> None:
        """Two backends of one process would not see each other's readers and workers, and compete for every task."""
        other = _listening.get((self._place, self.namespace))
        if other is not None and other is not self and other.process.peers.live():
            raise BackendUnusable(
                f'Another running app of this process uses the namespace {self.namespace!r} of the {self.store}'
                f' {self._place}: give this app another Retention.namespace or {self.store.split()[-1]}.'
            )

    def close(self) -> None:
        self.process.stop()


class _Queue(SqlQueue):
    def __init__(self, backend: SharedBackend[Any], due: Due) -> None:
        super().__init__(backend, due)
        self._backend = backend

    async def submit(
        self, submission: Submission, *, queue_limit: int, idempotency_window: int, slot: Slot | None = None
    ) -> Accepted:
        process = self._backend.process
        if process.event_bus.watched(submission.task_id):  # another process may run it
            submission = replace(submission, watched_until=process.peers.now() + WATCH)
            if submission.new:
                process.peers.will_mark(submission.task_id, submission.watched_until)
            else:  # a process that runs the task already hears of the mark at once
                process.wake()
        return await super().submit(
            submission, queue_limit=queue_limit, idempotency_window=idempotency_window, slot=slot
        )

    async def emit(
        self,
        claim: Claim,
        events: Sequence[TaskEvent],
        status: Status | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        try:
            await super().emit(claim, events, status, checkpoint)
        except LeaseLost:
            self._backend.process.peers.share([claim.header.id])
            raise

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        try:
            return await super().finish(claim, finish)
        finally:
            self._backend.process.peers.share([claim.header.id])

    async def release(self, claim: Claim) -> None:
        self._backend.process.peers.share([claim.header.id])
        await super().release(claim)
