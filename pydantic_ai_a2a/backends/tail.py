"""The newest events of each watched task, shared by its readers in this process. Knows no storage but one `read`.

A reader is a number and a future: it takes what it lacks from the shared tail or, further back, from the store.
Publishing never waits, whatever a reader does; one that holds a batch while more than the limit piles up is dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import islice
from threading import Lock

from ..lifecycle import STOPPED
from ..ports import Subscription
from ..types import TaskEvent

__all__ = ('Read', 'Tails')

Read = Callable[[str, int, int], Awaitable[list[TaskEvent]]]
"""Stored events of a task after a number, at most so many."""

_BATCH_EVENTS = 256
_BATCH_BYTES = 256_000


def _soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """Call back in a loop, from any thread; in one that is closed there is nobody left to tell."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)


class _Waiter:
    """A future that any thread may resolve."""

    __slots__ = ('_loop', 'future')

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self._loop.create_future()

    def resolve(self) -> None:
        if asyncio._get_running_loop() is self._loop:
            self._set()
        else:
            _soon(self._loop, self._set)

    def _set(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class _Tail:
    __slots__ = ('events', 'published', 'readers', 'size')

    def __init__(self) -> None:
        self.events: deque[TaskEvent] = deque()
        self.size = 0
        self.published = 0
        """Bytes ever published, for measuring lag."""
        self.readers: set[_Reader] = set()

    def add(self, event: TaskEvent, limit: int) -> None:
        self.events.append(event)
        self.size += len(event.payload)
        self.published += len(event.payload)
        while self.size > limit and len(self.events) > 1:
            self.size -= len(self.events.popleft().payload)

    def reaches_past(self, n: int) -> bool:
        """Whether there is an event after `n`."""
        return bool(self.events) and self.events[-1].n > n

    def after(self, n: int) -> list[TaskEvent] | None:
        """A batch of the events after `n`; None if the tail does not reach back that far."""
        if not self.events or self.events[0].n > n + 1:
            return None
        # Numbers have no gaps. Counted from the end, because a reader is usually near it, and the tail may be long.
        newer = [*islice(reversed(self.events), max(0, self.events[-1].n - n))]
        batch: list[TaskEvent] = []
        size = 0
        for event in reversed(newer):
            batch.append(event)
            size += len(event.payload)
            if size >= _BATCH_BYTES or len(batch) >= _BATCH_EVENTS:
                break
        return batch


class _Reader(Subscription):
    def __init__(self, tails: Tails, task_id: str, tail: _Tail, on_drop: Callable[[], object]) -> None:
        self._tails = tails
        self._task_id = task_id
        self._tail = tail
        self._on_drop = on_drop
        self._loop = asyncio.get_running_loop()
        self._after = 0
        self._behind = True
        """Whether the store may hold events that neither the reader nor the tail has."""
        self._busy = False
        self._mark = 0
        self._waiter: _Waiter | None = None
        self._nudged = False

    def start(self, after: int) -> None:
        self._after = after

    async def next(self) -> Sequence[TaskEvent]:
        self._busy = False
        while not self.dropped:
            with self._tails.lock:
                batch = self._tail.after(self._after)
            if batch is not None:
                self._behind = False
            elif self._behind or self._tail.events:
                batch = await self._from_store()
            if batch:
                return self._take(batch)
            if not self._behind and not await self._wait():
                break
        return ()

    async def _from_store(self) -> list[TaskEvent]:
        batch = await self._tails.read(self._task_id, self._after, _BATCH_EVENTS)
        self._behind = len(batch) == _BATCH_EVENTS
        following = batch or self._tail.events
        if following and following[0].n > self._after + 1:  # what lies between was swept away: never skip it silently
            self.dropped = True
            return []
        return batch

    def _take(self, batch: list[TaskEvent]) -> list[TaskEvent]:
        self._after = batch[-1].n
        self._mark = self._tail.published
        self._busy = True
        return batch

    async def _wait(self) -> bool:
        """Wait for a publication or a nudge; whether there is something to read."""
        with self._tails.lock:
            if self._tail.reaches_past(self._after):
                return True
            waiter = self._waiter = _Waiter()
        await waiter.future
        nudged, self._nudged, self._waiter = self._nudged, False, None
        return not nudged or self._tail.reaches_past(self._after)

    def wake(self, limit: int) -> None:
        """The tail has grown: wake the reader, or drop it if it has not come back for too long."""
        if self._waiter is not None:
            self._waiter.resolve()
        elif self._busy and not self.dropped and self._tail.published - self._mark > limit:
            self.dropped = True
            _soon(self._loop, self._on_drop)

    def nudge(self) -> None:
        if self._waiter is not None:
            self._nudged = True
            self._waiter.resolve()

    def close(self) -> None:
        self._tails.remove(self._task_id, self)


class Tails:
    """The tails of all watched tasks of a backend, and those who wait for a task to stop."""

    def __init__(self, read: Read, lag_limit: int) -> None:
        self.read = read
        self.lock = Lock()
        self._lag_limit = lag_limit
        self._tails: dict[str, _Tail] = {}
        self._waiters: dict[str, list[_Waiter]] = {}

    def publish(self, task_id: str, events: Sequence[TaskEvent]) -> None:
        """Hand stored events to whoever reads or waits for the task."""
        if (tail := self._tails.get(task_id)) is not None:
            with self.lock:
                for event in events:
                    tail.add(event, self._lag_limit)
                for reader in tail.readers:
                    reader.wake(self._lag_limit)
        if task_id in self._waiters and not STOPPED.isdisjoint([event.state for event in events]):
            with self.lock:
                for waiter in self._waiters.get(task_id, ()):
                    waiter.resolve()

    def subscribe(self, task_id: str, on_drop: Callable[[], object]) -> Subscription:
        """See `EventLog.subscribe`."""
        with self.lock:
            tail = self._tails.setdefault(task_id, _Tail())
            reader = _Reader(self, task_id, tail, on_drop)
            tail.readers.add(reader)
        return reader

    def remove(self, task_id: str, reader: _Reader) -> None:
        """Forget a reader, and the tail with its last one."""
        with self.lock:
            tail = self._tails.get(task_id)
            if tail is not None and reader in tail.readers:
                tail.readers.remove(reader)
                if not tail.readers:
                    del self._tails[task_id]

    def watched(self, task_id: str) -> bool:
        """Whether the task has a reader in this process."""
        return task_id in self._tails

    async def wait(self, task_id: str, stopped: Callable[[], Awaitable[bool]]) -> None:
        """Wait until a stopping event is published, unless `stopped` says that one is there already."""
        waiter = _Waiter()
        with self.lock:
            self._waiters.setdefault(task_id, []).append(waiter)
        try:
            if not await stopped():
                await waiter.future
        finally:
            with self.lock:
                waiters = self._waiters[task_id]
                waiters.remove(waiter)
                if not waiters:
                    del self._waiters[task_id]
