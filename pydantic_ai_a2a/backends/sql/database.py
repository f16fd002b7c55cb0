"""The interface between the ports of a SQL backend and its driver: read, write, publish in order.

A driver gets a function that makes a transaction, not the transaction: a transaction is a generator, which runs once,
and a driver may have to try again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, Protocol, TypeAlias, TypeVar

from ...types import TaskEvent
from ..event_bus import EventBus
from .transaction import Lock, Transaction

__all__ = ('BoundWrite', 'Database', 'Port', 'Published', 'WriteKind', 'reading', 'writing')

P = ParamSpec('P')
T = TypeVar('T')

Published: TypeAlias = Iterable[tuple[str, Sequence[TaskEvent]]]
"""Events to publish once they are stored, per task."""


@dataclass(frozen=True, slots=True)
class WriteKind(Generic[P, T]):
    """One kind of write."""

    make: Callable[P, Transaction[T]]
    """Makes the transaction."""
    published: Callable[..., Published] | None = None
    """Returns the events to publish; called with the result and the arguments of the transaction."""
    first: bool = False
    """True if the write goes before all other writes that wait."""
    undo: Callable[..., Transaction[None]] | None = None
    """Takes back what was done for a caller who has gone meanwhile; called like `published`."""
    locks: Callable[..., Sequence[Lock]] | None = None
    """Returns the locks that the transaction takes first; called with its arguments. SQLite has one writer and asks for
    no locks, so that they cost nothing there."""
    ready: bool = False
    """True if tasks may be claimable after the write."""
    cancels: bool = False
    """True if the process that runs a published task must cancel the task."""
    erases: bool = False
    """True if the published tasks are erased."""


@dataclass(slots=True)  # not frozen, because that would cost a call for each field of each write
class BoundWrite(Generic[T]):
    """A write with its arguments."""

    kind: WriteKind[..., T]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def make(self) -> Transaction[T]:
        """Make the transaction."""
        return self.kind.make(*self.args, **self.kwargs)

    def locks(self) -> Sequence[Lock]:
        """Return the locks that the transaction takes at its beginning."""
        return () if self.kind.locks is None else self.kind.locks(*self.args, **self.kwargs)

    def published(self, result: T) -> Published:
        """Return the events to publish for a result."""
        return () if self.kind.published is None else self.kind.published(result, *self.args, **self.kwargs)

    def undo(self, result: T) -> BoundWrite[None]:
        """Return the write that takes back a result for a caller who has gone, if the kind has an `undo`."""
        assert self.kind.undo is not None
        return BoundWrite(WriteKind(self.kind.undo, ready=True), (result, *self.args), self.kwargs)


class Database(Protocol):
    """One database, for one agent namespace, from any event loop of this process."""

    @property
    def namespace(self) -> str:
        """The agent's."""
        ...

    @property
    def durable(self) -> bool:
        """True if the database outlives the process, so that its file may be damaged."""
        ...

    @property
    def event_bus(self) -> EventBus:
        """Where the events that this process stores are published."""
        ...

    @property
    def ready_listeners(self) -> Sequence[Callable[[str], object]]:
        """Who is told of tasks that may have become claimable."""
        ...

    @property
    def cancel_listeners(self) -> Sequence[Callable[[str], object]]:
        """Who is told of tasks that are to be canceled."""
        ...

    def forget(self, owner: str, context_id: str | None = None) -> None:
        """Keep nothing in memory of a context that was erased; of None, of any of the owner's."""
        ...

    async def read(self, make: Callable[P, Transaction[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a transaction that only reads, on what all writes that were answered before have left."""
        ...

    async def write(self, kind: WriteKind[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a transaction whole or not at all, publish its events in the order of commits, and then return."""
        ...


class Port:
    """The base of the ports of a database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.agent = database.namespace


def reading(make: Callable[..., Transaction[Any]]) -> Any:
    """Make a method of a `Port` that runs one transaction, which only reads. The port declares its arguments."""

    async def read(port: Port, *args: Any, **kwargs: Any) -> Any:
        return await port.database.read(make, port.agent, *args, **kwargs)

    return read


def writing(make: Callable[..., Transaction[Any]], *, ready: bool = False) -> Any:
    """Make a method of a `Port` that runs one transaction, which publishes no events; `ready` as in `WriteKind`."""
    kind = WriteKind(make, ready=ready)

    async def write(port: Port, *args: Any, **kwargs: Any) -> Any:
        return await port.database.write(kind, port.agent, *args, **kwargs)

    return write
