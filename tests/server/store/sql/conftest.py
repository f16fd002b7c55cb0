"""Databases in memory, and what a transaction costs there."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from pydantic_ai_a2a.clock import SYSTEM
from pydantic_ai_a2a.server.store.sql.migrations import MIGRATIONS, missing
from pydantic_ai_a2a.server.store.sql.transaction import Transaction
from pydantic_ai_a2a.server.store.sqlite.execution import perform, tell_time


@contextmanager
def empty_database() -> Generator[sqlite3.Connection]:
    """A database without tasks."""
    with closing(sqlite3.connect(':memory:', isolation_level=None)) as connection:
        tell_time(connection, SYSTEM)
        perform(connection, missing(MIGRATIONS))
        yield connection


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with empty_database() as connection:
        yield connection


def count_steps(connection: sqlite3.Connection, transaction: Transaction[Any], without: str | None = None) -> int:
    """Count the steps of a transaction, except those of statements that begin with some text."""
    taken = 0

    def count() -> None:
        nonlocal taken
        taken += counts

    counts = True

    def watched() -> Transaction[Any]:
        nonlocal counts
        rows: Any = None
        try:
            while True:
                step = transaction.send(rows)
                counts = without is None or not str(step[0]).startswith(without)
                rows = yield step
        except StopIteration as stop:
            return stop.value

    connection.set_progress_handler(count, 1)
    perform(connection, watched())
    connection.set_progress_handler(None, 1)
    return taken
