"""Transactions of a SQLite connection in one commit, so that many writes wait for the disk once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..sql.transaction import Transaction
from .driver_errors import translated_error
from .execution import perform


@dataclass(frozen=True, slots=True)
class QueuedTransaction:
    """One transaction."""

    make: Callable[[], Transaction[Any]]
    answer: Callable[[Any, BaseException | None], object]
    """Called in the thread with the result, or with why there is none."""
    publish: Callable[[Any], object] | None = None
    """Called in the thread with the result, after the commit and in the order of commits."""

    def done(self, result: Any, error: BaseException | None) -> None:
        """Publish the result, and answer."""
        if error is None and self.publish is not None:
            self.publish(result)
        self.answer(result, None if error is None else translated_error(error))


def read(connection: sqlite3.Connection, jobs: list[QueuedTransaction]) -> None:
    """Perform each job in a separate read transaction."""
    while jobs:
        job, result, failed = jobs[0], None, None
        try:
            connection.execute('BEGIN')
            result = perform(connection, job.make())
        except BaseException as error:  # raised to the caller, who waits in another thread
            failed = error
        _roll_back(connection)
        jobs.pop(0)  # before done(): the next job may look for an idle thread at once
        job.done(result, failed)


def commit(connection: sqlite3.Connection, jobs: Sequence[QueuedTransaction]) -> None:
    """Perform all jobs in one commit. If it has to be rolled back, perform each job alone: a job fails for no other."""
    try:
        connection.execute('BEGIN IMMEDIATE')
    except sqlite3.Error as error:  # the file was locked for too long: jobs alone would fail too
        for job in jobs:
            job.done(None, error)
        return
    try:
        outcomes = [_outcome(connection, job) for job in jobs]
        connection.execute('COMMIT')
    except BaseException as error:
        _roll_back(connection)
        if len(jobs) == 1:
            jobs[0].done(None, error)
            return
        for job in jobs:
            commit(connection, [job])
        return
    for job, outcome in zip(jobs, outcomes, strict=True):
        job.done(*outcome)


def _outcome(connection: sqlite3.Connection, job: QueuedTransaction) -> tuple[Any, BaseException | None]:
    """Perform a job within the commit of a group. If a failed job has written, raise: the group is rolled back."""
    written = connection.total_changes
    try:
        return perform(connection, job.make()), None
    except BaseException as error:  # raised to the caller, who waits in another thread
        # SQLite may have rolled back the whole transaction, as for a full disk.
        if connection.total_changes != written or not connection.in_transaction:
            raise
        return None, error


def _roll_back(connection: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):  # report the earlier error, not the error of the rollback
        connection.rollback()
