"""A thread with a separate event loop for the PostgreSQL connections of one process.

A blocked event loop of the process does not delay a transaction and the transaction's locks. An event loop of the
process may end without closing connections.

All namespaces with equal settings share the thread and its connections. The first one starts the thread, and the last
one ends it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from os import getpid
from threading import Event, Lock, RLock, Thread
from typing import Any, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import asyncpg

from ....backoff import backoff_after, spread
from ....clock import STOP_TIME
from ..sql.transaction import Transaction
from .connect import Pool, open_connection, open_pool
from .database_clock import DatabaseClock
from .driver_errors import CONFLICTS, connection_error, is_away
from .execution import Connection, in_transaction, perform
from .migration import migrate
from .settings import Postgres
from .sql_translation import READ, begin

logger = logging.getLogger('pydantic_ai_a2a')

T = TypeVar('T')

MOST_CONFLICTS = 10
"""The most repetitions of a transaction after conflicts."""
_FIRST_WAIT, _LONGEST_WAIT = 0.02, 1.0
"""The first and the longest pause between attempts, in seconds."""
_LEFT_TO_OTHERS = 2
"""Connections that a namespace leaves to the other namespaces of the pool."""
_pools: WeakValueDictionary[tuple[int, Postgres], SharedPool] = WeakValueDictionary()
"""The pools by process id: a forked child must not touch the connections of its parent."""
_making = Lock()


class PostgresConnections:
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

    def __init__(self, connections: PostgresConnections, beside: Work) -> None:
        self.connections = connections
        self.settings = connections.settings
        self.clock = connections.clock
        self.over = Event()
        """Set after the end."""
        self._beside = beside
        self._share = asyncio.Semaphore(max(1, self.settings.pool_size - _LEFT_TO_OTHERS))
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
        failures = conflicts = 0
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
            failures += 1
            await asyncio.sleep(spread(backoff_after(failures, _FIRST_WAIT, _LONGEST_WAIT)))

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
        self._connections: PostgresConnections | None = None

    def enter(self) -> PostgresConnections:
        """Return the connections for one more namespace; called with the lock."""
        self.users += 1  # first: from now on, no other namespace closes them
        if self._connections is None:
            for (pid, other), pool in [*_pools.items()]:
                if pid == getpid() and other.url == self.settings.url and pool.users and pool is not self:
                    logger.warning(
                        'The apps of this process have different settings for %s, so they share no connections.',
                        self.settings.place,
                    )
            self._connections = PostgresConnections(self.settings, self.clock)
        return self._connections

    def leave(self) -> bool:
        """Close the connections after the last namespace. Return True if this was the last one."""
        self.users -= 1
        if self.users or self._connections is None:
            return False
        self._connections.loop.call_soon_threadsafe(self._connections.ending.set)
        self._connections = None
        return True


def shared_pool(settings: Postgres) -> SharedPool:
    """Return the pool of this process for a database."""
    with _making:
        return _pools.setdefault((getpid(), settings), SharedPool(settings))
