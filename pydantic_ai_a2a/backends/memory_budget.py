"""Memory accounting for the in-memory backend: rejects messages that would exceed the limit."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import OverloadedError

__all__ = ('COPIES', 'ROW', 'MemoryBudget')

COPIES = 4
"""A message is in its task, in its conversation, and in what follows from it."""
ROW = 4_096
"""Bytes that a message takes, however short it is."""


class MemoryBudget:
    """The bytes that may still be stored.

    Args:
        limit: Bytes that there may be.
        used: Bytes that there are.
    """

    def __init__(self, limit: int, used: Callable[[], int]) -> None:
        self._limit = limit
        self._used = used
        self.left = 0
        """Bytes that may come before it is measured again. Who stores a message takes its bytes off."""

    def measure(self, needed: int) -> None:
        """Measure the store again, and take `needed` bytes.

        Raises:
            OverloadedError: The store has no room for them.
        """
        self.left = self._limit - self._used() - needed
        if self.left < 0:
            raise OverloadedError(headers={'Retry-After': '60'})
