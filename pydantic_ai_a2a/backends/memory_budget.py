"""Memory accounting for the in-memory backend: rejects messages that would exceed the limit."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import OverloadedError

__all__ = ('COPIES', 'ROW', 'MemoryBudget')

COPIES = 4
"""Copies of a message: in the task, in the conversation, and in later values."""
ROW = 4_096
"""The least bytes of a message."""


class MemoryBudget:
    """The free bytes of the in-memory backend.

    Args:
        limit: Limit of stored bytes.
        used: Stored bytes.
    """

    def __init__(self, limit: int, used: Callable[[], int]) -> None:
        self._limit = limit
        self._used = used
        self.left = 0
        """Free bytes until the next measurement. Each stored message takes bytes off."""

    def measure(self, needed: int) -> None:
        """Measure the store again, and take `needed` bytes.

        Raises:
            OverloadedError: The store has no room for them.
        """
        self.left = self._limit - self._used() - needed
        if self.left < 0:
            raise OverloadedError(headers={'Retry-After': '60'})
