"""What a transaction is, for every SQL backend. Pure: it executes nothing and knows no driver.

A transaction is a generator: it yields steps, is sent the rows of each, and returns its result. A step is a statement
with its values; or a list of writes, each a statement and all the values to execute it with, which gives no rows. A
driver runs it between BEGIN and COMMIT, in whatever way it executes statements. Values are `?`; but for column types,
the statements keep to what SQLite and PostgreSQL share.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

__all__ = ('Rows', 'Statement', 'Step', 'Transaction', 'Write')

T = TypeVar('T')
Rows: TypeAlias = list[Any]
Statement: TypeAlias = tuple[str, tuple[Any, ...]]
Write: TypeAlias = tuple[str, list[tuple[Any, ...]]]
Step: TypeAlias = Statement | list[Write]
Transaction: TypeAlias = Generator[Step, Rows, T]
