"""Base of the backends whose database several processes share: SQLite files and PostgreSQL.

Each process has connections and readers of its own, made when it first uses the backend: an app can be made before a
fork, and be used from several event loops.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from functools import partial
from os import getpid, urandom
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar
from weakref import WeakValueDictionary, finalize

from ..clock import Clock
from ..errors import BackendUnusable, StoreUnavailable
from ..types import TaskEvent
from .event_bus import EventBus
from .ports import Accepted, Claim, Submission
from .sql.database import BoundWrite, WorkerCallbacks, WriteKind
from .sql.reads import WATCH, Kept, Noticed, events_after
from .sql.services import Neighbors, announce, neighbors
from .sql.task_queue import Due, SqlBackend, SqlQueue
from .sql.transaction import Transaction

P = ParamSpec('P')
T = TypeVar('T')


class Process(ABC):
    """The part of one process in one namespace of a database. A forked child makes a separate instance.

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

    async def _read_events(self, task_id: str, after: int, limit: int) -> list[TaskEvent]:
        return await self.read(partial(events_after, self.namespace, task_id, after, limit))

    @abstractmethod
    def write(self, write: BoundWrite[Any]) -> Coroutine[Any, Any, Any]:
        """Run a transaction, publish the events in the order of commits, and return the result."""

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

_listening: WeakValueDictionary[tuple[str, str], SharedBackend[Any]] = WeakValueDictionary()
"""The backends with a listening worker in this process: one for each namespace of each database."""

_SIZE = 32_768
"""Size of a probe's write: more bytes than the free space in the pages of a full disk."""


def probe(agent: str) -> Transaction[None]:
    """Write a row like an event of a task, and delete the row."""
    key = agent, f'probe {urandom(8).hex()}'
    yield [
        ('INSERT INTO event (agent, task_id, n, payload) VALUES (?, ?, 0, ?)', [(*key, urandom(_SIZE))]),
        ('DELETE FROM event WHERE agent = ? AND task_id = ?', [key]),
    ]


_PROBE, _ANNOUNCE = WriteKind(probe), WriteKind(announce)
_SHOWN = 10
"""The most namespaces in a line of the log."""


