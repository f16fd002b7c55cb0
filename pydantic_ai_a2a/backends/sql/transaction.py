"""Transactions of all SQL backends, as generators of statements that a driver executes.

A transaction is a generator: it yields steps, is sent the rows of each, and returns its result. A step is a statement
with its values; or a list of writes, each a statement and all the values to execute it with, which gives no rows; or a
lock, which is nothing to a driver that has one writer at a time. A driver runs it between BEGIN and COMMIT, in whatever
way it executes statements. Values are `?`; but for column types, the statements keep to what SQLite and PostgreSQL
share, and what one of them has in `/* */` is there for PostgreSQL.

Who locks a context and one of its tasks locks the context first. A statement after a lock sees what those wrote who had
it before.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

__all__ = ('Lock', 'LockTasks', 'Rows', 'Statement', 'Step', 'Transaction', 'Write')


class Lock(NamedTuple):
    """Keeps out whoever locks the same name, such as (agent, owner, context), until the transaction ends."""

    name: tuple[str, ...]
    wait: bool = True
    """True to wait for the lock's holder. False: if the lock is taken, the step returns a row and takes no lock."""


class LockTasks(NamedTuple):
    """Keep other transactions from writing to tasks until this one ends. Tasks that do not exist are left out."""

    agent: str
    task_ids: Sequence[str]
    """In any order: they are locked in that of their code points, so that nobody waits in a circle."""
    wait: bool = True
    """False: leave out tasks that another transaction has locked. The step gives a row with the id of each of them."""


T = TypeVar('T')
Rows: TypeAlias = list[Any]
Statement: TypeAlias = tuple[str, tuple[Any, ...]]
Write: TypeAlias = tuple[str, list[tuple[Any, ...]]]
Step: TypeAlias = Statement | list[Write] | Lock | LockTasks
Transaction: TypeAlias = Generator[Step, Rows, T]
