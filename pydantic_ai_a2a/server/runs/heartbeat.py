"""The heartbeat: renews the leases of one event loop from a thread of its own.

An event loop that is blocked for a while keeps its tasks. An event loop that is blocked for good loses them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import TypeAlias

from ...base_exceptions import ends_task
from ...clock import STOP_TIME

logger = logging.getLogger('pydantic_ai_a2a')

_AT_ONCE = 4
"""Concurrent renewals."""
_RETRY = 1.0
"""Maximum seconds until a failed renewal is tried again."""

Renew: TypeAlias = Callable[[], Awaitable[Sequence[Callable[[], object]]]]
"""Renews all leases, in the event loop of the heartbeat. Returns callbacks to run in the worker's event loop."""


class Heartbeat:
    """Renews leases three times in each of their periods, until `stop` or until the worker's loop is closed.

    A failed renewal is tried again after a second, or a tenth of the period if shorter. When the store is back, the
    leases are renewed before other processes take over the tasks. Without an answer of the worker's loop for three
    periods, leases are not renewed until the loop answers.

    Args:
        renew: Called in the thread's own event loop. Exceptions are logged.
        lease: Seconds of a lease.
    """

    def __init__(self, renew: Renew, lease: float) -> None:
        self._renew = renew
        self._lease = lease
        self._loop = asyncio.get_running_loop()
        self._asked: float | None = None
        """Time of the question to the worker's loop that has no answer yet."""
        self._given_up = False
        self._stopped: Future[None] = Future()
        self._thread = Thread(target=self._run, name='pydantic_ai_a2a heartbeat', daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and a running renewal with the thread. Blocks for a moment."""
        self._stopped.set_result(None)
        self._thread.join(STOP_TIME)

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        beating = asyncio.ensure_future(self._beat())
        await asyncio.wait([beating, asyncio.wrap_future(self._stopped)], return_when=asyncio.FIRST_COMPLETED)

    async def _beat(self) -> None:
        room = asyncio.Semaphore(_AT_ONCE)
        renewing: set[asyncio.Task[bool]] = set()
        pause = self._lease / 3
        while True:
            await asyncio.sleep(pause)
            if self._loop.is_closed():
                return
            # A slow renewal does not block the next one: the leases would expire meanwhile.
            await room.acquire()
            task = asyncio.create_task(self._renew_all(room))
            renewing.add(task)
            task.add_done_callback(renewing.discard)
            began = time.monotonic()
            done, _ = await asyncio.wait([task], timeout=self._lease / 3)
            if done and not task.result():
                pause = min(_RETRY, self._lease / 10)
            else:
                pause = max(0.0, began + self._lease / 3 - time.monotonic())

    async def _renew_all(self, room: asyncio.Semaphore) -> bool:
        """Renew the leases once. Return False after a failure."""
        current = asyncio.current_task()
        try:
            if self._answers():
                for callback in await self._renew():
                    self._loop.call_soon_threadsafe(callback)
        except BaseException as error:  # a user's store may raise anything, and may work at the next beat
            if ends_task(error, current):
                raise
            logger.exception('A heartbeat failed: the leases of the running tasks were not renewed.')
            return False
        finally:
            room.release()
        return True

    def _answers(self) -> bool:
        """Return True if the worker's loop is alive. Ask the loop again if the last question was answered."""
        now = time.monotonic()
        asked = self._asked  # read once: the loop's thread may answer at any moment
        if asked is None:
            asked = self._asked = now
            self._loop.call_soon_threadsafe(self._answer)
        stuck = now - asked > 3 * self._lease
        if stuck and not self._given_up:
            logger.error(
                'The event loop has been blocked for %.3g seconds: the leases of the tasks'
                ' that run there are no longer renewed, and another process may take them over.',
                now - asked,
            )
        self._given_up = stuck
        return not stuck

    def _answer(self) -> None:
        self._asked = None
