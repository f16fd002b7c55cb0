"""Ends a test that hangs, with all its stacks.

Counts the seconds in which the machine runs: a machine that was stopped for an hour has lost one second.
"""

from __future__ import annotations

import faulthandler
import os
import threading
import time

from .bounds import TEST_LIMIT

STILL = 180
"""Seconds without CPU time of this process after which the stacks are printed."""


class Watchdog(threading.Thread):
    """Watches the test that the process runs. pytest cannot interrupt a test that blocks its thread."""

    def __init__(self, stderr: int) -> None:
        super().__init__(name='watchdog', daemon=True)
        self._stderr = stderr
        self._seconds = 0
        self._still = 0

    def reset(self) -> None:
        """A test begins or ends."""
        self._seconds = self._still = 0

    def run(self) -> None:
        used = 0.0
        while True:
            time.sleep(1)
            before, used = used, time.process_time()
            self._seconds += 1
            self._still = 0 if used - before > 0.01 else self._still + 1
            if self._still == STILL or self._seconds > TEST_LIMIT:
                faulthandler.dump_traceback(file=self._stderr, all_threads=True)
            if self._seconds > TEST_LIMIT:
                os._exit(1)
