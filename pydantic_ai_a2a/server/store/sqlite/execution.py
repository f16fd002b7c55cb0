"""The execution of a transaction's steps on a SQLite connection, between the caller's BEGIN and COMMIT."""

from __future__ import annotations

import sqlite3
from typing import TypeVar

from ....clock import Clock
from ..sql.transaction import LockName, LockTasks, Rows, Transaction, TryNames

T = TypeVar('T')


def tell_time(connection: sqlite3.Connection, clock: Clock) -> None:
    """Define the SQL function `a2a_clock`, by which the statements measure leases."""
    connection.create_function('a2a_clock', 0, clock.steady)


def perform(connection: sqlite3.Connection, transaction: Transaction[T]) -> T:
    """Execute the steps of a transaction in order, and return the result."""
    try:
        step = next(transaction)
        while True:
            rows: Rows = []
            match step:
                case list():
                    for statement, rows_of in step:
                        if rows_of:  # a statement without rows would be prepared
                            connection.executemany(statement, rows_of)
                case LockName() | TryNames() | LockTasks():
                    pass  # SQLite has one writer: row locks are not needed
                case _:
                    rows += connection.execute(*step)
            step = transaction.send(rows)
    except StopIteration as stop:
        return stop.value
