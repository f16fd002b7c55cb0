"""The interface between the ports of a SQL backend and its driver: read, write, publish in order.

A driver gets a function that makes a transaction: a transaction is a generator, which runs once, and a driver may
repeat a transaction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeAlias, TypeVar

from ...types import TaskEvent
from ..event_bus import EventBus
from ..ports import Claim, Swept
from .transaction import LockName, Transaction

P = ParamSpec('P')
T = TypeVar('T')

Published: TypeAlias = Iterable[tuple[str, Sequence[TaskEvent]]]
"""Events of each task to publish after the commit."""


@dataclass(frozen=True, slots=True)
class WriteKind(Generic[P, T]):
    """One kind of write."""

    make: Callable[P, Transaction[T]]
    """Makes the transaction."""
    published: Callable[..., Published] | None = None
    """Returns the events to publish; called with the result and the arguments of the transaction."""
    first: bool = False
    """True if the write goes before all other waiting writes."""
    undo: Callable[..., Transaction[None]] | None = None
    """Makes the write that undoes a result for an absent caller; called like `published`."""
    locks: Callable[..., Sequence[LockName]] | None = None
    """Returns the first locks of the transaction; called with the same arguments. The SQLite driver has one writer, and
    does not call the function."""
    ready: Callable[..., bool] | None = None
    """Returns true if tasks may be claimable after the write; called like `published`."""
    private: Callable[..., bool] | None = None
    """Returns true if the published events concern this process alone; called like `published`."""
    cancels: bool = False
    """True if the process that runs a published task must cancel the task."""
    erases: bool = False
    """True if the published tasks are erased."""


def always(*_: object, **__: object) -> bool:
    """Return true: every write of the kind may make tasks claimable."""
    return True


class BoundWrite(Generic[T]):
    """A write with its arguments."""

    __slots__ = ('args', 'kind', 'kwargs', 'make')

    def __init__(self, kind: WriteKind[..., T], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.kind = kind
        self.args = args
        self.kwargs = kwargs
        self.make: Callable[[], Transaction[T]] = partial(kind.make, *args, **kwargs)
        """Makes the transaction."""

    def locks(self) -> Sequence[LockName]:
        """Return the first locks of the transaction."""
        return () if self.kind.locks is None else self.kind.locks(*self.args, **self.kwargs)

    def published(self, result: T) -> Published:
        """Return the events to publish for a result."""
        return () if self.kind.published is None else self.kind.published(result, *self.args, **self.kwargs)

    def ready(self, result: T) -> bool:
        """Return true if tasks may be claimable after the write."""
        return self.kind.ready is not None and self.kind.ready(result, *self.args, **self.kwargs)

    def private(self, result: T) -> bool:
        """Return true if the published events concern this process alone."""
        return self.kind.private is not None and self.kind.private(result, *self.args, **self.kwargs)

    def undo(self, result: T) -> BoundWrite[None]:
        """Return the write that undoes a result for an absent caller, if the kind has an `undo`."""
        assert self.kind.undo is not None
        return BoundWrite(WriteKind(self.kind.undo, ready=always), (result, *self.args), self.kwargs)


class WorkerCallbacks(NamedTuple):
    """A worker of this process."""

    loop: AbstractEventLoop
    on_ready: Callable[[Any], object]
    """Called with a task that may have become claimable; None: tasks of other processes."""
    on_cancel: Callable[[str], object]
    """Called with a task to cancel."""


class Database(ABC):
    """One database, for one agent namespace, from any event loop of this process."""

    namespace: str
    """The agent's."""
    most_kept = 10_000
    """Number of finished tasks, and of conversations, that `Retention` keeps by default."""

    @property
    @abstractmethod
    def event_bus(self) -> EventBus:
        """The event bus for stored events of this process."""

    @property
    def workers(self) -> Sequence[WorkerCallbacks]:
        """The listening workers of this process."""
        return ()

    def watched(self, task_id: str, *, live: bool) -> bool:
        """Return true if a task has a reader in this process or another process; with `live`, one of live text."""
        return self.event_bus.watched(task_id, live=live)

    @abstractmethod
    def take_room(self, size: int) -> None:
        """Refuse a message of so many bytes if the database has no room for the message. See `Backend.take_room`."""

    @abstractmethod
    async def read(self, make: Callable[P, Transaction[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a read-only transaction, after all answered writes (read-your-writes)."""

    @abstractmethod
    async def write(self, kind: WriteKind[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a transaction whole or not at all, and publish the events in the order of commits."""

    async def after_sweep(self, swept: Swept) -> None:  # noqa: B027 - see `SqliteFileBackend` and `MemoryBackend`
        """Give back what a sweep has freed."""

    def forget(self, owner: str, context_id: str | None = None) -> None:  # noqa: B027 - only backends have a cache
        """Drop the cached messages of an erased context, or of all contexts of the owner if `context_id` is None."""

    # Only databases that processes share do more than nothing.

    def begin(self, claims: Iterable[Claim]) -> None:  # noqa: B027 - see above
        """Note tasks that run in this process from now on."""

    def leave(self, *task_ids: str, over: bool = False) -> None:  # noqa: B027 - see above
        """Note tasks that other processes may run from now on; `over`: the tasks have ended."""

    def wake(self) -> None:  # noqa: B027 - see above
        """Tell other processes of the tasks with new readers or waiting callers in this process."""


class Port:
    """The base of the ports of a database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.agent = database.namespace


def reading(make: Callable[Concatenate[str, P], Transaction[T]]) -> Any:
    """Make a method of a `Port` that runs one read-only transaction. The port class declares the signature."""

    def read(port: Port, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return port.database.read(make, port.agent, *args, **kwargs)

    return read


def writing(make: Callable[Concatenate[str, P], Transaction[T]], *, ready: Callable[..., bool] | None = None) -> Any:
    """Make a method of a `Port` that runs one transaction without events; `ready` as in `WriteKind`."""
    kind = WriteKind(make, ready=ready)

    def write(port: Port, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return port.database.write(kind, port.agent, *args, **kwargs)

    return write
