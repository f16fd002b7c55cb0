"""All ports over one PostgreSQL database, which several machines may share. Nothing is opened before the first use."""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import Context
from functools import partial
from os import getpid
from threading import Event, Lock, RLock, Thread, current_thread
from typing import Any, TypeAlias, TypeVar
from urllib.parse import unquote
from weakref import WeakValueDictionary

import asyncpg

from ...clock import STOP_TIME
from ...errors import BackendUnusable, StoreUnavailable
from ...types import STOPPED
from ..event_bus import EventBus
from ..shared_database import Process, SharedBackend
from ..sql import peers
from ..sql.database import BoundWrite, Published
from ..sql.peers import Peers
from ..sql.transaction import Transaction
from ..thread_future import ThreadFuture
from .calls import FunctionCall, call_of
from .connect import (
    CONFLICTS,
    Connection,
    DatabaseClock,
    Pool,
    connection_error,
    give_up,
    in_transaction,
    is_away,
    migrate,
    open_connection,
    open_pool,
    perform,
    roll_back,
)
from .settings import Postgres
from .statements import READ, about, begin, channel, notify


class PostgresProcess(Process):
    """A process's part in a namespace of a database."""

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

    def write(self, write: BoundWrite[Any]) -> Coroutine[Any, Any, Any]:
        answer = ThreadFuture(write.kind.undo and partial(self._take_back, write))
        self._begin(partial(self._write, write), answer)
        return answer.wait()

    def _take_back(self, write: BoundWrite[Any], result: Any) -> None:
        """Undo a write whose caller has gone. The attempts go on until the database is available."""
        undo = write.undo(result)
        self.peers.leave(task_id for task_id, _ in write.published(result))

        async def take_back(session: Session) -> None:
            while True:
                try:
                    return await self._write(undo, session)
                except Exception as error:
                    if not isinstance(connection_error(self._settings, error), StoreUnavailable):
                        raise

        self._begin(take_back, _log_failure)

    async def _write(self, write: BoundWrite[Any], session: Session) -> Any:
        call = call_of(self._settings, write)
        results = () if call is None else await self._call_function(call, write, session)
        return results[0] if results else await session.patiently(partial(self._attempt, write, session))

    async def _call_function(self, call: FunctionCall, write: BoundWrite[Any], session: Session) -> Sequence[Any]:
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
                await self._tell_others(session, connection, write, result)
                return (result,)

        self.peers.own(call.begins)
        try:
            results = await session.patiently(attempt)
        except BaseException as error:
            self.peers.leave(call.begins)
            if sent and call.begins and is_away(error):  # else no other process could claim the task
                self._take_back(write, call.possible)
            raise
        if not results:
            self.peers.leave(call.begins)
        for result in results:
            for task_id, events in write.published(result):
                if call.begins and not events:  # the task waits in the queue
                    self.peers.leave(call.begins)
                self.event_bus.publish(task_id, events)
        return results

    async def _attempt(self, write: BoundWrite[Any], session: Session) -> Any:
        async with session.connection(first=write.kind.first) as connection:
            try:
                await connection.execute(begin(self._settings, locks=write.locks()))
                result = await perform(connection, write.make())
                published = list(write.published(result))
                begun = [task_id for task_id, _ in published] if write.private(result) else []
                self.peers.own(begun)
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
                if write.kind.undo is not None:  # else no other process could claim the tasks
                    self._take_back(write, result)
                raise StoreUnavailable from error  # whether the transaction was committed is unknown
            await self._tell_others(session, connection, write, result)
        for task_id, events in published:
            self.event_bus.publish(task_id, events)
        return result

    async def _tell_others(self, session: Session, connection: Connection, write: BoundWrite[Any], result: Any) -> None:
        """Notify other processes of a committed write.

        A process that begins to read or to idle during the commit is seen after it. Notifications are hints: without
        one, others see the write at their next look.
        """
        notices = self._notices(write, list(write.published(result)))
        if write.ready(result) and not self._ready_due:
            if time.monotonic() >= self._ready_from:
                notices.append(self._ready_notice())
            else:
                self._ready_due = True
                session.begin(self._tell_of_ready, _log_untold)
        if notices:
            try:
                await connection.execute('; '.join(notices))
            except Exception as error:
                _log_untold(None, error)
                give_up(connection)

    async def _tell_of_ready(self, session: Session) -> None:
        """Notify idle workers once of the tasks that were queued since the last notification."""
        await asyncio.sleep(self._ready_from - time.monotonic())
        self._ready_due = False
        async with session.connection() as connection:
            await connection.execute(self._ready_notice())

    def _ready_notice(self) -> str:
        self._ready_from = time.monotonic() + _TOGETHER
        return self._notify('r', hears=3)

    def _notices(self, write: BoundWrite[Any], published: Published) -> list[str]:
        """Return the statements that notify other processes of events; none if they concern this process alone.

        A cancel, and the erasure of a task, also concern the process that runs the task.
        """
        kind, notices = write.kind, list[str]()
        flag = 'c' * kind.cancels + 'g' * kind.erases
        for task_id, events in published:
            payload = about(task_id, events[-1].n if events else 0)
            if flag:
                notices.append(self._notify(f'{flag} {payload}', hears=1))
            elif events and not self.peers.private(task_id):
                wants = int(events[-1].state not in STOPPED)
                notices.append(self._notify(f'- {payload}', hears=1, task_id=task_id, wants=wants))
        return notices


