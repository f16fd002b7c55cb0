"""A thread with an event loop of its own, in which the connections of one process to PostgreSQL live.

Whatever blocks the event loops of the process does not hold up a transaction, and what it has locked. They may end when
they like, and none of them has to close a connection.
"""

from __future__ import annotations

import asyncio
import random
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
from .connect import CONFLICTS, Connection, Pool, is_away, migrate, open_pool, perform, roll_back, told
from .settings import Postgres
from .statements import READ, begin

__all__ = ('PoolThread', 'Session', 'Work')

T = TypeVar('T')
_CONFLICTS = 10
"""Times that a transaction is run again for others that were in the way."""
_PAUSE = 0.02
"""Seconds before the second attempt; it doubles with each."""
_LONGEST = 1.0


class Session:
    """The connections, from the start of the thread to its end.

    Args:
        settings: Which database.
        clock: Asked for the database's time over each of them first.
    """

    def __init__(self, settings: Postgres, clock: DatabaseClock) -> None:
        self.settings = settings
        self.clock = clock
        self._pools: dict[bool, Pool] = {}
        self._migrating = asyncio.Lock()
        self._migrated = False

    @asynccontextmanager
    async def connection(self, *, first: bool = False) -> AsyncGenerator[Connection]:
        """A connection to oneself; `first` for what must not wait for others, and is not done twice at once."""
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
                return  # by who came at the same time
            await migrate(self.settings, connection)
            self._migrated = True

    async def read(self, make: Callable[[], Transaction[T]]) -> T:
        """Run a transaction that only reads."""

        async def attempt() -> T:
            async with self.connection() as connection:
                try:
                    await connection.execute(begin(self.settings, READ))
                    return await perform(connection, make())
                finally:
                    await roll_back(connection)

        return await self.patiently(attempt)

    async def patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try again what others were in the way of, and for a while what the database was away for."""
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
            # Keeps processes apart, and nothing secret.
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
        self.loop = asyncio.new_event_loop()
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
        except BaseException as error:  # it is the caller's, who waits in another thread
            failed = told(self._settings, error)
        answer(result, failed)

    def stop(self) -> None:
        """End soon, called in the thread."""
        self._stopping.set()


class PoolThread:
    """Does work over connections. Opens nothing and starts no thread before the first.

    Args:
        settings: Which database.
        clock: Is told its time.
        beside: What else the thread does, until it is stopped.
    """

    def __init__(self, settings: Postgres, clock: DatabaseClock, beside: Work) -> None:
        self._settings = settings
        self._clock = clock
        self._beside = beside
        self._lock = Lock()
        self._life: _Life | None = None

    def put(self, work: Work, answer: Callable[[Any, BaseException | None], object]) -> None:
        """Begin some work, and answer in the thread with its result, or with why there is none."""
        self.call(partial(_Life.begin, work=work, answer=answer))

    def wake(self, callback: Callable[[], object]) -> None:
        """Call back in the thread."""
        self.call(lambda life: callback())

    def call(self, callback: Callable[[_Life], object]) -> None:
        """Start the thread, if there is none, and call back in it."""
        with self._lock:
            if self._life is None:
                self._life = _Life(self._settings, self._clock, self._beside)
            # Connections outlive what they are used for, and must not keep what a request carries.
            self._life.loop.call_soon_threadsafe(callback, self._life, context=Context())

    def stop(self) -> None:
        """Finish what has begun, and close the connections."""
        with self._lock:
            life, self._life = self._life, None
            if life is not None:
                life.loop.call_soon_threadsafe(life.stop)
        if life is not None and life.thread is not current_thread():  # which a garbage collection may have chosen
            life.thread.join(3 * STOP_TIME)
