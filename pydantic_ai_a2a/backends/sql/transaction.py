"""Transactions of all SQL backends, as generators of statements that a driver executes.

A transaction is a generator: the driver runs the yielded steps between BEGIN and COMMIT, sends the rows of each step,
and gets the result of the generator. A step is a statement with values; a list of writes without rows, each a statement
with all values; or a lock, which a driver with one writer skips. Placeholders are `?`. Statements use the common SQL of
SQLite and PostgreSQL, except for column types; text in `/* */` is for PostgreSQL only.

A transaction locks a context before the tasks of the context. Statements after a lock see the writes of earlier lock
holders.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias, TypeVar

__all__ = ('LockName', 'LockTasks', 'Rows', 'Statement', 'Step', 'Transaction', 'Write', 'where')


class LockName(NamedTuple):
    """A lock of a name, such as (agent, owner, context), until the end of the transaction."""

    name: tuple[str, ...]
    wait: bool = True
    """True to wait for the lock's holder. False: if the lock is taken, the step returns a row and takes no lock."""


class LockTasks(NamedTuple):
    """A lock of tasks against other writers until the end of the transaction; unknown tasks are skipped."""

    agent: str
    task_ids: Sequence[str]
    """Ids in any order: the driver locks in code point order, against deadlocks."""
    wait: bool = True
    """False: skip tasks with a lock of another transaction; the step returns a row with the id of each locked task."""


T = TypeVar('T')
Rows: TypeAlias = list[Any]
Statement: TypeAlias = tuple[str, tuple[Any, ...]]
Write: TypeAlias = tuple[str, list[tuple[Any, ...]]]
Step: TypeAlias = Statement | list[Write] | LockName | LockTasks
Transaction: TypeAlias = Generator[Step, Rows, T]


def where(conditions: Mapping[str, str | int | tuple[Any, ...] | None]) -> Statement:
    """Join conditions of a query, each with its value; a tuple has the values of several placeholders.

    A condition with None as its value is left out.
    """
    present = {condition: value for condition, value in conditions.items() if value is not None}
    values = (value if isinstance(value, tuple) else (value,) for value in present.values())
    return ' AND '.join(present), tuple(chain.from_iterable(values))