class SharedBackend(SqlBackend, Generic[ProcessT]):
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
        self.queue = _Queue(self, self.due)
        self._check_alone()

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
        return self.process.event_bus

    @property
    def workers(self) -> Sequence[WorkerCallbacks]:
        return self.process.peers.listeners

    async def read(self, make: Callable[P, Transaction[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._availability.watch(self.process.read(partial(make, *args, **kwargs)))

    async def write(self, kind: WriteKind[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        write = BoundWrite(kind, args, kwargs)
        result = await self._availability.watch(self.process.write(write))
        if self._availability.refused and any(stored for _, stored in write.published(result)):
            self._availability.written()
        return result

    async def check_writes(self) -> None:
        await self._availability.check(lambda: self.write(_PROBE, self.namespace))

    async def announce(self, service: str, *, lease: int) -> None:
        process, name = self.process, self.namespace
        await self.write(_ANNOUNCE, name, process.peers.id, service, lease)
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


class _Queue(SqlQueue):
    def __init__(self, backend: SharedBackend[Any], due: Due) -> None:
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


# --- state of a process about other processes on the same database, and the callbacks of local workers ----------------


class Peers:
    """The workers and readers of this process that are told of writes by other processes.

    Args:
        event_bus: The readers of this process.
        now: A steady clock (ms).
    """

    def __init__(self, event_bus: EventBus, now: Callable[[], int]) -> None:
        self.id = urandom(6).hex()
        """Names this process in the database."""
        self.listeners: list[WorkerCallbacks] = []
        self._now = now
        self._event_bus = event_bus
        self._newest: Mapping[str, int | None] = {}
        """The newest known event number of each task with a local reader."""
        self._elsewhere: dict[str, tuple[int, int]] = {}
        """Tasks with readers in other processes: until when they count (ms), and what they want."""
        self._own: set[str] = set()
        """Tasks that run here: this process alone writes their events."""
        self.storing: set[str] = set()
        """Tasks whose messages are being stored, maybe together with their rows: a look leaves these rows alone."""
        self._idle: set[str] = set()
        """The workers with free slots for tasks of other processes."""
        self._ready = False
        """True if a task was waiting for a worker at the last look."""
        self._known: dict[str, int] = {}
        """The tasks that other processes are told of, each with what is wanted here."""
        self._hears = 0
        self.kept_until = 0
        """When the row of this process expires (ms)."""

    def live(self) -> bool:
        """True if a worker with a running event loop listens."""
        return any(not listener.loop.is_closed() for listener in self.listeners)

    def interested(self) -> bool:
        """True if a worker or reader of this process needs the writes of other processes."""
        return bool(self.listeners) or self._event_bus.in_use

    def watched(self, task_id: str, *, live: bool = False) -> bool:
        """True if a task has a reader in this or in another process. See `EventLog`."""
        return self._event_bus.watched(task_id, live=live) or self._wanted_elsewhere(task_id) >= 1 + live

    def _wanted_elsewhere(self, task_id: str) -> int:
        """Return what other processes want of a task; -1 for nothing."""
        until, wants = self._elsewhere.get(task_id, (0, -1))
        return wants if until > self._now() else -1

    def tell(self, noticed: Noticed) -> bool:
        """Notify local readers and workers of new writes. Return True to poll again soon.

        Until the next poll, a queued task is left to the process of the request, which can run the task in the context
        of the request.
        """
        before, self._newest = self._newest, noticed.newest
        for task_id, newest in noticed.newest.items():
            self._known.setdefault(task_id, -1)  # also a row whose submit was cancelled: the next look drops it
            if task_id not in before or before[task_id] != newest:
                self._event_bus.hint(task_id, newest)
        # Others stay until they expire: this process may have heard of them during the look.
        now = self._now()
        # In place, and over a copy: a claim adds tasks in another thread.
        for task_id, (until, _) in self._elsewhere.copy().items():
            if until <= now:
                self._elsewhere.pop(task_id, None)
        self._elsewhere.update((task_id, (now + left, wants)) for task_id, (left, wants) in noticed.readers.items())
        still_ready, self._ready = noticed.ready and self._ready, noticed.ready
        for task_id in noticed.canceled:
            self.cancel(task_id)
        for listener in tuple(self.listeners) if still_ready else ():
            _call(listener.loop, listener.on_ready, None)
        return noticed.ready and not still_ready

    def begin(self, claims: Iterable[Claim]) -> None:
        """Remember that tasks run here, and who reads them elsewhere."""
        for claim in claims:
            task_id, wants = claim.header.id, claim.wanted
            self._own.add(task_id)
            if wants is not None and task_id not in self._known:  # else the row may be the one of this process
                self.is_read(task_id, wants)

    def own(self, task_ids: Iterable[str]) -> None:
        """Remember that tasks run here."""
        self._own.update(task_ids)

    def leave(self, task_ids: Iterable[str]) -> None:
        """Forget tasks that do not run here any longer, or that another process cancels."""
        self._own.difference_update(task_ids)

    def private(self, task_id: str) -> bool:
        """True if the events of a task concern this process alone. Only a process with a worker hears of readers."""
        return bool(self.listeners) and task_id in self._own and self._wanted_elsewhere(task_id) < 0

    def is_read(self, task_id: str, wants: int) -> None:
        """Record the reader of a task in another process, until the next look or for `WATCH`."""
        if self.listeners:  # only processes with workers need it
            wants = max(wants, self._wanted_elsewhere(task_id))
            self._elsewhere[task_id] = self._now() + WATCH, wants

    def cancel(self, task_id: str) -> None:
        """Notify the local workers of a requested cancel."""
        self.leave([task_id])  # the canceller waits for the end
        for listener in tuple(self.listeners):
            _call(listener.loop, listener.on_cancel, task_id)

    def set_idle(self, holder: str, *, idle: bool) -> bool:
        """Remember if a worker has free slots. Return True for a change."""
        changed = (holder in self._idle) != idle
        (self._idle.add if idle else self._idle.discard)(holder)
        return changed

    # --- the rows of this process -----------------------------------------------------------------------------------

    def reader(self, task_id: str) -> tuple[str, int] | None:
        """Return what other processes have to know if they run a task; None if nobody here waits for their events."""
        wants = None if task_id in self._own else self._event_bus.wants(task_id)
        return None if wants is None else (self.id, wants)

    def has_row(self, task_id: str, reader: tuple[str, int]) -> None:
        """Remember the row that was written together with the task."""
        self._known[task_id] = reader[1]

    def to_keep(self, *, listens: bool = False) -> Kept | None:
        """Return the rows of this process, if they change or expire soon.

        Args:
            listens: True if the process hears notifications.
        """
        # A submit may end meanwhile, in another thread: the row that it adds then is not known yet, and is not dropped.
        known, storing = self._known.copy(), self.storing.copy()
        reads = {task_id: wants for task_id, wants in self._event_bus.wanted().items() if task_id not in self._own}
        wanted = {task_id: wants for task_id, wants in reads.items() if task_id not in storing}
        added = {task_id: wants for task_id, wants in wanted.items() if known.get(task_id) != wants}
        dropped = known.keys() - wanted.keys() - storing
        hears = (1 + bool(self.listeners) + bool(self.listeners and self._idle)) * listens
        same = hears == self._hears and not added and not dropped
        if same and (self.kept_until > self._now() + WATCH // 2 or not (listens or wanted)):
            return None
        return Kept(hears, added, dropped, reads)

    def kept(self, kept: Kept) -> bool:
        """Remember that the rows were written. Return True if others are told of more than before."""
        for task_id in kept.dropped:
            self._known.pop(task_id, None)
        self._known.update(kept.added)
        told = bool(kept.added) or kept.hears > self._hears
        self._hears, self.kept_until = kept.hears, self._now() + WATCH
        return told


def _call(loop: asyncio.AbstractEventLoop, callback: Callable[[Any], object], value: str | None) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(callback, value, context=Context())


# --- availability of a store for writes, and the probe that measures it -----------------------------------------------

logger = logging.getLogger('pydantic_ai_a2a')

_TRUSTED = 10.0
"""Seconds after a successful write without a new probe, if no write has failed since."""
_PAUSE = 1.0
"""The least seconds between two probes."""


class Availability:
    """The availability of one store to one process.

    Args:
        store: Name of the store in the log.
    """

    def __init__(self, store: str) -> None:
        self._store = store
        self._worked = False
        """True after the first answer of the store: later errors count as temporary."""
        self.refused = False
        """True after a failure, until a write succeeds."""
        self._trusted_until = 0.0
        self._next_probe = 0.0

    async def watch(self, work: Awaitable[T]) -> T:
        """The result of a read or a write.

        Raises:
            BackendUnusable: The store has not worked yet, and cannot be used as it is.
            StoreUnavailable: The store does not work now.
        """
        try:
            result = await work
        except BackendUnusable as error:
            if not self._worked:
                raise
            self._refuse(str(error))
            raise StoreUnavailable(str(error)) from error
        except StoreUnavailable as error:
            if not error.busy:
                self._refuse(error.detail)
            raise
        self._worked = True
        return result

    def _refuse(self, reason: str) -> None:
        if not self.refused:
            logger.error('The %s is unavailable: %s', self._store, reason)
        self.refused = True

    def written(self) -> None:
        """Record a successful write."""
        if self.refused:
            logger.warning('The %s is available again.', self._store)
        self.refused = False

    async def check(self, write: Callable[[], Awaitable[object]]) -> None:
        """Probe the store with a write, unless a recent write has succeeded.

        During a probe, other callers get the result of the previous probe.

        Raises:
            StoreUnavailable: The store takes no writes.
        """
        now = time.monotonic()
        if not self.refused and now < self._trusted_until:
            return
        if now < self._next_probe:
            raise StoreUnavailable
        self._trusted_until = self._next_probe = now + _TRUSTED  # other callers do not wait for a probe that hangs
        try:
            await write()
        except BaseException as error:  # also a timeout of the caller
            self._trusted_until = 0.0
            if isinstance(error, StoreUnavailable):
                self._next_probe = time.monotonic() + _PAUSE
            raise
        self.written()
        self._trusted_until = time.monotonic() + _TRUSTED
        self._next_probe = time.monotonic() + _PAUSE
