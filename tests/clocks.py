"""Clocks that tests set."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from pydantic_ai_a2a.clock import SYSTEM, Clock

__all__ = ('HOUR', 'SetClock', 'skip_time')

HOUR = 3_600_000


class SetClock(Clock):
    """This machine's clocks, and how far a test has moved each of them.

    Args:
        passed: Milliseconds that the steady clock is ahead.
        boot_id: File that names the boot; without it, that of the system.
    """

    def __init__(self, passed: int = 0, *boot_id: Path) -> None:
        super().__init__(*boot_id)
        self.wall = 0
        """Milliseconds by which the wall clock was set forward, or back if it is negative."""
        self.passed = passed

    def now(self) -> int:
        return SYSTEM.now() + self.wall

    def steady(self) -> int:
        return SYSTEM.steady() + self.passed

    @contextmanager
    def later(self, ms: int = HOUR) -> Generator[None]:
        """Let time pass until the end of the block: leases expire."""
        self.passed += ms
        try:
            yield
        finally:
            self.passed -= ms


def skip_time(seconds: float) -> None:
    """Set the clock of the running event loop forward: waits of so many seconds are over."""
    loop = asyncio.get_running_loop()
    time = loop.time
    setattr(loop, 'time', lambda: time() + seconds)  # noqa: B010 (a method)
