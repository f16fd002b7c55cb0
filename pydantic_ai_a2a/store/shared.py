"""Base of the backends whose database several processes share: SQLite files and PostgreSQL.

Each process has connections and readers of its own, made when it first uses the backend: an app can be made before a
fork, and be used from several event loops.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from functools import partial
from os import getpid, urandom
from typing import Any, ClassVar, Generic, NamedTuple, ParamSpec, Protocol, TypeVar
from weakref import WeakValueDictionary, finalize

from ..errors import BackendUnusable, LeaseLost, StoreUnavailable
from ..types import TaskEvent
from .events import EventBus
from .ports import Accepted, Charge, Checkpoint, Claim, Finish, Slot, Status, Submission, Tried
from .sql.database import BoundWrite, WriteKind
from .sql.ports import Due, SqlBackend, SqlQueue
from .sql.reads import WATCH, Noticed, wants_live, watch_mark
from .sql.transaction import Transaction

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

_SIZE = 32_768
"""Size of a probe's write: more bytes than the free space in the pages of a full disk."""


def probe(agent: str) -> Transaction[None]:
    """Write a row like an event of a task, and delete the row."""
    key = agent, f'probe {urandom(8).hex()}'
    yield [
        ('INSERT INTO event (agent, task_id, n, payload) VALUES (?, ?, 0, ?)', [(*key, urandom(_SIZE))]),
        ('DELETE FROM event WHERE agent = ? AND task_id = ?', [key]),
    ]


_PROBE = WriteKind(probe)


class SharedBackend(SqlBackend, Generic[ProcessT]):
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
        self._place = place
        self._processes: dict[int, ProcessT] = {}
        """Parts by process id. A forked child keeps the parent's part: only the parent may close the connections."""
        self._availability = Availability(f'{self.store} {place}')
        super().__init__(namespace)
        self.queue = _Queue(self, self.due)
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
        return self.process.event_bus

    @property
    def ready_listeners(self) -> Sequence[Callable[[str], object]]:
        return [listener.on_ready for listener in self.process.peers.listeners]

    @property
    def cancel_listeners(self) -> Sequence[Callable[[str], object]]:
        return [listener.on_cancel for listener in self.process.peers.listeners]

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

    def watched(self, task_id: str, *, live: bool) -> bool:
        return self.process.peers.watched(task_id, live=live)

    def wake(self) -> None:
        self.process.wake()

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
            live = process.event_bus.watched(submission.task_id, live=True)
            submission = replace(submission, watched_until=watch_mark(process.peers.now(), live=live))
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

    async def release(
        self, claim: Claim, tried: Tried | None = None, *, pause: int | None = None, charges: Sequence[Charge] = ()
    ) -> None:
        self._backend.process.peers.share([claim.header.id])
        await super().release(claim, tried, pause=pause, charges=charges)


# --- state of a process about other processes on the same database, and the callbacks of local workers ----------------


class WorkerCallbacks(NamedTuple):
    """A worker of this process."""

    loop: asyncio.AbstractEventLoop
    on_ready: Callable[[str | None], object]
    on_cancel: Callable[[str], object]


class Peers:
    """The workers and readers of this process that are told of writes by other processes.

    Args:
        event_bus: The readers of this process.
        now: The clock of the marks (ms), the same for all processes of the store, independent of the wall clock.
    """

    def __init__(self, event_bus: EventBus, now: Callable[[], int]) -> None:
        self.now = now
        self.listeners: list[WorkerCallbacks] = []
        self._event_bus = event_bus
        self._newest: Mapping[str, int | None] = {}
        """The newest known event number of each task with a local reader."""
        self._elsewhere: dict[str, int] = {}
        """Tasks with a reader in any process, each with the expiry of the mark (ms)."""
        self._private: set[str] = set()
        """Tasks running here since the submission, without readers and waiting callers in further processes."""
        self._ready = False
        """True if a task was waiting for a worker at the last look."""
        self._marked: dict[str, int] = {}
        """Tasks with local readers and a stored mark, each with the expiry of the mark (ms)."""

    def live(self) -> bool:
        """True if a worker with a running event loop listens."""
        return any(not listener.loop.is_closed() for listener in self.listeners)

    def interested(self) -> bool:
        """True if a worker or reader of this process needs the writes of other processes."""
        return bool(self.listeners) or self._event_bus.in_use

    def watched(self, task_id: str, *, live: bool = False) -> bool:
        """True if a task has a reader in this process, or is marked as read by another process. See `EventLog`."""
        return self._event_bus.watched(task_id, live=live) or self.watched_elsewhere(task_id, live=live)

    def watched_elsewhere(self, task_id: str, *, live: bool = False) -> bool:
        """True if a process has marked the task as read, and the mark has not expired."""
        until = self._elsewhere.get(task_id, 0)
        return until > self.now() and (not live or wants_live(until))

    def tell(self, noticed: Noticed) -> bool:
        """Notify local readers and workers of new writes. Return True to poll again soon.

        Until the next poll, a queued task is left to the process of the request, which can run the task in the context
        of the request.
        """
        before, self._newest = self._newest, noticed.newest
        for task_id, newest in noticed.newest.items():
            if task_id not in before or before[task_id] != newest:
                self._event_bus.hint(task_id, newest)
        self._elsewhere = dict(noticed.watched)
        still_ready, self._ready = noticed.ready and self._ready, noticed.ready
        for task_id in noticed.canceled:
            self.cancel(task_id)
        for listener in tuple(self.listeners) if still_ready else ():
            _call(listener.loop, listener.on_ready, None)
        return noticed.ready and not still_ready

    def keep_private(self, task_ids: Iterable[str]) -> None:
        """Remember new tasks of this process as private."""
        self._private.update(task_ids)

    def share(self, task_ids: Iterable[str]) -> None:
        """Forget private tasks: after the end of the first run, or after a question of a further process."""
        self._private.difference_update(task_ids)

    def private(self, task_id: str) -> bool:
        """True if the events of a task concern this process alone."""
        return task_id in self._private and not self.watched_elsewhere(task_id)

    def is_watched(self, task_id: str, until: int) -> None:
        """Record the reader of a task in another process, until the expiry of the mark (ms); see `SET_MARK`."""
        if self.listeners:  # only processes with workers need the mark
            live = self.watched_elsewhere(task_id, live=True)
            self._elsewhere[task_id] = max(until, self._elsewhere.get(task_id, 0)) | until % 2 | live

    def cancel(self, task_id: str) -> None:
        """Notify the local workers of a requested cancel."""
        self.share([task_id])  # the canceller waits for the end
        for listener in tuple(self.listeners):
            _call(listener.loop, listener.on_cancel, task_id)

    def will_mark(self, task_id: str, until: int) -> None:
        """Record the mark that is written together with the task."""
        self._marked[task_id] = until

    def mark_again(self, tasks: Iterable[str]) -> None:
        """Mark the tasks again at the next poll."""
        for task_id in tasks:
            self._marked.pop(task_id, None)

    def to_mark(self) -> dict[str, int]:
        """Return the tasks with marks to renew, each with the new expiry (ms)."""
        now, read = self.now(), self._event_bus.read_tasks()
        marked = {task_id: self._marked.get(task_id, 0) for task_id in read}
        due = {
            task_id: watch_mark(now, live=read[task_id])
            for task_id, until in marked.items()
            if until < now + WATCH // 2 or (read[task_id] and not wants_live(until))
        }
        self._marked = marked | due
        return due


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
