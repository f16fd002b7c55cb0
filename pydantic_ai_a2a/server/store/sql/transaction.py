"""Transactions of all SQL backends, as generators of statements that a driver executes.

A transaction is a generator: the driver runs the yielded steps between BEGIN and COMMIT, sends the rows of each step,
and gets the result of the generator. A step is a statement with values; a list of writes without rows, each a statement
with all values; or a lock, which a driver with one writer skips. Placeholders are `?`. Statements use the common SQL of
SQLite and PostgreSQL, except for column types; text in `/* */` is for PostgreSQL only.

A transaction locks a context before the tasks of the context. Statements after a lock see the writes of earlier lock
holders.

A write returns its value, or `Done` with what is left to do after the commit. A driver may run a transaction again, so
a transaction itself does nothing but its steps.

| `Done` | after the commit |
|---|---|
| `events` | published to the readers of this process, in the order of commits; other processes get a hint (`peers`) |
| `begins` | `Peers` notes that the tasks run here, and who reads them elsewhere: without such a reader, no hint |
| `ready` | hint to idle workers of other processes; `SqlQueue` wakes those of this process |
| `cancels`, `erases` | hint to all processes: one of them runs the task, or its readers wait for its end |
| `undo` | a transaction that runs if the caller has gone, or if the answer to COMMIT was lost: it releases the claim |

Hints are notifications of PostgreSQL. Processes on a SQLite file see each commit by `data_version`, and need none. In
memory, there are no other processes, and a caller cannot leave during a write.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from ....types.stored_events import TaskEvent
from ..ports import Claim

T = TypeVar('T')

Rows: TypeAlias = list[Any]
Statement: TypeAlias = tuple[str, tuple[Any, ...]]
Write: TypeAlias = tuple[str, list[tuple[Any, ...]]]

ContextKey: TypeAlias = tuple[str, str, str]
"""Agent, owner and id of a context: the name of its lock."""


class LockName(NamedTuple):
    """A lock of a name, such as (agent, owner, context), until the end of the transaction."""

    name: tuple[str, ...]


class TryNames(NamedTuple):
    """Locks of names like `LockName`, without waiting: the step returns a row with each name that another holds."""

    names: Sequence[tuple[str, ...]]


class LockTasks(NamedTuple):
    """A lock of tasks against other writers until the end of the transaction; unknown tasks are skipped."""

    agent: str
    task_ids: Sequence[str]
    """Ids in any order: the driver locks in code point order, against deadlocks."""
    wait: bool = True
    """False: skip tasks with a lock of another transaction; the step returns a row with the id of each locked task."""


@dataclass(slots=True)  # not frozen: that would take a call for each field of each write
class Done(Generic[T]):
    """What a transaction has done: the value for its caller, and what its driver does after the commit."""

    value: T
    """What `Database.write` returns."""
    events: Sequence[tuple[str, Sequence[TaskEvent]]] = ()
    """The new events of each task. An empty sequence names a task for `cancels`."""
    ready: bool = False
    """True if tasks may be claimable now."""
    begins: Sequence[Claim] = ()
    """The claims of tasks that run in this process from the commit on."""
    cancels: bool = False
    """True if the process that runs a task of the events must cancel the task."""
    erases: bool = False
    """True if the tasks of the events are erased."""
    undo: Callable[[], Transaction[Done[None]]] | None = None
    """Makes the transaction that releases the tasks which the value gives to the caller."""


def done_of(result: T | Done[T]) -> Done[T]:
    """Return the result of a transaction as `Done`."""
    match result:
        case Done():
            return result  # pyright: ignore[reportUnknownVariableType]
        case _:
            return Done(result)


Step: TypeAlias = Statement | list[Write] | LockName | TryNames | LockTasks


Transaction: TypeAlias = Generator[Step, Rows, T]


def sql(text: str) -> str:
    """Return a statement, or a part of one, on one line: without its `--` comments and the space of its lines."""
    line = ' '.join(chain.from_iterable(line.partition('--')[0].split() for line in text.splitlines()))
    return line.replace('( ', '(').replace(' )', ')')
