"""All ports over one PostgreSQL database, which several machines may share. Nothing is opened before the first use.

`PostgresProcess` has the connections and readers of one process, and notifications of other processes. A forked child
process makes a separate instance.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from threading import current_thread
from typing import Any

from ....clock import STOP_TIME
from ....errors import StoreUnavailable
from ....task_states import STOPPED
from ..database_backend import DatabaseBackend, Process
from ..sql.transaction import ContextKey, Done, Transaction, done_of
from ..thread_future import ThreadFuture
from .driver_errors import connection_error, is_away
from .execution import Connection, give_up, perform, roll_back
from .function_calls import FunctionCall, call_of
from .listener import Listener
from .notify_statements import about, notify
from .pool import Session, Work, shared_pool
from .settings import Postgres
from .sql_translation import begin

logger = logging.getLogger('pydantic_ai_a2a')

_TOGETHER = 0.05
"""The least seconds between two notifications of queued tasks."""
_UNHEARD = 0.25
"""The same after a notification that no worker has heard: all know of queued tasks already, or have no free slot."""


class PostgresProcess(Process):
    """The connections and readers of one process, for one namespace of a database."""

    def __init__(self, settings: Postgres, namespace: str, reader_lag: int) -> None:
        self._pool = shared_pool(settings)
        self.clock = self._pool.clock
        super().__init__(namespace, reader_lag, self.clock)
        self._settings = settings
        self._notify = partial(notify, settings, namespace, self.peers.id)
        self._listener = Listener(settings, namespace, event_bus=self.event_bus, peers=self.peers)
        self._session: Session | None = None
        """The use of the connections, from the first transaction to `close`."""
        self._ready_from = 0.0
        """From when on idle workers may be notified of queued tasks again (`time.monotonic`)."""
        self._ready_due = False
        """True if they will be, without another write."""

    def close(self) -> None:
        """Finish running transactions. The last namespace closes the connections."""
        with self._pool.lock:
            session, self._session = self._session, None
            if session is None:
                return
            session.connections.loop.call_soon_threadsafe(session.stopping.set)
            last = self._pool.leave()
        # The garbage collector may call this in any thread.
        thread = session.connections.thread
        if thread is not current_thread():
            (thread.join if last else session.over.wait)(3 * STOP_TIME)

    def _call(self, callback: Callable[[Session], object]) -> None:
        """Call a function in the thread of the pool, and start the thread if needed."""
        with self._pool.lock:
            session = self._session
            if session is None:
                session = self._session = Session(self._pool.enter(), self._listener.run)
                session.connections.loop.call_soon_threadsafe(session.start, context=Context())
            # An empty context: connections outlive requests, and must not keep context variables of a request.
            session.connections.loop.call_soon_threadsafe(callback, session, context=Context())

    def _begin(self, work: Work, answer: Callable[[Any, BaseException | None], object]) -> None:
        """Begin some work, and answer in the thread with its result, or with why there is none."""
        self._call(partial(Session.begin, work=work, answer=answer))

    def wake(self) -> None:
        self._call(lambda _: self._listener.wake())

    @property
    def looks(self) -> bool:
        return self._listener.begun and self._session is not None

    def read(self, make: Callable[[], Transaction[Any]]) -> Coroutine[Any, Any, Any]:
        answer = ThreadFuture()
        self._begin(partial(Session.read, make=make), answer)
        return answer.wait()

    def write(
        self, make: partial[Transaction[Any]], context: ContextKey | None, *, first: bool
    ) -> Coroutine[Any, Any, Any]:
        answer = ThreadFuture(self._take_back)
        self._begin(partial(self._write, make, context, first), answer)
        return answer.wait()

    def _take_back(self, done: Done[Any]) -> None:
        """Undo a write whose caller has gone. The attempts go on until the database is available."""
        if done.undo is None:
            return
        undo = partial(done.undo)
        self.peers.leave(task_id for task_id, _ in done.events)

        async def take_back(session: Session) -> None:
            while True:
                try:
                    await self._write(undo, None, False, session)
                    return
                except Exception as error:
                    if not isinstance(connection_error(self._settings, error), StoreUnavailable):
                        raise

        self._begin(take_back, _log_failure)

    async def _write(
        self, make: partial[Transaction[Any]], context: ContextKey | None, first: bool, session: Session
    ) -> Done[Any]:
        call = call_of(self._settings, make)
        done = None if call is None else await self._call_function(call, session)
        if done is None:
            done = await session.patiently(partial(self._attempt, make, context, first, session))
        return done

    async def _call_function(self, call: FunctionCall, session: Session) -> Done[Any] | None:
        """Do a write by a call, which may be repeated. Return None if the function leaves it to the generator."""
        sent = False

        async def attempt() -> Done[Any] | None:
            nonlocal sent
            async with session.connection() as connection:
                records = [] if call.record is None else await connection.fetch(call.record[0], *call.record[1])
                values = call.values(tuple(records[0]) if records else (None, None))
                sent = True
                [row] = await connection.fetch(call.statement, *values)
                if not row[0]:
                    return None
                done = call.result(tuple(row))
                self.peers.begin(done.begins)
                await self._tell_others(session, connection, done)
                return done

        self.peers.own(call.begins)
        try:
            done = await session.patiently(attempt)
        except BaseException as error:
            self.peers.leave(call.begins)
            if sent and call.possible is not None and is_away(error):  # else no other process could claim the task
                self._take_back(call.possible)
            raise
        if done is None:
            self.peers.leave(call.begins)
            return None
        for task_id, events in done.events:
            if call.begins and not events:  # the task waits in the queue
                self.peers.leave(call.begins)
            self.event_bus.publish(task_id, events)
        return done

    async def _attempt(
        self, make: partial[Transaction[Any]], context: ContextKey | None, first: bool, session: Session
    ) -> Done[Any]:
        async with session.connection(first=first) as connection:
            try:
                await connection.execute(begin(self._settings, context=context))
                done = done_of(await perform(connection, make()))
                begun = [claim.header.id for claim in done.begins]
                self.peers.own(begun)  # before the commit: the events are published only after it
            except BaseException:
                await roll_back(connection)
                raise
            try:
                await connection.execute('COMMIT')
            except Exception as error:
                self.peers.leave(begun)
                if not is_away(error):
                    await roll_back(connection)
                    raise
                give_up(connection)
                self._take_back(done)  # else no other process could claim the tasks
                raise StoreUnavailable from error  # whether the transaction was committed is unknown
            self.peers.begin(done.begins)
            await self._tell_others(session, connection, done)
        for task_id, events in done.events:
            self.event_bus.publish(task_id, events)
        return done

    async def _tell_others(self, session: Session, connection: Connection, done: Done[Any]) -> None:
        """Notify other processes of a committed write.

        A process that begins to read or to idle during the commit is seen after it. Notifications are hints: without
        one, others see the write at their next look.
        """
        notices = self._notices(done)
        ready = done.ready and not self._ready_due
        if ready and (pause := self._ready_from - time.monotonic()) > 0:
            ready, self._ready_due = False, True
            session.begin(partial(self._tell_of_ready, pause), _log_untold)
        try:
            if notices:
                await connection.execute('; '.join(notices))
            if ready:
                await self._tell_idle(connection)
        except Exception as error:
            _log_untold(None, error)
            give_up(connection)

    async def _tell_of_ready(self, pause: float, session: Session) -> None:
        """Notify idle workers once of the tasks that were queued since the last notification."""
        await asyncio.sleep(pause)
        self._ready_due = False
        async with session.connection() as connection:
            await self._tell_idle(connection)

    async def _tell_idle(self, connection: Connection) -> None:
        """Notify idle workers of queued tasks."""
        self._ready_from = time.monotonic() + _TOGETHER
        if await connection.execute(self._notify('r', hears=3)) == 'SELECT 0':
            self._ready_from = time.monotonic() + _UNHEARD

    def _notices(self, done: Done[Any]) -> list[str]:
        """Return the statements that notify other processes of events; none if they concern this process alone.

        A cancel, and the erasure of a task, also concern the process that runs the task.
        """
        notices: list[str] = []
        flag = 'c' * done.cancels + 'g' * done.erases
        for task_id, events in done.events:
            payload = about(task_id, events[-1].n if events else 0)
            if flag:
                notices.append(self._notify(f'{flag} {payload}', hears=1))
            elif events and not self.peers.private(task_id, wants := int(events[-1].state not in STOPPED)):
                notices.append(self._notify(f'- {payload}', hears=1, task_id=task_id, wants=wants))
        return notices


class PostgresBackend(DatabaseBackend[PostgresProcess]):
    """Tasks and conversations in a PostgreSQL database: they outlive processes and machines.

    Args:
        settings: The database.
        namespace: Stable name under which the tasks are stored.
        reader_lag: Bytes that a reader may be behind.

    Raises:
        BackendUnusable: A running app of this process has this namespace of this database.
    """

    store = 'PostgreSQL database'
    most_kept = 1_000_000

    def __init__(self, settings: Postgres, namespace: str, *, reader_lag: int) -> None:
        make_process = partial(PostgresProcess, settings, namespace, reader_lag)
        super().__init__(settings, settings.place, namespace, make_process)

    def now(self) -> int:
        return self.process.clock.now()


def _log_untold(result: Any, error: BaseException | None) -> None:
    if error is not None:
        logger.warning('Other processes were not notified of a write; they see it in a moment.', exc_info=error)


def _log_failure(result: Any, error: BaseException | None) -> None:
    if error is not None:
        logger.error(
            'Tasks whose claim was abandoned could not be released; they run again once their leases expire.',
            exc_info=error,
        )
