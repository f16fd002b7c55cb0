"""Notifications between the processes of a PostgreSQL database: writes of the others, and marks of watched tasks.

Notifications are hints: a poll after each gap, and every few seconds, finds lost notifications.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from urllib.parse import unquote

import asyncpg

from ...errors import BackendUnusable, StoreUnavailable
from ..event_bus import EventBus
from ..peers import Peers
from ..sql import notice
from .connect import connection_error, open_connection, perform, roll_back
from .settings import Postgres
from .statements import begin, notify
from .thread import Session

__all__ = ('Listener',)

logger = logging.getLogger('pydantic_ai_a2a')

_POLL = 5.0
"""Seconds between two polls with notifications."""
_POLL_DEAF = 0.25
"""Seconds between two polls without notifications."""
_SOON = 0.025
"""Seconds for which a queued task is left to the process of the request."""
_FAILS = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""Errors of a lost connection."""
_NOTHING = notice.Noticed({}, {}, [], ready=False)


class Listener:
    """Listens for notifications in the thread of the connections, from the first reader or worker on.

    Args:
        settings: Which database.
        channel: The notification channel of the namespace.
        sender: Id of this process in the channel.
        namespace: Namespace of the agent.
        tails: The readers of this process.
        others: State about other processes, and the local callbacks.
    """

    def __init__(
        self, settings: Postgres, channel: str, sender: str, *, namespace: str, event_bus: EventBus, peers: Peers
    ) -> None:
        self._settings = settings
        self._channel = channel
        self._sender = sender
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
        self._noticed = _NOTHING

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
            look_at = loop.time()
            while True:
                self._wanted.clear()
                if self._settings.listen and self._connection is None and await self._connect():
                    look_at = loop.time()  # read all tasks: writes before LISTEN sent no notification here
                again = await self._do(session, full=loop.time() >= look_at)
                if loop.time() >= look_at:
                    look_at = loop.time() + (_POLL_DEAF if self._connection is None else _POLL)
                await self._wait(_SOON if again else look_at - loop.time())
                if again:
                    self._ready = True
        finally:
            if self._connection is not None:
                self._connection.terminate()

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, seconds)):  # in Python 3.11, wait_for may swallow a cancellation
                await self._wanted.wait()
        except TimeoutError:
            pass  # the pause is over: poll the tables

    async def _connect(self) -> bool:
        try:
            self._connection = await self._listening()
        except _FAILS as error:
            if not self._deaf:
                logger.warning('PostgreSQL sends no notifications, so the process polls: %s', error)
            self._deaf = True
            return False
        self._deaf = False
        return True

    async def _listening(self) -> asyncpg.Connection[asyncpg.Record]:
        connection = await open_connection(self._settings, self._settings.listen_dsn or self._settings.url)
        try:
            connection.add_termination_listener(self._lost)
            await connection.add_listener(self._channel, self._hear)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _lost(self, connection: object) -> None:
        self._connection = None
        self._wanted.set()

    async def _do(self, session: Session, *, full: bool) -> bool:
        """Poll for new writes, and renew the marks of tasks with local readers. Return True to poll again soon."""
        again = False
        try:
            if full and self._connection is not None:
                await self._ping(self._connection, session)
            if self._peers.interested() and (full or self._ready):
                again = await self._look(session, full=full)
            await self._mark(session)
        except Exception as error:
            if not isinstance(connection_error(self._settings, error), StoreUnavailable | BackendUnusable):
                logger.exception('Changes of other processes could not be read; the next try follows in a moment.')
        return again

    async def _ping(self, connection: asyncpg.Connection[asyncpg.Record], session: Session) -> None:
        """Check the listening connection, and read the database's clock."""
        try:
            async with asyncio.timeout(_POLL):
                await session.clock.ask(connection)
        except _FAILS:
            connection.terminate()
            self._lost(connection)

    async def _look(self, session: Session, *, full: bool) -> bool:
        self._ready = False
        tasks = self._event_bus.awaited_tasks() if full else ()
        noticed = await session.read(partial(notice.look, self._namespace, tasks, self._peers.now()))
        if not full:
            noticed = noticed._replace(newest=self._noticed.newest)
        self._noticed = noticed
        return self._peers.tell(noticed)

    async def _mark(self, session: Session) -> None:
        due, until = self._peers.to_mark()
        if not due:
            return
        tell = notify(self._channel, self._sender, 'w', [(task_id, until) for task_id in due])
        async with session.connection() as connection:
            try:
                await connection.execute(begin(self._settings))
                locked = await perform(connection, notice.mark(self._namespace, due, until))
                await connection.execute(f'{tell}; COMMIT')
            except BaseException:
                await roll_back(connection)
                raise
        self._peers.mark_again(locked)

    def _hear(self, connection: object, pid: int, channel: str, payload: object) -> None:
        sender, flags, *tasks = str(payload).split(' ')
        if sender == self._sender:
            return
        for task in tasks:
            task_id, _, number = unquote(task).rpartition(':')
            self._tell(flags, task_id, int(number))
        if 'r' in flags and self._peers.listeners:
            self._ready = True
            self._wanted.set()

    def _tell(self, flags: str, task_id: str, number: int) -> None:
        if 'w' in flags:
            self._peers.is_watched(task_id, number)
            return
        if 'j' in flags:
            self._peers.share([task_id])
        if 'c' in flags:
            self._peers.cancel(task_id)
        if number:
            self._event_bus.hint(task_id, None if 'g' in flags else number)
