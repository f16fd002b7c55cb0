"""What the ports of a SQL backend ask of its driver: read, write, publish in order. Knows no driver and no connection.

A driver is handed what makes a transaction, not the transaction: a generator runs once, and a driver may have to try
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, ParamSpec, Protocol, TypeAlias, TypeVar

from ...types import TaskEvent
from ..event_bus import EventBus
from .transaction import Lock, Transaction

__all__ = ('Database', 'Published', 'WriteKind')

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
    """What to publish: called with the result and what the transaction was made with."""
    first: bool = False
    """Whether it goes before all others that wait."""
    undo: Callable[..., Transaction[None]] | None = None
    """Takes back what was done for a caller who has gone meanwhile; called like `published`."""
    locks: Callable[..., Sequence[Lock]] | None = None
    """What it locks from its beginning; called with what the transaction was made with. Not where one writes at a time:
    so they cost nothing there, which matters for what every task does."""
    ready: bool = False
    """Whether tasks may have become claimable."""
    cancels: bool = False
    """Whether the tasks that it publishes are to be canceled by whoever runs them."""
    erases: bool = False
    """Whether the tasks that it publishes are gone."""


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

    async def write(self, operation: WriteKind[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a transaction whole or not at all, publish its events in the order of commits, and then return."""
        ...
