"""Repeats what a run reads and writes while its store is unavailable, so that the run itself is not repeated."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

from .errors import LeaseLost, StoreFailed, StoreUnavailable

__all__ = ('Call', 'Retries')

logger = logging.getLogger('pydantic_ai_a2a')

T = TypeVar('T')


class Call(Protocol):
    """Calls the store for one task."""

    async def __call__(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of the call.

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


class Retries:
    """Repeats calls to the store of the tasks that one worker runs, until a call succeeds or the worker ends.

    A retry may last longer than the lease: a write under a lost lease is refused with `LeaseLost`, so it does no harm,
    and while nobody else can write either, the lease is still there when the store takes writes again.
    """

    def __init__(self) -> None:
        self._ending = asyncio.Event()

    @classmethod
    def once(cls) -> Retries:
        """Retries that try each call once."""
        once = cls()
        once.end()
        return once

    def end(self) -> None:
        """Repeat nothing from now on."""
        self._ending.set()

    def of(self, task_id: str) -> Call:
        """The function that calls the store for one task."""
        return partial(self._call, task_id)

    async def _call(self, task_id: str, attempt: Callable[[], Awaitable[T]]) -> T:
        pause, busy, refused = _PAUSE, 0, False
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
                if not refused:
                    logger.warning(
                        'The store is unavailable; task %s waits for it and then goes on: %s', task_id, error.detail
                    )
                refused = True
            except Exception as error:
                raise StoreFailed from error
            seconds = pause * random.uniform(0.5, 1)  # nosec B311 - keeps runs apart, and nothing secret
            pause = min(2 * pause, _LONGEST)
            await self._wait(seconds)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):  # in Python 3.11, wait_for may swallow a cancellation
                await self._ending.wait()
        except TimeoutError:
            pass
