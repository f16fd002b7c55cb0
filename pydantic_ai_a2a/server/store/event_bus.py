"""The newest events of each watched task, shared by the readers of this process.

Publishing never waits for a reader. A reader is the number of the last event that it has taken, and a future. It gets
newer events from the tail of its task, which all readers share, and older events from the store. `_Reader.next` tries
the tail, then the store, then waits. The state of the reader says whether the store has to be read:

- BEHIND: the store may hold events that neither the reader nor the tail has. So it begins, and after a full read.
- AT_TAIL: the store has no others, since the tail had the next event, or a read of the store was not full.
- HINTED: another process has stored events, or has erased the task. The reader takes what the tail has, and then reads
  the store. Only this read says that the task is gone: a hint may have seen the database before the task was there.

A reader that is `dropped` gets nothing more: it was too far behind, its task was erased, or its next event was swept.
`nudge` lets a call of `next` that has begun return nothing, for keep-alive and for the end of the process. A nudge
between two calls has no effect.

Threads: events are published, and hints and nudges given, in any thread. Under the lock of the bus are the tails, the
sets of readers and waiters, each change of `_state`, and what other threads do to a reader. So nothing comes between
the look of `_wait` and its wait. A reader that reads the store becomes BEHIND before the read, and AT_TAIL after it
only if it is BEHIND still: a hint during the read may be about events that the read has missed. If the task is gone, it
becomes HINTED until it has what the tail has. `_after` and `_mark` are written by the task of the reader alone, and
`dropped` only ever becomes True.

A caller that waits for the end of a task has no reader: it is a `_Waiter`, which a stopping event resolves.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from enum import Enum
from itertools import islice
from math import inf
from threading import Lock

from ...task_states import STOPPED
from ...types.stored_events import TaskEvent
from ...types.stored_tasks import StoredTask
from .ports import Ending, Subscription

Read = Callable[[str, int, int], Awaitable[list[TaskEvent] | None]]
"""Stored events of a task after a number, at most so many; None if there is no such task."""
Stopped = Callable[[int], Awaitable[bool]]
"""True if an event after a number has stopped a task, which is stopped still."""
LoadStopped = Callable[[int], Awaitable[StoredTask | None]]
"""The task that an event after a number has stopped; None while it goes on. Raises `TaskNotFoundError`."""
_BATCH_EVENTS = 256
_BATCH_BYTES = 256_000


def _soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """Call a function in an event loop, from any thread. Does nothing for a closed loop."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)


