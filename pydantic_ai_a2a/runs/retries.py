"""Retries of a run's reads and writes while the store is unavailable, instead of a new run.

After a long outage, workers leave the tasks of other workers alone until those had time to renew their leases.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

from ..errors import LeaseLost, StoreFailed, StoreUnavailable

__all__ = ('Call', 'Outages', 'Retries')

logger = logging.getLogger('pydantic_ai_a2a')

T = TypeVar('T')


class Call(Protocol):
    """Calls the store for one task."""

    async def __call__(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the call.

        Raises:
            LeaseLost: The task is no longer held.
            StoreUnavailable: The worker ends before the store is available.
            StoreFailed: The store failed in another way, or the transaction took too long several times.
        """
        ...


_PAUSE = 0.05
"""Seconds before the second attempt; the pause doubles with each attempt."""
_LONGEST = 1.0
_BUSY = 5
"""Attempts of a transaction that takes too long although the store works."""
_FRESH = 1 / 30
"""Part of a lease for which an answer proves that the store is available."""
_SHORTEST = 0.5
"""Seconds without an answer that are no outage, however short the lease is."""


class Outages:
    """Delays claims after an outage, while other workers renew leases that expired during the outage.

    Args:
        lease: Seconds of a lease. The store is asked at least three times in this time.
    """

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._answered: float | None = None
        self._until = 0.0

    async def pause(self, ask: Callable[[], Awaitable[object]]) -> float:
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


class Retries:
    """Repeats calls to the store for the tasks of one worker, until a call succeeds or the worker ends.

    A retry may last longer than the lease. A write under a lost lease is refused with `LeaseLost` and does no harm.
    While no process can write, the lease is still valid when the store is back.
    """

    def __init__(self) -> None:
        self._ending = asyncio.Event()
        self.waiting: set[str] = set()
        """Tasks with a call that waits for the store."""

    @classmethod
    def once(cls) -> Retries:
        """Return retries that try each call once."""
        once = cls()
        once.end()
        return once

    def end(self) -> None:
        """Repeat no further call."""
        self._ending.set()

    def of(self, task_id: str) -> Call:
        """Return the function that calls the store for one task."""
        return partial(self._call, task_id)

    async def _call(self, task_id: str, attempt: Callable[[], Awaitable[T]]) -> T:
        pause, busy = _PAUSE, 0
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
                seconds = pause * random.uniform(0.5, 1)  # nosec B311 - keeps runs apart, and nothing secret
                pause = min(2 * pause, _LONGEST)
                await self._wait(seconds)
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

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):  # in Python 3.11, wait_for may swallow a cancellation
                await self._ending.wait()
        except TimeoutError:
            pass
