"""A database that undoes each write: the caller gets the result or the error, and nothing is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from ..event_bus import EventBus
from .database import BoundWrite, Database, WriteKind
from .transaction import Transaction

P = ParamSpec('P')
T = TypeVar('T')


class _Undone(Exception):
    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


class Rehearsal(Database):
    """A database that undoes each write: the caller gets the result or the error, and nobody else notices."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.namespace = database.namespace

    @property
    def event_bus(self) -> EventBus:
        return self._database.event_bus

    def take_room(self, size: int) -> None:
        self._database.take_room(size)

    async def read(self, make: Callable[P, Transaction[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.read(make, *args, **kwargs)

    async def write(self, kind: WriteKind[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        def make() -> Transaction[T]:
            raise _Undone((yield from kind.make(*args, **kwargs)))

        locks = BoundWrite(kind, args, kwargs).locks()
        try:
            return await self._database.write(WriteKind(make, locks=lambda: locks))
        except _Undone as undone:
            return undone.result
