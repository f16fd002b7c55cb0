"""One process's part of a PostgreSQL database: connections, readers, and notifications of other processes.

A forked child process makes a separate instance.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from os import getpid, urandom
from typing import Any

from ...errors import StoreUnavailable
from ...types import TaskEvent
from ..event_bus import EventBus
from ..futures import ThreadFuture
from ..peers import Peers
from ..sql import reads
from ..sql.database import BoundWrite, Published
from ..sql.transaction import Transaction
from .calls import Call, call_of
from .clock import DatabaseClock
from .connect import connection_error, give_up, is_away, perform, roll_back
from .listener import Listener
from .settings import Postgres
from .statements import begin, channel, notify
from .thread import PoolThread, Session

__all__ = ('PostgresProcess',)

logger = logging.getLogger('pydantic_ai_a2a')


class PostgresProcess:
    """A process's part in a namespace of a database."""

    def __init__(self, settings: Postgres, namespace: str, reader_lag: int) -> None:
        self.pid = getpid()
        self.event_bus = EventBus(self._read_events, reader_lag, self._begin_use)
        self.clock = DatabaseClock()
        self.peers = Peers(self.event_bus, self.clock.now)
        self._settings = settings
        self._namespace = namespace
        self._channel = channel(settings, namespace)
        self._sender = urandom(6).hex()
        self._listener = Listener(
            settings, self._channel, self._sender, namespace=namespace, event_bus=self.event_bus, peers=self.peers
        )
        self._thread = PoolThread(settings, self.clock, self._listener.run)

    def stop(self) -> None:
        """Close the connections. Does nothing in a forked child, which must not touch them."""
        if self.pid == getpid():
            self._thread.stop()

    def wake(self) -> None:
        """Look for writes of other processes, and mark the tasks with new readers."""
        self._thread.wake(self._listener.wake)

    def _begin_use(self) -> None:
        """Look for writes of other processes for a reader or a waiting caller. With a worker, the listener looks."""
        if not (self.peers.listeners and self._thread.running):
            self.wake()

    def read(self, make: Callable[[], Transaction[Any]]) -> Coroutine[Any, Any, Any]:
        """Run a read-only transaction."""
        answer = ThreadFuture()
        self._thread.put(partial(Session.read, make=make), answer)
        return answer.wait()

    def write(self, write: BoundWrite[Any]) -> Coroutine[Any, Any, Any]:
        """Run a transaction, publish the events in the order of commits, and return the result."""
        answer = ThreadFuture(write.kind.undo and partial(self._take_back, write))
        self._thread.put(partial(self._write, write), answer)
        return answer.wait()

    def _take_back(self, write: BoundWrite[Any], result: Any) -> None:
        """Undo a write whose caller has gone. The attempts go on until the database is available."""
        undo = write.undo(result)
        self.peers.share(task_id for task_id, _ in write.published(result))

        async def take_back(session: Session) -> None:
            while True:
                try:
                    return await self._write(undo, session)
                except Exception as error:
                    if not isinstance(connection_error(self._settings, error), StoreUnavailable):
                        raise

        self._thread.put(take_back, _log_failure)

    async def _read_events(self, task_id: str, after: int, limit: int) -> list[TaskEvent]:
        return await self.read(partial(reads.events_after, self._namespace, task_id, after, limit))

    async def _write(self, write: BoundWrite[Any], session: Session) -> Any:
        call = call_of(self._settings, write)
        results = () if call is None else await self._call(call, write, session)
        return results[0] if results else await session.patiently(partial(self._attempt, write, session))

    async def _call(self, call: Call, write: BoundWrite[Any], session: Session) -> Sequence[Any]:
        """Do a write by a call, which may be repeated. Return the result, or nothing for a write of the generator."""
        sent = False

        async def attempt() -> Sequence[Any]:
            nonlocal sent
            async with session.connection() as connection:
                records = [] if call.record is None else await connection.fetch(call.record[0], *call.record[1])
                values = call.values(tuple(records[0]) if records else (None, None))
                sent = True
                [row] = await connection.fetch(call.statement, *values)
                if not row[0]:
                    return ()
                result = call.result(tuple(row))
                # Notifications are hints, and may follow the commit.
                if notices := self._notices(write, result, list(write.published(result))):
                    await connection.execute(notices)
                return (result,)

        self.peers.keep_private(call.begins)  # before the commit: another process may ask directly after it
        try:
            results = await session.patiently(attempt)
        except BaseException as error:
            self.peers.share(call.begins)
            if sent and call.begins and is_away(error):  # else no other process could claim the task
                self._take_back(write, call.possible)
            raise
        if not results:
            self.peers.share(call.begins)
        for result in results:
            for task_id, events in write.published(result):
                self.event_bus.publish(task_id, events)
        return results

    async def _attempt(self, write: BoundWrite[Any], session: Session) -> Any:
        async with session.connection(first=write.kind.first) as connection:
            try:
                await connection.execute(begin(self._settings, locks=write.locks()))
                result = await perform(connection, write.make())
                published = list(write.published(result))
                begun = [task_id for task_id, _ in published] if write.private(result) else []
                self.peers.keep_private(begun)  # before the commit: another process may ask directly after it
                notices = self._notices(write, result, published)
            except BaseException:
                await roll_back(connection)
                raise
            try:
                await connection.execute(f'{notices}; COMMIT' if notices else 'COMMIT')
            except Exception as error:
                self.peers.share(begun)
                if not is_away(error):
                    await roll_back(connection)
                    raise
                give_up(connection)
                if write.kind.undo is not None:  # else no other process could claim the tasks
                    self._take_back(write, result)
                raise StoreUnavailable from error  # whether the transaction was committed is unknown
        for task_id, events in published:
            self.event_bus.publish(task_id, events)
        return result

    def _notices(self, write: BoundWrite[Any], result: Any, published: Published) -> str:
        """Return the statement for the notifications of a write; empty if the write concerns this process alone."""
        kind = write.kind
        if (joined := write.joins(result)) is not None:
            return '' if self.peers.private(joined) else notify(self._channel, self._sender, 'j', [(joined, 0)])
        flags = 'r' * write.ready(result) + 'c' * kind.cancels + 'g' * kind.erases
        newest = [(task_id, events[-1].n if events else 0) for task_id, events in published]
        tasks = [task for task in newest if kind.cancels or (task[1] and not self.peers.private(task[0]))]
        return notify(self._channel, self._sender, flags or '-', tasks) if flags or tasks else ''


def _log_failure(result: Any, error: BaseException | None) -> None:
    if error is not None:
        logger.error(
            'Tasks whose claim was abandoned could not be released; they run again once their leases expire.',
            exc_info=error,
        )
