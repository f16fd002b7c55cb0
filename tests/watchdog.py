"""Ends a test that hangs, and prints what waits. pytest cannot interrupt a test that blocks its thread.

How long a test takes says nothing: beside other programs it gets a tenth of a core, and somebody may stop the machine
for hours. A test hangs if nothing of it computes although it could. So the watchdog counts CPU time: that of the
process, of all its threads, and of the processes that it has started, such as servers and databases.

- **Idle seconds** are those in which all of these together use less than `SHARE` of a core. A test that computes uses
  more, also beside a load of 18 on two cores. A server or a browser that only waits uses less. CPU time takes idle
  seconds away again, by the same share. After `Limits.report` idle seconds, the watchdog prints the stacks, what the
  tasks of asyncio await, and the processes; after `Limits.end`, it ends the process. pytest-xdist reports the test, and
  runs the others in a new process.
- **Quiet seconds** are those of a machine that has a core for each process that computes. They bound a test that
  computes for ever, or that waits while something of it computes again and again, such as a heartbeat. A second
  beside a load of 18 on two cores is a ninth of a quiet second.

The watchdog sleeps between its looks. A machine or process that was stopped meanwhile has lost one look, whatever the
clocks say. For the same reason, waits of tests have bounds that no clock reaches (`bounds.LIMIT`): this file ends them.

A test that waits for other programs, such as an installation or another process that makes one, says for how long:

    with WATCHDOG.waiting(1800):
        ...
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

import psutil
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

from .sizes import LONG

SHARE = 0.03
"""The share of a core below which a test is idle."""
TEMPORAL = 'temporal'
"""The program of Temporal's server, which does not count. After many tests it takes as much while it only waits, and it
never computes for long without its clients."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """When the watchdog speaks up, in seconds."""

    report: float = 60.0
    """Idle seconds until it prints what waits."""
    end: float = 180.0
    """Idle seconds until it ends the process."""
    quiet: float = 7_200.0 if LONG else 600.0
    """Quiet seconds until it ends the process."""
    pause: float = 1.0
    """Seconds between two looks."""


@dataclass
class Progress:
    """What the watchdog has seen of a test."""

    idle: float = 0.0
    quiet: float = 0.0
    reported: bool = False

    def add(self, seconds: float, used: float, *, load: float) -> None:
        """Add some seconds, with the CPU time that was used in them, and the processes that compute for each core."""
        self.idle = max(0.0, self.idle + seconds - used / SHARE)
        self.quiet += seconds / max(1.0, load)


class Watchdog:
    """Watches the test that this process runs. A plugin of pytest."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._end, self._quiet = self._limits.end, self._limits.quiet
        self._progress: Progress | None = None
        self._test = ''
        self._stderr = 2
        self._thread = threading.Thread(target=self._watch, name='watchdog', daemon=True)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Watch a test and its fixtures."""
        self._test = item.nodeid
        self.restart()
        if not self._thread.is_alive():
            self._stderr = item.config.stash[fault_handler_stderr_fd_key]  # which no capture takes
            self._thread.start()
        try:
            return (yield)
        finally:
            self.pytest_enter_pdb()

    def pytest_enter_pdb(self) -> None:
        """Watch nothing: a debugger waits for a person, and a process without a test for the others."""
        self._progress = None

    def restart(self) -> None:
        """A part of a long test begins, which is bounded like a test."""
        self._progress = Progress()

    pytest_leave_pdb = restart

    @contextmanager
    def waiting(self, seconds: float) -> Generator[None]:
        """Wait in the block for other programs, at most so many seconds without CPU time."""
        self._end, self._quiet = seconds, max(seconds, self._limits.quiet)
        try:
            yield
        finally:
            self._end, self._quiet = self._limits.end, self._limits.quiet
            self.restart()

    # --- the thread

    def _watch(self) -> None:
        processes = Processes()
        processes.used()
        while True:
            time.sleep(self._limits.pause)
            used = processes.used()
            if (progress := self._progress) is not None:
                progress.add(self._limits.pause, used, load=os.getloadavg()[0] / (os.cpu_count() or 1))
                self._judge(progress)

    def _judge(self, progress: Progress) -> None:
        if progress.idle >= self._end or progress.quiet >= self._quiet:
            self._print(f'is ended after {progress.idle:.0f} idle and {progress.quiet:.0f} quiet seconds')
            os._exit(1)
        if progress.idle >= self._limits.report and not progress.reported:
            progress.reported = True
            self._print(f'has not computed for {progress.idle:.0f} seconds')

    def _print(self, finding: str) -> None:
        self._write(f'\n{self._test} {finding}.')
        faulthandler.dump_traceback(file=self._stderr, all_threads=True)
        self._write(*_awaits(), *_processes())

    def _write(self, *lines: str) -> None:
        with suppress(OSError):  # nobody reads any longer
            os.write(self._stderr, '\n'.join([*lines, '']).encode())


class Processes:
    """The CPU time of this process and of all processes that it has started, without the thread of the watchdog."""

    def __init__(self) -> None:
        self._own: float = 0.0
        self._ended: float = 0.0
        self._running: float = 0.0

    def used(self) -> float:
        """The CPU seconds since the last call.

        Running processes are looked at only if this process waits: a look takes milliseconds, and memory that a test
        may be counting. A process that has ended moves from the running ones to the ended ones.
        """
        ends = getrusage(RUSAGE_CHILDREN)
        own, ended, running = time.process_time() - time.thread_time(), ends.ru_utime + ends.ru_stime, self._running
        if own - self._own < SHARE or ended != self._ended:
            running = _cpu_of_running()
        used = own + ended + running - self._own - self._ended - self._running
        self._own, self._ended, self._running = own, ended, running
        return max(0.0, used)  # of an orphan, nothing is known any longer


def _cpu_of_running() -> float:
    seconds = 0.0
    for process in _children():
        with suppress(psutil.Error, OSError):
            if process.name() != TEMPORAL:
                seconds += sum(process.cpu_times()[:4])  # also of the processes that it has started and that have ended
    return seconds


def _children() -> list[Any]:
    with suppress(psutil.Error, OSError):  # a test may have opened all files that it may
        return psutil.Process().children(recursive=True)
    return []


def _processes() -> Iterator[str]:
    """The processes that this one has started."""
    for process in _children():
        with suppress(psutil.Error, OSError):
            yield f'Process {process.pid} ({process.status()}): {" ".join(process.cmdline())[:200]}'


def _awaits() -> Iterator[str]:
    """What each task of asyncio awaits, and what that awaits. No thread's stack has them."""
    tasks = [value for value in gc.get_objects() if issubclass(type(value), asyncio.Task)]
    for task in (task for task in tasks if not task.done()):
        yield f'Task {task.get_name()}:'
        awaited: Any = task.get_coro()
        while frame := getattr(awaited, 'cr_frame', None):
            yield f'  {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}'
            awaited = awaited.cr_await


WATCHDOG = Watchdog()
"""Watches the tests of this process."""
