"""A database that undoes each write: the caller gets the result or the error, and nothing is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from ..event_bus import EventBus
from .database import Database
from .transaction import ContextKey, Done, Transaction, done_of

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

    async def write(self, make: Callable[P, Transaction[Done[T] | T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.write_in(None, make, *args, **kwargs)

    async def write_in(
        self, context: ContextKey | None, make: Callable[P, Transaction[Done[T] | T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        def rehearse() -> Transaction[T]:
            raise _Undone(done_of((yield from make(*args, **kwargs))).value)

        try:
            return await self._database.write_in(context, rehearse)
        except _Undone as undone:
            return undone.result
