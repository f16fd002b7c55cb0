"""Notifications between the processes of a PostgreSQL database: writes of the others, and marks of watched tasks.

Notifications are hints: a poll after each gap, and every few seconds, finds lost notifications.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from urllib.parse import unquote

import asyncpg

from ....bounded_wait import bounded_wait
from ....errors import BackendUnusable, StoreUnavailable
from ..event_bus import EventBus
from ..sql import peers
from ..sql.peers import Peers
from .driver_errors import connection_error
from .execution import Connection, in_transaction, perform
from .notify_statements import about, channel, notify
from .pool import Session
from .settings import Postgres
from .sql_translation import begin

logger = logging.getLogger('pydantic_ai_a2a')

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
                await bounded_wait(_SOON if again else look_at - loop.time(), self._wanted.wait())
                if again:
                    self._ready = True
        finally:
            if self._connection is not None:
                self._connection.terminate()  # the other namespaces open another one

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