class PostgresBackend(SharedBackend[PostgresProcess]):
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


# --- one process's part of a PostgreSQL database ----------------------------------------------------------------------
# Connections, readers, and notifications of other processes.
#
# A forked child process makes a separate instance.

logger = logging.getLogger('pydantic_ai_a2a')


_TOGETHER = 0.05
"""The least seconds between two notifications of queued tasks."""


def _log_untold(result: Any, error: BaseException | None) -> None:
    if error is not None:
        logger.warning('Other processes were not notified of a write; they see it in a moment.', exc_info=error)


def _log_failure(result: Any, error: BaseException | None) -> None:
    if error is not None:
        logger.error(
            'Tasks whose claim was abandoned could not be released; they run again once their leases expire.',
            exc_info=error,
        )


# --- a thread with a separate event loop for the PostgreSQL connections of one process --------------------------------
# A blocked event loop of the process does not delay a transaction and the transaction's locks. An event loop of the
# process may end without closing connections.
#
# All namespaces with equal settings share the thread and its connections. The first one starts the thread, and the last
# one ends it.

T = TypeVar('T')
MOST_CONFLICTS = 10
"""The most repetitions of a transaction after conflicts."""
_PAUSE = 0.02
"""Seconds before the second attempt, doubled for each later attempt."""
_LONGEST = 1.0
_OTHERS = 2
"""Connections that a namespace leaves to the other namespaces of the pool."""


