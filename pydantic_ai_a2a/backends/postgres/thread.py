"""A thread with a separate event loop for the PostgreSQL connections of one process.

A blocked event loop of the process does not delay a transaction and the transaction's locks. An event loop of the
process may end without closing connections.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import Context
from functools import partial
from threading import Lock, Thread, current_thread
from typing import Any, TypeAlias, TypeVar

from ...clock import STOP_TIME
from ..sql.transaction import Transaction
from .clock import DatabaseClock
from .connect import CONFLICTS, Connection, Pool, connection_error, is_away, migrate, open_pool, perform, roll_back
from .settings import Postgres
from .statements import READ, begin

__all__ = ('PoolThread', 'Session', 'Work')

T = TypeVar('T')
_CONFLICTS = 10
"""The most repetitions of a transaction after conflicts."""
_PAUSE = 0.02
"""Seconds before the second attempt, doubled for each later attempt."""
_LONGEST = 1.0


class Session:
    """The connections, from the start of the thread to its end.

    Args:
        settings: The database.
        clock: Reads the database's time over each new connection.
    """

    def __init__(self, settings: Postgres, clock: DatabaseClock) -> None:
        self.settings = settings
        self.clock = clock
        self._pools: dict[bool, Pool] = {}
        self._migrating = asyncio.Lock()
        self._migrated = False

    @asynccontextmanager
    async def connection(self, *, first: bool = False) -> AsyncGenerator[Connection]:
        """Acquire a connection; `first` for urgent work, one at a time, on a reserved connection."""
        pool = self._pools.get(first)
        if pool is None:
            pool = self._pools[first] = await open_pool(
                self.settings, 1 if first else self.settings.pool_size, self.clock
            )
        async with pool.acquire(timeout=self.settings.acquire_timeout) as connection:
            if not self._migrated:
                await self._migrate(connection)
            yield connection

    async def _migrate(self, connection: Connection) -> None:
        async with self._migrating:
            if self._migrated:
                return  # a concurrent caller has migrated the schema
            await migrate(self.settings, connection)
            self._migrated = True

    async def read(self, make: Callable[[], Transaction[T]]) -> T:
        """Run a read-only transaction."""

        async def attempt() -> T:
            async with self.connection() as connection:
                try:
                    await connection.execute(begin(self.settings, READ))
                    return await perform(connection, make())
                finally:
                    await roll_back(connection)

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
                if conflicts > _CONFLICTS:
                    raise
            except Exception as error:
                if not is_away(error) or time.monotonic() > until:
                    raise
            # The random pause spreads the retries of processes. It needs no secure random numbers.
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # nosec B311
            pause = min(2 * pause, _LONGEST)

    async def close(self) -> None:
        """Close all connections."""
        for pool in self._pools.values():
            try:
                async with asyncio.timeout(STOP_TIME):
                    await pool.close()
            except TimeoutError:
                pool.terminate()


Work: TypeAlias = Callable[[Session], Coroutine[Any, Any, Any]]


class _Life:
    """One run of the thread."""

    def __init__(self, settings: Postgres, clock: DatabaseClock, beside: Work) -> None:
        self.loop = _new_event_loop()
        self._settings = settings
        self._clock = clock
        self._beside = beside
        self._stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: Session | None = None
        self.thread = Thread(target=self._run, name='pydantic_ai_a2a PostgreSQL', daemon=True)
        self.thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        session = self._session = Session(self._settings, self._clock)
        beside = asyncio.create_task(self._beside(session))
        await self._stopping.wait()
        beside.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_TIME)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(beside, *self._tasks, return_exceptions=True)
        await session.close()

    def begin(self, work: Work, answer: Callable[[Any, BaseException | None], object]) -> None:
        """Begin some work, in the thread."""
        task = self.loop.create_task(self._do(work, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _do(self, work: Work, answer: Callable[[Any, BaseException | None], object]) -> None:
        assert self._session is not None
        result, failed = None, None
        try:
            result = await work(self._session)
        except BaseException as error:  # raised to the caller, who waits in another thread
            failed = connection_error(self._settings, error)
        answer(result, failed)

    def stop(self) -> None:
        """End soon, called in the thread."""
        self._stopping.set()


def _new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop of uvloop if this process has imported uvloop, as Uvicorn does: a tenth less CPU time."""
    uvloop = sys.modules.get('uvloop')
    return asyncio.new_event_loop() if uvloop is None else uvloop.new_event_loop()


class PoolThread:
    """Runs transactions over connections. The first transaction starts the thread.

    Args:
        settings: The database.
        clock: Gets the database's time.
        beside: More work in the thread, until the stop.
    """

    def __init__(self, settings: Postgres, clock: DatabaseClock, beside: Work) -> None:
        self._settings = settings
        self._clock = clock
        self._beside = beside
        self._lock = Lock()
        self._life: _Life | None = None

    @property
    def running(self) -> bool:
        """True from the first transaction to the stop."""
        return self._life is not None

    def put(self, work: Work, answer: Callable[[Any, BaseException | None], object]) -> None:
        """Begin some work, and answer in the thread with its result, or with why there is none."""
        self.call(partial(_Life.begin, work=work, answer=answer))

    def wake(self, callback: Callable[[], object]) -> None:
        """Call back in the thread."""
        self.call(lambda life: callback())

    def call(self, callback: Callable[[_Life], object]) -> None:
        """Call a function in the thread, and start the thread if needed."""
        with self._lock:
            if self._life is None:
                self._life = _Life(self._settings, self._clock, self._beside)
            # An empty context: connections outlive requests, and must not keep context variables of a request.
            self._life.loop.call_soon_threadsafe(callback, self._life, context=Context())

    def stop(self) -> None:
        """Finish running transactions, and close the connections."""
        with self._lock:
            life, self._life = self._life, None
            if life is not None:
                life.loop.call_soon_threadsafe(life.stop)
        # The garbage collector may call stop() in any thread.
        if life is not None and life.thread is not current_thread():
            life.thread.join(3 * STOP_TIME)
