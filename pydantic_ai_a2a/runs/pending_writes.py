"""Writes that failed because the store was unavailable, kept for retry: releases of tasks, failures, charges.

Leases of such tasks are still renewed: no other worker takes over a task that only waits for a write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from ..errors import StoreUnavailable

__all__ = ('Attempt', 'PendingWrites')

logger = logging.getLogger('pydantic_ai_a2a')

Attempt: TypeAlias = Callable[[], Awaitable[object]]
"""Writes to the store. May be called again."""


class PendingWrites:
    """Pending writes of one worker, in their order."""

    def __init__(self) -> None:
        self._pending_writes: list[tuple[str, Attempt]] = []
        self._writing: list[str] = []
        """Tasks with a write in progress, which may take long."""
        self._settling = asyncio.Lock()

    def add(self, task_id: str, attempt: Attempt) -> None:
        """Keep a write of a task for later."""
        self._pending_writes.append((task_id, attempt))

    async def give(self, task_id: str, attempt: Attempt) -> None:
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
                try:
                    await self.give(task_id, attempt)
                except StoreUnavailable:
                    raise
                except Exception:  # the others may succeed
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