class Connections:
    """The connections of all namespaces with equal settings, in a thread with an event loop.

    Args:
        settings: The database.
        clock: Reads the database's time over each new connection.
    """

    def __init__(self, settings: Postgres, clock: DatabaseClock) -> None:
        self.settings = settings
        self.clock = clock
        self.loop = _new_event_loop()
        self.sessions: set[asyncio.Task[None]] = set()
        """The running namespaces."""
        self.listening = asyncio.Lock()
        """Held while the listening connection is opened or used."""
        self._listener: asyncpg.Connection[asyncpg.Record] | None = None
        self._pools: dict[bool, Pool] = {}
        self._migrating = asyncio.Lock()
        self.migrated = False
        self.ending = asyncio.Event()
        """Set in the thread to close the connections after the end of all namespaces."""
        self.thread = Thread(target=self._run, name='pydantic_ai_a2a PostgreSQL', daemon=True)
        self.thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        await self.ending.wait()
        await asyncio.gather(*self.sessions)
        if self._listener is not None:
            self._listener.terminate()
        for pool in self._pools.values():
            try:
                async with asyncio.timeout(STOP_TIME):
                    await pool.close()
            except TimeoutError:
                pool.terminate()

    async def pool(self, *, first: bool) -> Pool:
        """Return a pool; see `Session.connection`."""
        if first not in self._pools:
            size = 1 if first else self.settings.pool_size
            self._pools[first] = await open_pool(self.settings, size, self.clock)
        return self._pools[first]

    async def migrate(self, connection: Connection) -> None:
        """Migrate the schema once; concurrent callers wait."""
        async with self._migrating:
            if not self.migrated:
                await migrate(self.settings, connection)
            self.migrated = True

    async def listener(self) -> asyncpg.Connection[asyncpg.Record]:
        """Return the connection that listens for all namespaces. The caller holds `listening`."""
        if self._listener is None or self._listener.is_closed():
            self._listener = await open_connection(self.settings, self.settings.listen_dsn or self.settings.url)
        return self._listener


