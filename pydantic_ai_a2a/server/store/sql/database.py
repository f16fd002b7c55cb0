"""The interface between the ports of a SQL backend and its driver: read, write, publish in order.

A driver gets a function that makes a transaction: a transaction is a generator, which runs once, and a driver may
repeat a transaction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from ..event_bus import EventBus
from ..ports import Claim, Swept
from .transaction import ContextKey, Done, Transaction

P = ParamSpec('P')
T = TypeVar('T')


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
    async def write(self, make: Callable[P, Transaction[Done[T] | T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a transaction whole or not at all, publish its events in the order of commits, and return the value."""

    async def write_in(
        self, context: ContextKey | None, make: Callable[P, Transaction[Done[T] | T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a transaction like `write`. It has the lock of a context from the start, without a round trip."""
        return await self.write(make, *args, **kwargs)

    async def write_first(self, make: Callable[P, Transaction[Done[T] | T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a transaction like `write`, before all other waiting writes."""
        return await self.write(make, *args, **kwargs)

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


def writing(make: Callable[Concatenate[str, P], Transaction[Done[T] | T]]) -> Any:
    """Make a method of a `Port` that runs one transaction. The port class declares the signature."""

    def write(port: Port, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return port.database.write(make, port.agent, *args, **kwargs)

    return write
