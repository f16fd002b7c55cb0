"""The time, for the whole package: a wall clock for timestamps and expiry, a steady clock for leases, the stop time."""

from __future__ import annotations

import time
from functools import cached_property, partial
from pathlib import Path

STOP_TIME = 5.0
"""Seconds that a task, a thread or a write gets to end at a stop. Then the stop continues without waiting."""

# CLOCK_BOOTTIME also counts the time while the machine is suspended. Only Linux has this clock.
_STEADY = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME) if hasattr(time, 'CLOCK_BOOTTIME') else time.monotonic_ns
_BOOT_ID = Path('/proc/sys/kernel/random/boot_id')


class Clock:
    """The clocks of this machine."""

    def __init__(self, boot_id: Path = _BOOT_ID) -> None:
        self._boot_id = boot_id

    @cached_property
    def boot(self) -> str:
        """Id of the boot since which the steady clock counts; empty on systems without such an id."""
        try:
            return self._boot_id.read_text().strip()
        except OSError:  # not Linux
            return ''

    def now(self) -> int:
        """Milliseconds since the epoch. The clock may be set, forwards or backwards."""
        return time.time_ns() // 1_000_000

    def steady(self) -> int:
        """Milliseconds on a clock that cannot be set, shared by all processes of this machine until its next boot."""
        return _STEADY() // 1_000_000


SYSTEM = Clock()
