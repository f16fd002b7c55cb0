"""Base of the backends whose database several processes share: SQLite files and PostgreSQL.

Each process has connections and readers of its own, made when it first uses the backend: an app can be made before a
fork, and be used from several event loops.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from os import getpid
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar
from weakref import WeakValueDictionary, finalize

from ...clock import Clock
from ...errors import BackendUnusable
from ...types.stored_events import TaskEvent
from .availability import Availability, probe
from .event_bus import EventBus
from .ports import Accepted, Claim, Submission
from .sql.backend import SqlBackend
from .sql.database import WorkerCallbacks
from .sql.event_log import events_after
from .sql.namespaces import Neighbors, announce, neighbors
from .sql.peers import Peers
from .sql.task_queue import SqlQueue
from .sql.transaction import ContextKey, Done, Transaction, done_of
from .sql.webhook_ports import Due

logger = logging.getLogger('pydantic_ai_a2a')

P = ParamSpec('P')
T = TypeVar('T')

_SHOWN = 10
"""The most namespaces in a line of the log."""
_listening: WeakValueDictionary[tuple[str, str], DatabaseBackend[Any]] = WeakValueDictionary()
"""The backends with a listening worker in this process: one for each namespace of each database."""


class Process(ABC):
    """The connections and readers of one process, for one namespace of a database. A forked child makes its own.

    Args:
        namespace: Namespace of the agent.
        reader_lag: Bytes that a reader may be behind.
        clock: A steady clock.
    """

    def __init__(self, namespace: str, reader_lag: int, clock: Clock) -> None:
        self.pid = getpid()
        self.namespace = namespace
        self.event_bus = EventBus(self._read_events, reader_lag, self._begin_use)
        self.peers = Peers(self.event_bus, clock.steady)
        self.announced = False
        """True after the first `Backend.announce`."""

    @abstractmethod
    def read(self, make: Callable[[], Transaction[Any]]) -> Coroutine[Any, Any, Any]:
        """Run a read-only transaction."""

    async def _read_events(self, task_id: str, after: int, limit: int) -> list[TaskEvent] | None:
        return await self.read(partial(events_after, self.namespace, task_id, after, limit))

    @abstractmethod
    def write(
        self, make: partial[Transaction[Any]], context: ContextKey | None, *, first: bool
    ) -> Coroutine[Any, Any, Any]:
        """Run a transaction, publish the events in the order of commits, and return the result.

        Args:
            make: The function that makes the transaction, with its arguments.
            context: The lock of a context, which the transaction has from the start.
            first: True if the transaction goes before all other waiting ones.
        """

    @abstractmethod
    def wake(self) -> None:
        """Look for writes of other processes, and tell them of new readers and waiting callers."""

    def _begin_use(self) -> None:
        """Begin to look for writes of other processes for a reader or a waiting caller."""
        if not (self.peers.listeners and self.looks):
            self.wake()

    @property
    @abstractmethod
    def looks(self) -> bool:
        """True if a process with a worker looks for writes of other processes already."""

    def stop(self) -> None:
        """Close the connections. Does nothing in a forked child, which must not touch them."""
        if self.pid == getpid():
            self.close()

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""


ProcessT = TypeVar('ProcessT', bound=Process)


class DatabaseBackend(SqlBackend, Generic[ProcessT]):
    """Tasks and conversations in a database that outlives the process.

    Args:
        settings: The settings of the database; equal settings mean the same database.
        place: Name of the database, to find other users of the same database in this process.
        namespace: Stable name of the stored tasks.
        make_process: Makes the running process's part of the backend.

    Raises:
        BackendUnusable: A running app of this process uses the same namespace of the same database.
    """

    durable = True
    flush_delay = 0.01
    store: ClassVar[str]
    """Name of this kind of database in messages."""
    target = 'MODULE:APP'
    """Names the database in commands."""

    def __init__(self, settings: Hashable, place: str, namespace: str, make_process: Callable[[], ProcessT]) -> None:
        self.settings = settings
        self._make_process = make_process
        self.place = place
        self._processes: dict[int, ProcessT] = {}
        """Parts by process id. A forked child keeps the parent's part: only the parent may close the connections."""
        self._availability = Availability(f'{self.store} {place}')
        super().__init__(namespace)
        self.queue = _SharedQueue(self, self.due)
        self._check_alone()

    @property
    def process(self) -> ProcessT:
        """The connections and readers of the running process, made at first use."""
        process = self._processes.get(getpid())
        if process is None:
            process = self._processes.setdefault(getpid(), self._make_process())
            finalize(self, process.stop)
        return process

    @property
    def event_bus(self) -> EventBus:
        return self.process.event_bus

    @property
    def workers(self) -> Sequence[WorkerCallbacks]:
        return self.process.peers.listeners

    async def read(self, make: Callable[P, Transaction[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._availability.watch(self.process.read(partial(make, *args, **kwargs)))

    async def write(self, make: Callable[P, Transaction[Done[T] | T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._write(partial(make, *args, **kwargs))

    async def write_in(
        self, context: ContextKey | None, make: Callable[P, Transaction[Done[T] | T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._write(partial(make, *args, **kwargs), context)

    async def write_first(self, make: Callable[P, Transaction[Done[T] | T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._write(partial(make, *args, **kwargs), first=True)

    async def _write(
        self, make: partial[Transaction[Done[T] | T]], context: ContextKey | None = None, *, first: bool = False
    ) -> T:
        done = done_of(await self._availability.watch(self.process.write(make, context, first=first)))
        if self._availability.refused and any(events for _, events in done.events):
            self._availability.written()
        return done.value

    async def check_writes(self) -> None:
        await self._availability.check(lambda: self.write(probe, self.namespace))

    async def announce(self, service: str, *, lease: int) -> None:
        process, name = self.process, self.namespace
        await self.write(announce, name, process.peers.id, service, lease)
        if not process.announced:
            process.announced = True
            self._report(service, await self.read(neighbors, name, process.peers.id))

    def _report(self, service: str, met: Neighbors) -> None:
        name, place = self.namespace, f'the {self.store} {self.place}'
        if others := [other for other in met.services if other != service]:
            logger.warning(
                'Another process of the namespace %r of %s serves %s, and this one serves %s. Each runs the tasks of'
                ' both. That is right during a deploy of one agent; give two agents different names.',
                name,
                place,
                ', and '.join(others),
                service,
            )
        if met.namespaces:
            shown = ', '.join(map(repr, met.namespaces[:_SHOWN])) + (', …' if len(met.namespaces) > _SHOWN else '')
            logger.warning(
                'The namespace %r has no data in %s, which has data of %s. If the agent had another name before,'
                ' Retention(namespace=…) with that name keeps its tasks. To see all: pydantic-ai-a2a queue %s',
                name,
                place,
                shown,
                self.target,
            )

    def watched(self, task_id: str, *, live: bool) -> bool:
        return self.process.peers.watched(task_id, live=live)

    def begin(self, claims: Iterable[Claim]) -> None:
        self.process.peers.begin(claims)

    def leave(self, *task_ids: str, over: bool = False) -> None:
        peers = self.process.peers
        peers.leave(task_ids)
        if not over and any(peers.reader(task_id) for task_id in task_ids):  # the readers here need the events
            self.process.wake()

    def wake(self) -> None:
        self.process.wake()

    def listen(
        self, on_ready: Callable[[str | None], object], on_cancel: Callable[[str], object]
    ) -> Callable[[], None]:
        self._check_alone()
        _listening[self.place, self.namespace] = self
        process, listener = self.process, WorkerCallbacks(asyncio.get_running_loop(), on_ready, on_cancel)
        process.peers.listeners.append(listener)
        process.wake()
        return partial(process.peers.listeners.remove, listener)

    def set_idle(self, holder: str, *, idle: bool) -> None:
        if self.process.peers.set_idle(holder, idle=idle):
            self.process.wake()

    def _check_alone(self) -> None:
        """Two backends of one process would not see each other's readers and workers, and compete for every task."""
        other = _listening.get((self.place, self.namespace))
        if other is not None and other is not self and other.process.peers.live():
            raise BackendUnusable(
                f'Another running app of this process uses the namespace {self.namespace!r} of the {self.store}'
                f' {self.place}: give this app another Retention.namespace or {self.store.split()[-1]}.'
            )

    def close(self) -> None:
        self.process.stop()


class _SharedQueue(SqlQueue):
    def __init__(self, backend: DatabaseBackend[Any], due: Due) -> None:
        super().__init__(backend, due)
        self._backend = backend

    async def submit(self, submission: Submission, **options: Any) -> Accepted:
        process = self._backend.process
        reader = process.peers.reader(submission.task_id)
        process.peers.storing.add(submission.task_id)
        try:
            accepted = await super().submit(replace(submission, reader=reader), **options)
            if reader is not None and submission.new and accepted.claim is None and not accepted.replayed:
                process.peers.has_row(submission.task_id, reader)
                reader = None
        finally:
            process.peers.storing.discard(submission.task_id)
        if reader is not None and accepted.claim is None:  # another process may run the task already
            process.wake()
        return accepted
