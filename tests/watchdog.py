"""Ends a test that hangs, with all its stacks and the line that it awaits.

Counts the seconds in which the machine runs: a machine that was stopped for an hour has lost one second.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import threading
import time
from contextlib import suppress
from typing import Any

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
                self._print_awaits()
            if self._seconds > TEST_LIMIT:
                os._exit(1)

    def _print_awaits(self) -> None:
        """Print what each task of asyncio awaits, and what that awaits. No thread's stack has them."""
        lines: list[str] = []
        tasks = [one for one in gc.get_objects() if issubclass(type(one), asyncio.Task)]
        for task in (task for task in tasks if not task.done()):
            lines.append(f'Task {task.get_name()}:')
            awaited: Any = task.get_coro()
            while frame := getattr(awaited, 'cr_frame', None):
                lines.append(f'  {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}')
                awaited = awaited.cr_await
        with suppress(OSError):  # pytest has ended in this process, and waits for the others
            os.write(self._stderr, '\n'.join([*lines, '']).encode())
