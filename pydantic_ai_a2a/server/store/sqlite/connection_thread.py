"""A thread that owns one SQLite connection and runs the transactions of its queue.

Writers commit in groups: all waiting jobs run in one transaction, and return after the COMMIT. The jobs have no
savepoints, which would cost each job two statements and copies of pages: most jobs that fail have written nothing.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable
from threading import Condition, Thread, current_thread

from ....clock import STOP_TIME
from .group_commit import QueuedTransaction

_GROUP = 100
"""The most jobs in one commit: an urgent job waits for one group at most, whose jobs may commit one by one."""

Work = Callable[[sqlite3.Connection, list[QueuedTransaction]], None]
"""Performs jobs, and may remove finished jobs from the list."""


class ConnectionThread:
    """Runs jobs in order. The first job starts the thread and opens the connection.

    Args:
        name: Name of the thread.
        connect: Opens the connection, in the thread. All waiting jobs get an error; the next job tries again.
        work: Performs the waiting jobs.
    """

    def __init__(self, name: str, connect: Callable[[], sqlite3.Connection], work: Work) -> None:
        self._name = name
        self._connect = connect
        self._work = work
        self._condition = Condition()
        self._jobs: deque[QueuedTransaction] = deque()
        self._thread: Thread | None = None
        self._doing: list[QueuedTransaction] = []
        self._stopping = False

    def __len__(self) -> int:
        """The number of running and waiting jobs."""
        return len(self._doing) + len(self._jobs)

    @property
    def running(self) -> bool:
        """True from the first job to the stop."""
        return self._thread is not None

    def put(self, job: QueuedTransaction, *, first: bool = False) -> None:
        """Queue a job; with `first`, before all waiting jobs."""
        with self._condition:
            if first:
                self._jobs.appendleft(job)
            else:
                self._jobs.append(job)
            self._start()

    def wake(self) -> None:
        """Read the time of the next `poll` again."""
        with self._condition:
            self._start()

    def _start(self) -> None:
        if self._thread is None:
            self._stopping = False
            self._thread = Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._condition.notify()

    def stop(self) -> None:
        """Run the waiting jobs, and close the connection."""
        with self._condition:
            thread, self._stopping = self._thread, True
            self._condition.notify()
        if thread is not None and thread is not current_thread():  # the garbage collector may call stop() in any thread
            thread.join(STOP_TIME)

    def _run(self) -> None:
        try:
            connection = self._connect()
        except Exception as error:  # raised to the callers of all waiting jobs
            with self._condition:
                jobs = list(self._jobs)
                self._jobs.clear()
                self._thread = None
            for job in jobs:
                job.done(None, error)
            return
        try:
            while self._step(connection):
                pass
        finally:
            connection.close()

    def _step(self, connection: sqlite3.Connection) -> bool:
        """Run the jobs of the queue, or wait for one; return false once the thread has to end."""
        with self._condition:
            if not self._jobs and not self._stopping:
                self._condition.wait(self.due())
            if not self._jobs and self._stopping:
                self._thread = None
                return False
            jobs = [self._jobs.popleft() for _ in range(min(len(self._jobs), _GROUP))]
            self._doing = jobs
        if jobs:
            self._work(connection, jobs)
            self._doing = []
        self.poll(connection)
        return True

    def due(self) -> float | None:
        """Return the seconds until the next `poll` without a job; None for no call."""
        return None

    def poll(self, connection: sqlite3.Connection) -> None:
        """Do periodic work, between jobs."""
