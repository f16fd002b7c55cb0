"""What a transaction is, for every SQL backend. Pure: it executes nothing and knows no driver.

A transaction is a generator: it yields a statement with its values, is sent the rows, and returns its result. A list of
values executes the statement for each of them, and gives no rows. A driver runs it between BEGIN and COMMIT, in
whatever way it executes statements. Values are `?`; but for column types, the statements keep to what SQLite and
PostgreSQL share.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

__all__ = ('Rows', 'Statement', 'Transaction')

T = TypeVar('T')
Rows: TypeAlias = list[Any]
Statement: TypeAlias = tuple[str, tuple[Any, ...] | list[tuple[Any, ...]]]
Transaction: TypeAlias = Generator[Statement, Rows, T]
