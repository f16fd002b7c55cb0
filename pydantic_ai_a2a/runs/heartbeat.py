"""Renews leases from a thread of its own, for one event loop. Knows neither what is leased nor what it is written to.

What blocks the event loop for a while must not lose the tasks that run there; a loop that is stuck for good has to.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import TypeAlias

from ..clock import STOP_TIME

__all__ = ('Heartbeat', 'Renew')

logger = logging.getLogger('pydantic_ai_a2a')

_AT_ONCE = 4
"""Renewals that may be under way together."""
_RETRY = 1.0
"""Seconds at most until a renewal that has failed is tried again."""

Renew: TypeAlias = Callable[[], Awaitable[Sequence[Callable[[], object]]]]
"""Renews all leases, in an event loop that is not the one that it is for; what is to be called in that one then."""


class Heartbeat:
    """Renews leases three times in each of their periods, from now on until it is stopped or its loop is closed.

    A failed renewal is tried again after a second, or a tenth of the period if that is shorter: when the store is back,
    the leases are renewed before other processes take over the tasks.
    A loop that has not answered for three periods is not renewed for, until it answers.

    Args:
        renew: Called in the thread's own event loop. What it raises is logged.
        lease: Seconds that a lease lasts.
    """

    def __init__(self, renew: Renew, lease: float) -> None:
        self._renew = renew
        self._lease = lease
        self._loop = asyncio.get_running_loop()
        self._asked: float | None = None
        """When the loop was asked for the answer that it has not given."""
        self._given_up = False
        self._stopped: Future[None] = Future()
        self._thread = Thread(target=self._run, name='pydantic_ai_a2a heartbeat', daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and with it a renewal that is not done. Blocks for a moment."""
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
            # One that a store holds up for long does not keep the next from being tried: by then the leases are over.
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
        """Renew the leases once; False if that has failed."""
        try:
            if self._answers():
                for callback in await self._renew():
                    self._loop.call_soon_threadsafe(callback)
        except Exception:  # a store that fails now may work at the next beat, and the leases depend on it
            logger.exception('A heartbeat failed: the leases of the running tasks were not renewed.')
            return False
        finally:
            room.release()
        return True

    def _answers(self) -> bool:
        """Whether the loop lives, as far as that is known. Asks it once more, if it has answered."""
        now = time.monotonic()
        asked = self._asked  # read once: the loop's thread may answer at any moment
        if asked is None:
            asked = self._asked = now
            self._loop.call_soon_threadsafe(self._answer)
        stuck = now - asked > 3 * self._lease
        if stuck and not self._given_up:
            logger.error(
                'The event loop has not answered for %.3g seconds, since something blocks it: the leases of the tasks'
                ' that run there are no longer renewed, and another process may take them over.',
                now - asked,
            )
        self._given_up = stuck
        return not stuck

    def _answer(self) -> None:
        self._asked = None