class _Waiter:
    """A future for resolving from any thread."""

    __slots__ = ('after', 'future', 'loop', 'newest', 'prepared', 'task')

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.after = -1
        """Number of the last event that the waiting caller knows; -1 before the wait."""
        self.newest: float = 0
        """Number of the newest stopping event; infinite once the caller has to wait no longer."""
        self.prepared: tuple[TaskEvent, StoredTask] | None = None
        """The last event of a run of this process before the write, and the task with this event."""
        self.task: StoredTask | None = None
        """The stopped task, if a run of this process has stored the end."""

    def resolve(self) -> None:
        """Wake the waiting caller."""
        if asyncio._get_running_loop() is self.loop:
            self._set()
        else:
            _soon(self.loop, self._set)

    def stop(self, last: TaskEvent) -> None:
        """Wake the waiting caller with the task: the stopping event `last` is stored."""
        # Compare by identity: another run may store an equal event.
        self.task = self.prepared[1] if self.prepared is not None and self.prepared[0] is last else None
        self.newest = last.n
        self.resolve()

    def renew(self) -> None:
        """Begin the next wait, before the caller asks the store: a stop meanwhile ends the wait."""
        self.future = self.loop.create_future()

    def release(self) -> None:
        """Wake the waiting caller, although the task goes on."""
        self.newest = inf
        self.resolve()

    def _set(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class _Tail:
    __slots__ = ('events', 'live', 'published', 'readers', 'size')

    def __init__(self) -> None:
        self.events: deque[TaskEvent] = deque()
        self.size = 0
        self.published = 0
        """Bytes ever published, for measuring lag."""
        self.readers: set[_Reader] = set()
        self.live = 0
        """Number of readers of live text."""

    def add(self, event: TaskEvent, limit: int) -> None:
        if self.events and event.n != self.events[-1].n + 1:
            if event.n <= self.events[-1].n:
                return  # an older event, published late: readers read it from the store
            # Another process has stored the events between. Readers read them from the store.
            self.clear()
        self.events.append(event)
        size = len(event.payload)
        self.size += size
        self.published += size
        while self.size > limit and len(self.events) > 1:
            self.size -= len(self.events.popleft().payload)

    def clear(self) -> None:
        """Drop the events, because the store has newer ones of another process."""
        self.events.clear()
        self.size = 0

    def reaches_past(self, n: int) -> bool:
        """True if the tail has an event after `n`."""
        return bool(self.events) and self.events[-1].n > n

    def after(self, n: int) -> list[TaskEvent] | None:
        """A batch of the events after `n`; None if the tail does not reach back that far."""
        if not self.events or self.events[0].n > n + 1:
            return None
        batch: list[TaskEvent] = []
        if (ahead := self.events[-1].n - n) <= 0:
            return batch
        # Event numbers have no gaps. Count from the end: most readers are near the end, and the tail may be long.
        newer = [*islice(reversed(self.events), ahead)]
        size = 0
        for event in reversed(newer):
            batch.append(event)
            size += len(event.payload)
            if size >= _BATCH_BYTES or len(batch) >= _BATCH_EVENTS:
                break
        return batch


class _State(Enum):
    """The state of a reader, as described above."""

    BEHIND = 'behind'
    AT_TAIL = 'at the tail'
    HINTED = 'hinted'


class _Reader(Subscription):
    def __init__(
        self, event_bus: EventBus, task_id: str, tail: _Tail, on_drop: Callable[[], object], *, live: bool
    ) -> None:
        self.live = live
        """True for a reader of live text."""
        self._event_bus = event_bus
        self._task_id = task_id
        self._tail = tail
        self._on_drop = on_drop
        self._loop = asyncio.get_running_loop()
        self._after = 0
        """Number of the last event that the reader has taken."""
        self._state = _State.BEHIND
        self._mark: int | None = None
        """Bytes that the tail had published when the reader took the batch in its hands; None without a batch."""
        self._nudged: bool | None = None
        """True once `next` is to return without events; None while no caller is in `next`."""
        self._waiter: _Waiter | None = None
        """Set while `next` waits."""

    def start(self, after: int) -> None:
        self._after = after

    async def next(self) -> Sequence[TaskEvent]:
        after = self._after
        self._mark = None
        self._nudged = False
        while not self.dropped:
            with self._event_bus.lock:
                batch = self._tail.after(after)
                if batch is not None and self._state is _State.BEHIND:
                    self._state = _State.AT_TAIL
            # Without a batch, the tail has nothing new ([]), or does not reach back to the reader (None).
            state = self._state
            if not batch and (
                state is _State.HINTED or (batch is None and (state is _State.BEHIND or self._tail.events))
            ):
                batch = await self._from_store(after)
            if batch:
                self._after = batch[-1].n
                self._mark = self._tail.published
                self._nudged = None
                return batch
            if self.dropped or not await self._wait(after):
                break
        self._nudged = None
        return ()

    async def _from_store(self, after: int) -> list[TaskEvent]:
        with self._event_bus.lock:
            self._state = _State.BEHIND
        batch = await self._event_bus.read(self._task_id, after, _BATCH_EVENTS)
        with self._event_bus.lock:
            lacks = not batch and _lacks(after, self._tail.events)
        if lacks:  # published and stored during the read: read again
            batch = await self._event_bus.read(self._task_id, after, _BATCH_EVENTS)
        with self._event_bus.lock:
            if batch is None:  # what the tail has comes first, and then another read
                self._state = _State.HINTED
                if not self._tail.after(after):
                    self.dropped = True
                return []
            if self._state is _State.BEHIND and len(batch) < _BATCH_EVENTS:
                self._state = _State.AT_TAIL
        # The next event was swept: do not skip it silently. What was published after the last read, the next one finds.
        if _lacks(after, batch) or (lacks and not batch):
            self.dropped = True
            return []
        return batch

    async def _wait(self, after: int) -> bool:
        """Wait for a publication, a hint or a nudge; return true if there may be events to read."""
        with self._event_bus.lock:
            if self._has_news(after):
                return True
            if self.dropped or self._nudged:
                return False
            waiter = self._waiter = _Waiter()
        await waiter.future
        with self._event_bus.lock:
            self._waiter = None
            return not self._nudged or self._has_news(after)

    def _has_news(self, after: int) -> bool:
        """True if there may be events after a number. Needs the lock."""
        return self._tail.reaches_past(after) or self._state is _State.HINTED

    def wake(self, limit: int) -> None:
        """Wake the reader after new events, or drop a reader that is too far behind. Needs the lock."""
        mark = self._mark  # read once: the reader takes the next batch in another thread
        if self._waiter is not None:
            self._waiter.resolve()
        elif mark is not None and not self.dropped and self._tail.published - mark > limit:
            self.dropped = True
            _soon(self._loop, self._on_drop)

    def hint(self) -> None:
        """Wake the reader for what another process has written. Needs the lock."""
        self._state = _State.HINTED
        if self._waiter is not None:
            self._waiter.resolve()

    def nudge(self) -> None:
        with self._event_bus.lock:
            if self._nudged is not None:
                self._nudged = True
            if self._waiter is not None:
                self._waiter.resolve()

    def close(self) -> None:
        self._event_bus.remove(self._task_id, self)


def _lacks(after: int, following: Sequence[TaskEvent]) -> bool:
    """True if events are missing between the event `after` and the following events."""
    return bool(following) and following[0].n > after + 1


class EventBus:
    """The tails of all watched tasks of a backend, and the callers that wait for a task to stop."""

    def __init__(self, read: Read, lag_limit: int, on_use: Callable[[], object] | None = None) -> None:
        self.read = read
        self._on_use = on_use
        """Called for each new reader and waiter."""
        self.lock = Lock()
        self._lag_limit = lag_limit
        self._tails: dict[str, _Tail] = {}
        self._waiters: dict[str, list[_Waiter]] = {}

    def publish(self, task_id: str, events: Sequence[TaskEvent]) -> None:
        """Hand stored events to the readers and waiting callers of the task."""
        if not events:
            return
        if (tail := self._tails.get(task_id)) is not None:
            with self.lock:
                for event in events:
                    tail.add(event, self._lag_limit)
                for reader in tail.readers:
                    reader.wake(self._lag_limit)
        if task_id in self._waiters and events[-1].state in STOPPED:  # a stopping event is the last
            with self.lock:
                for waiter in self._waiters.get(task_id, ()):
                    waiter.stop(events[-1])

    def hint(self, task_id: str, newest: int | None) -> None:
        """Wake readers for the event `newest` of another process; None: the task may be erased."""
        with self.lock:
            if (tail := self._tails.get(task_id)) is not None:
                if tail.events and tail.events[-1].n == newest:
                    return  # this process has published the event
                if tail.events and newest is not None and newest > tail.events[-1].n:
                    tail.clear()  # else a later reader, who gets no hint, would wait for more than the tail has
                for reader in tail.readers:
                    reader.hint()
            for waiter in self._waiters.get(task_id, ()):
                if newest is None or newest > waiter.after:
                    waiter.resolve()

    def release(self, held: Callable[[str], bool]) -> None:
        """Wake the callers of this event loop that wait for tasks not held by this process."""
        loop = asyncio.get_running_loop()
        with self.lock:
            for task_id, waiters in self._waiters.items():
                for waiter in waiters if not held(task_id) else ():
                    if waiter.loop is loop:
                        waiter.release()

    @property
    def in_use(self) -> bool:
        """True if this process has a reader or a waiting caller."""
        return bool(self._tails or self._waiters)

    def wants(self, task_id: str) -> int | None:
        """Return what the readers and waiting callers of a task want: 0 the end, 1 the events, 2 live text, too."""
        tail = self._tails.get(task_id)
        if tail is not None:
            return 1 + (tail.live > 0)
        return 0 if task_id in self._waiters else None

    def wanted(self) -> dict[str, int]:
        """Return the tasks with readers or waiting callers in this process, each as `wants`."""
        with self.lock:
            events = {task_id: 1 + (tail.live > 0) for task_id, tail in self._tails.items()}
            return dict.fromkeys(self._waiters, 0) | events

    def subscribe(self, task_id: str, on_drop: Callable[[], object], *, live: bool = False) -> Subscription:
        """See `EventLog.subscribe`."""
        with self.lock:
            tail = self._tails.setdefault(task_id, _Tail())
            reader = _Reader(self, task_id, tail, on_drop, live=live)
            tail.readers.add(reader)
            tail.live += live
        if self._on_use is not None:
            self._on_use()
        return reader

    def remove(self, task_id: str, reader: _Reader) -> None:
        """Remove a reader; remove the tail with the last reader."""
        with self.lock:
            tail = self._tails.get(task_id)
            if tail is not None and reader in tail.readers:
                tail.readers.remove(reader)
                tail.live -= reader.live
                if not tail.readers:
                    del self._tails[task_id]

    def watched(self, task_id: str, *, live: bool = False) -> bool:
        """True if the task has a reader in this process; with `live`, a reader of live text."""
        tail = self._tails.get(task_id)
        return tail is not None and (not live or tail.live > 0)

    def prepare(self, task_id: str, final: TaskEvent, make: Callable[[], StoredTask | None]) -> None:
        """Give the waiting callers the task as of the event `final`, before the event is published.

        `make` returns the task, or None if the callers have to read the task. Without a caller, `make` is not called.
        """
        if task_id not in self._waiters or (task := make()) is None:
            return
        with self.lock:
            for waiter in self._waiters.get(task_id, ()):
                waiter.prepared = final, task

    async def wait(
        self, task_id: str, after: int, stopped: Stopped, on_wait: Callable[[], object] | None = None
    ) -> None:
        """Wait until an event after a number stops the task; return at once if `stopped` returns true.

        `on_wait` is called once the waiting caller is registered.
        """
        waiter = self.add_waiter(task_id)
        try:
            if on_wait is not None:
                on_wait()
            while not await stopped(after):
                waiter.after = after
                await waiter.future
                if waiter.newest > after:
                    break
                waiter.renew()
        finally:
            self.remove_waiter(task_id, waiter)

    def add_waiter(self, task_id: str) -> _Waiter:
        """Register a waiter of the running event loop for the end of a task."""
        waiter = _Waiter()
        with self.lock:
            self._waiters.setdefault(task_id, []).append(waiter)
        if self._on_use is not None:
            self._on_use()
        return waiter

    def remove_waiter(self, task_id: str, waiter: _Waiter) -> None:
        """Forget a waiter."""
        with self.lock:
            waiters = self._waiters[task_id]
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[task_id]


class BusEnding(Ending):
    """A registered wait for the end of a task; `load` reads the task, which another process may have ended."""

    def __init__(self, event_bus: EventBus, task_id: str, load: LoadStopped) -> None:
        self._event_bus = event_bus
        self._task_id = task_id
        self._load = load
        self._waiter = event_bus.add_waiter(task_id)

    async def wait(self, after: int) -> StoredTask | None:
        waiter = self._waiter
        waiter.after = after
        await waiter.future
        while waiter.newest <= after:  # an earlier stop, or a hint: another process may have ended the task
            waiter.renew()
            if (task := await self._load(after)) is not None:
                return task
            await waiter.future
        return waiter.task

    def close(self) -> None:
        self._event_bus.remove_waiter(self._task_id, self._waiter)