def _new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop of uvloop if this process has imported uvloop, as Uvicorn does: a tenth less CPU time."""
    uvloop = sys.modules.get('uvloop')
    return asyncio.new_event_loop() if uvloop is None else uvloop.new_event_loop()


class Session:
    """A namespace with its use of the connections, from its first transaction to its stop.

    Args:
        connections: The connections.
        beside: More work in the thread, until the stop.
    """

    def __init__(self, connections: Connections, beside: Work) -> None:
        self.connections = connections
        self.settings = connections.settings
        self.clock = connections.clock
        self.over = Event()
        """Set after the end."""
        self._beside = beside
        self._share = asyncio.Semaphore(max(1, self.settings.pool_size - _OTHERS))
        self.stopping = asyncio.Event()
        """Set in the thread to end soon."""
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def connection(self, *, first: bool = False) -> AsyncGenerator[Connection]:
        """Acquire a connection; `first` for urgent work, one at a time, on a reserved connection."""
        pool = await self.connections.pool(first=first)
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(self.settings.acquire_timeout):
                if not first and len(self.connections.sessions) > 1:
                    await stack.enter_async_context(self._share)
                connection = await stack.enter_async_context(pool.acquire())
            if not self.connections.migrated:
                await self.connections.migrate(connection)
            yield connection

    async def read(self, make: Callable[[], Transaction[T]]) -> T:
        """Run a read-only transaction."""

        async def attempt() -> T:
            async with self.connection() as connection:
                return await in_transaction(connection, begin(self.settings, READ), lambda: perform(connection, make()))

        return await self.patiently(attempt)

    async def patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat a transaction after conflicts, and for a while if the database is unreachable."""
        until = time.monotonic() + self.settings.acquire_timeout
        conflicts, pause = 0, _PAUSE
        while True:
            try:
                return await attempt()
            except CONFLICTS:
                conflicts += 1
                if conflicts > MOST_CONFLICTS:
                    raise
            except Exception as error:
                if not is_away(error) or time.monotonic() > until:
                    raise
            # The random pause spreads the retries of processes. It needs no secure random numbers.
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # nosec B311
            pause = min(2 * pause, _LONGEST)

    def start(self) -> None:
        """Begin, in the thread."""
        self.connections.sessions.add(self.connections.loop.create_task(self._live()))

    async def _live(self) -> None:
        beside = asyncio.create_task(self._beside(self))
        await self.stopping.wait()
        beside.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_TIME)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(beside, *self._tasks, return_exceptions=True)
        self.connections.sessions -= {asyncio.current_task()}
        self.over.set()

    def begin(self, work: Work, answer: Callable[[Any, BaseException | None], object]) -> None:
        """Begin some work, in the thread."""
        task = self.connections.loop.create_task(self._do(work, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _do(self, work: Work, answer: Callable[[Any, BaseException | None], object]) -> None:
        result, failed = None, None
        try:
            result = await work(self)
        except BaseException as error:  # raised to the caller, who waits in another thread
            failed = connection_error(self.settings, error)
        answer(result, failed)


Work: TypeAlias = Callable[[Session], Coroutine[Any, Any, Any]]


class SharedPool:
    """The connections of all namespaces with equal settings, while one of them runs.

    Args:
        settings: The database.
    """

    def __init__(self, settings: Postgres) -> None:
        self.clock = DatabaseClock()
        self.lock = RLock()
        """Reentrant: the garbage collector may stop another namespace while this thread holds the lock."""
        self.settings = settings
        self.users = 0
        self._connections: Connections | None = None

    def enter(self) -> Connections:
        """Return the connections for one more namespace; called with the lock."""
        self.users += 1  # first: from now on, no other namespace closes them
        if self._connections is None:
            for (pid, other), pool in [*_pools.items()]:
                if pid == getpid() and other.url == self.settings.url and pool.users and pool is not self:
                    logger.warning(
                        'The apps of this process have different settings for %s, so they share no connections.',
                        self.settings.place,
                    )
            self._connections = Connections(self.settings, self.clock)
        return self._connections

    def leave(self) -> bool:
        """Close the connections after the last namespace. Return True if this was the last one."""
        self.users -= 1
        if self.users or self._connections is None:
            return False
        self._connections.loop.call_soon_threadsafe(self._connections.ending.set)
        self._connections = None
        return True


_pools: WeakValueDictionary[tuple[int, Postgres], SharedPool] = WeakValueDictionary()
"""The pools by process id: a forked child must not touch the connections of its parent."""
_making = Lock()


def shared_pool(settings: Postgres) -> SharedPool:
    """Return the pool of this process for a database."""
    with _making:
        return _pools.setdefault((getpid(), settings), SharedPool(settings))


# --- notifications between the processes of a PostgreSQL database -----------------------------------------------------
# Writes of the others, and marks of watched tasks.
#
# Notifications are hints: a poll after each gap, and every few seconds, finds lost notifications.

POLL = 5.0
"""Seconds between two polls with notifications."""
_POLL_DEAF = 0.25
"""Seconds between two polls without notifications."""
_SOON = 0.025
"""Seconds for which a queued task is left to the process of the request."""
_FAILS = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""Errors of a lost connection."""


class Listener:
    """Listens for notifications in the thread of the connections, from the first reader or worker on.

    Args:
        settings: Which database.
        namespace: Namespace of the agent.
        event_bus: The readers of this process.
        peers: State about other processes, and the local callbacks.
    """

    def __init__(self, settings: Postgres, namespace: str, *, event_bus: EventBus, peers: Peers) -> None:
        self.begun = False
        """True from the first reader or worker on."""
        self._settings = settings
        self._namespace = namespace
        self._event_bus = event_bus
        self._peers = peers
        self._wanted = asyncio.Event()
        """Set when the listener has work to do at once. Belongs to the event loop of one run of the thread."""
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._deaf = False
        """True once the lost connection is logged."""
        self._ready = False
        """True after a notification of claimable tasks."""
        self._soon = False
        """True after others were told more: what they have written shortly before sent no notification."""

    def wake(self) -> None:
        """Poll for a new local reader or worker; called in the thread."""
        self._wanted.set()

    async def run(self, session: Session) -> None:
        """Listen until cancelled."""
        self._wanted, self._connection, self._deaf = asyncio.Event(), None, False
        loop = asyncio.get_running_loop()
        try:
            if not self._peers.interested():
                await self._wanted.wait()
            self.begun, look_at = True, loop.time()
            while True:
                self._wanted.clear()
                self._soon = False
                if self._settings.listen and self._connection is None and await self._connect(session):
                    look_at = loop.time()  # read all tasks: writes before LISTEN sent no notification here
                again = await self._do(session, full=loop.time() >= look_at)
                if self._soon or loop.time() >= look_at:
                    pause = _POLL_DEAF if self._connection is None else POLL
                    look_at = loop.time() + (_SOON if self._soon else pause)
                await self._wait(_SOON if again else look_at - loop.time())
                if again:
                    self._ready = True
        finally:
            if self._connection is not None:
                self._connection.terminate()  # the other namespaces open another one

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, seconds)):  # in Python 3.11, wait_for may swallow a cancellation
                await self._wanted.wait()
        except TimeoutError:
            pass  # the pause is over: poll the tables

    async def _connect(self, session: Session) -> bool:
        try:
            async with session.connections.listening:
                self._connection = await self._listening(session)
        except _FAILS as error:
            if not self._deaf:
                logger.warning('PostgreSQL sends no notifications, so the process polls: %s', error)
            self._deaf = True
            return False
        self._deaf = False
        return True

    async def _listening(self, session: Session) -> asyncpg.Connection[asyncpg.Record]:
        connection = await session.connections.listener()
        try:
            connection.add_termination_listener(self._lost)
            await connection.add_listener(channel(self._peers.id), self._hear)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _lost(self, connection: object) -> None:
        self._connection = None
        self._wanted.set()

    async def _do(self, session: Session, *, full: bool) -> bool:
        """Look for new writes, and keep the rows of this process. Return True to poll again soon."""
        again = False
        try:
            if full and self._connection is not None:
                await self._ping(self._connection, session)
            if self._peers.interested():
                again = await self._exchange(session, full=full)
        except Exception as error:
            if not isinstance(connection_error(self._settings, error), StoreUnavailable | BackendUnusable):
                logger.exception('Changes of other processes could not be read; the next try follows in a moment.')
        return again

    async def _ping(self, connection: asyncpg.Connection[asyncpg.Record], session: Session) -> None:
        """Check the listening connection, and read the database's clock."""
        try:
            async with asyncio.timeout(POLL), session.connections.listening:
                await session.clock.ask(connection)
        except _FAILS:
            connection.terminate()
            self._lost(connection)

    async def _exchange(self, session: Session, *, full: bool) -> bool:
        kept = self._peers.to_keep(listens=self._connection is not None)
        if kept is None and not (full or self._ready):
            return False
        self._ready = False

        async def attempt() -> peers.Noticed:
            async with session.connection() as connection:
                return await in_transaction(connection, begin(self._settings), partial(self._work, connection, kept))

        noticed = await session.patiently(attempt)
        self._soon = kept is not None and self._peers.kept(kept)
        return self._peers.tell(noticed)

    async def _work(self, connection: Connection, kept: peers.Kept | None) -> peers.Noticed:
        """Keep the rows, notify the processes that may run the tasks with new readers, and look."""
        agent, process = self._namespace, self._peers.id
        if kept is not None:
            added = await perform(connection, peers.keep(agent, process, kept))
            for task in added.items():
                await connection.execute(notify(self._settings, agent, process, f'w {about(*task)}', hears=2))
        return await perform(connection, peers.look(agent, process))

    def _hear(self, connection: object, pid: int, channel: str, payload: object) -> None:
        flags, *tasks = str(payload).split(' ')
        for task in tasks:
            task_id, _, number = unquote(task).rpartition(':')
            self._tell(flags, task_id, int(number))
        if 'r' in flags and self._peers.listeners:
            self._ready = True
            self._wanted.set()

    def _tell(self, flags: str, task_id: str, number: int) -> None:
        if 'w' in flags:
            self._peers.is_read(task_id, number)
            return
        if 'c' in flags:
            self._peers.cancel(task_id)
        if number:
            self._event_bus.hint(task_id, None if 'g' in flags else number)
