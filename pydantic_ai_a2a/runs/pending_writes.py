"""What a worker owes to its store, which did not take it: tasks to hand back, failures to record. Knows neither.

Leases of tasks that something is owed for go on being renewed, so that nobody takes over what only has to be written.
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
"""Writes it to the store; again if need be."""


class PendingWrites:
    """What one worker owes, in the order in which it came to."""

    def __init__(self) -> None:
        self._pending_writes: list[tuple[str, Attempt]] = []
        self._writing: list[str] = []
        """Tasks of which something is being written, which may take long."""
        self._settling = asyncio.Lock()

    def add(self, task_id: str, attempt: Attempt) -> None:
        """Write something of a task later."""
        self._pending_writes.append((task_id, attempt))

    async def give(self, task_id: str, attempt: Attempt) -> None:
        """Write it now; if that fails, whatever it raises, it is owed."""
        try:
            await attempt()
        except BaseException:  # a cancellation that has cut it short among them
            self.add(task_id, attempt)
            raise

    async def settle(self) -> None:
        """Try to write all that is owed. What fails is owed still. Calls at the same time run one after the other.

        Raises:
            StoreUnavailable: Of the first that failed like that; the rest was not tried, as it would take long.
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
                    logger.exception('What is owed for task %s could not be stored.', task_id)
                finally:
                    self._writing.remove(task_id)

    async def settle_at_last(self, seconds: float) -> None:
        """Try once more, for so long at most: nobody will after that."""
        try:
            async with asyncio.timeout(seconds):
                await self.settle()
        except (StoreUnavailable, TimeoutError):
            logger.warning('The store was not told how tasks ended; their leases run out: %s', ', '.join(self.tasks()))

    def tasks(self) -> list[str]:
        """The tasks, from any thread; one may be there twice."""
        return [*(task_id for task_id, _ in self._pending_writes.copy()), *self._writing.copy()]
