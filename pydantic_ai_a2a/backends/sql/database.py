"""The interface between the ports of a SQL backend and its driver: read, write, publish in order.

A driver gets a function that makes a transaction, not the transaction: a transaction is a generator, which runs once,
and a driver may have to try again.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar

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


class BoundWrite(Generic[T]):
    """A write with its arguments."""

    __slots__ = ('args', 'kind', 'kwargs', 'make')

    def __init__(self, kind: WriteKind[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.kind = kind
        self.args = args
        self.kwargs = kwargs
        self.make: Callable[[], Transaction[T]] = partial(kind.make, *args, **kwargs)
        """Makes the transaction."""

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
        """The event bus to which this process publishes stored events."""
        ...

    @property
    def ready_listeners(self) -> Sequence[Callable[[str], object]]:
        """Callbacks for tasks that may have become claimable."""
        ...

    @property
    def cancel_listeners(self) -> Sequence[Callable[[str], object]]:
        """Callbacks for tasks to cancel."""
        ...

    def forget(self, owner: str, context_id: str | None = None) -> None:
        """Drop the cached messages of an erased context, or of all contexts of the owner if `context_id` is None."""
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


def reading(make: Callable[Concatenate[str, P], Transaction[T]]) -> Any:
    """Make a method of a `Port` that runs one transaction, which only reads. The port declares its signature."""

    def read(port: Port, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return port.database.read(make, port.agent, *args, **kwargs)

    return read


def writing(make: Callable[Concatenate[str, P], Transaction[T]], *, ready: bool = False) -> Any:
    """Make a method of a `Port` that runs one transaction, which publishes no events; `ready` as in `WriteKind`."""
    kind = WriteKind(make, ready=ready)

    def write(port: Port, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return port.database.write(kind, port.agent, *args, **kwargs)

    return write
