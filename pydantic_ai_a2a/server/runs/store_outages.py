"""Outages of the store: runs repeat their calls, the writes of ends are kept, and claims wait.

- A run that reads or writes while the store is unavailable repeats its call, instead of a new run (`StoreRetries`).
- Writes that failed are kept for retry: releases of tasks, failures, charges (`PendingWrites`). Leases of such tasks
  are still renewed: no other worker takes over a task that only waits for a write.
- After a long outage, workers leave the tasks of other workers alone until those had time to renew their leases
  (`Outages`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

from ...backoff import backoff_after, spread
from ...base_exceptions import ends_task
from ...bounded_wait import bounded_wait
from ...errors import LeaseLost, StoreFailed, StoreUnavailable

logger = logging.getLogger('pydantic_ai_a2a')

T = TypeVar('T')

_FIRST, _LONGEST = 0.05, 1.0
"""The first and the longest pause between attempts, in seconds."""
_BUSY = 5
"""Attempts of a transaction that takes too long although the store works."""
_FRESH = 1 / 30
"""Part of a lease for which an answer proves that the store is available."""
_SHORTEST = 0.5
"""Seconds without an answer that are no outage, however short the lease is."""

StoreWrite: TypeAlias = Callable[[], Awaitable[object]]
"""Writes to the store. May be called again."""


class StoreCall(Protocol):
    """Calls the store for one task."""

    async def __call__(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the call.

        Raises:
            LeaseLost: The task is no longer held.
            StoreUnavailable: The worker ends before the store is available.
            StoreFailed: The store failed in another way, or the transaction took too long several times.
        """
        ...


class StoreRetries:
    """Repeats calls to the store for the tasks of one worker, until a call succeeds or the worker ends.

    A retry may last longer than the lease. A write under a lost lease is refused with `LeaseLost` and does no harm.
    While no process can write, the lease is still valid when the store is back.
    """

    def __init__(self) -> None:
        self._ending = asyncio.Event()
        self.waiting: set[str] = set()
        """Tasks with a call that waits for the store."""

    @classmethod
    def once(cls) -> StoreRetries:
        """Return retries that try each call once."""
        once = cls()
        once.end()
        return once

    def end(self) -> None:
        """Repeat no further call."""
        self._ending.set()

    def of(self, task_id: str) -> StoreCall:
        """Return the function that calls the store for one task."""
        return partial(self._call, task_id)

    async def _call(self, task_id: str, attempt: Callable[[], Awaitable[T]]) -> T:
        failures = busy = 0
        try:
            while True:
                try:
                    return await attempt()
                except LeaseLost:
                    raise
                except StoreUnavailable as error:
                    busy += error.busy
                    if busy >= _BUSY:
                        raise StoreFailed from error
                    if self._ending.is_set():
                        raise
                    self._is_waiting(task_id, error)
                except Exception as error:
                    raise StoreFailed from error
                failures += 1
                await bounded_wait(spread(backoff_after(failures, _FIRST, _LONGEST)), self._ending.wait())
        finally:
            if self.waiting:
                self.waiting.discard(task_id)

    def _is_waiting(self, task_id: str, error: StoreUnavailable) -> None:
        if task_id not in self.waiting:
            logger.warning(
                'The store is unavailable; task %s continues once the store is available again: %s',
                task_id,
                error.detail,
            )
        self.waiting.add(task_id)


class PendingWrites:
    """Pending writes of one worker, in their order."""

    def __init__(self) -> None:
        self._pending_writes: list[tuple[str, StoreWrite]] = []
        self._writing: list[str] = []
        """Tasks with a write in progress, which may take long."""
        self._settling = asyncio.Lock()

    def add(self, task_id: str, attempt: StoreWrite) -> None:
        """Keep a write of a task for later."""
        self._pending_writes.append((task_id, attempt))

    async def give(self, task_id: str, attempt: StoreWrite) -> None:
        """Write now. After any exception, keep the write for later."""
        try:
            await attempt()
        except BaseException:  # including a cancellation during the write
            self.add(task_id, attempt)
            raise

    async def settle(self) -> None:
        """Try all pending writes. Failed writes are kept. Concurrent calls run one after the other.

        Raises:
            StoreUnavailable: The store is unavailable. The remaining writes were not tried, to save time.
        """
        async with self._settling:
            for _ in range(len(self._pending_writes)):
                task_id, attempt = self._pending_writes[0]
                self._writing.append(task_id)
                del self._pending_writes[0]
                current = asyncio.current_task()
                try:
                    await self.give(task_id, attempt)
                except StoreUnavailable:
                    raise
                except BaseException as error:  # of a user's store; the others may succeed
                    if ends_task(error, current):
                        raise
                    logger.exception(
                        'A pending write of task %s could not be stored; the task runs again once its lease expires.',
                        task_id,
                    )
                finally:
                    self._writing.remove(task_id)

    async def settle_at_last(self, seconds: float) -> None:
        """Try all pending writes a last time, for at most `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self.settle()
        except (StoreUnavailable, TimeoutError):
            logger.warning(
                'The ends of tasks could not be stored; these tasks run again once their leases expire: %s',
                ', '.join(self.tasks()),
            )

    def tasks(self) -> list[str]:
        """Return the tasks of the pending writes, from any thread. A task may occur twice."""
        return [*(task_id for task_id, _ in self._pending_writes.copy()), *self._writing.copy()]


class Outages:
    """Delays claims after an outage, while other workers renew leases that expired during the outage.

    Args:
        lease: Seconds of a lease. The store is asked at least three times in this time.
    """

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._answered: float | None = None
        self._until = 0.0

    async def claim_delay(self, ask: Callable[[], Awaitable[object]]) -> float:
        """Ask the store, and return the seconds until the worker may claim tasks.

        If a lease can have expired during an outage, all holders get a third of a lease to renew.

        Args:
            ask: Begins a write transaction without changes.
        """
        time = asyncio.get_running_loop().time
        if self._answered is None or time() - self._answered > self._lease * _FRESH:
            await ask()
            last, self._answered = self._answered, time()
            if last is not None and self._answered - last > max(self._lease * 2 / 3, _SHORTEST):
                self._until = self._answered + self._lease / 3
        return max(0.0, self._until - time())
