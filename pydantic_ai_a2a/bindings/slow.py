"""Bodies that are on their way, and the end of those that take too long: one timer for all. Knows no request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeAlias

from ..errors import RequestTimeoutError

__all__ = ('SlowSenders',)

_NEW, _KNOWN, _LATE = range(3)
_Reading: TypeAlias = dict[asyncio.Task[Any], int]


class SlowSenders:
    """Gives up bodies that take longer than a time, and at most twice as long.

    Args:
        seconds: The time.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loops: dict[asyncio.AbstractEventLoop, _Reading] = {}
        """Who reads, in the loops whose timers are set."""

    async def read(self, body: Awaitable[bytes]) -> bytes:
        """A body, once it has come.

        Raises:
            RequestTimeoutError: It takes too long.
        """
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        if loop not in self._loops:
            self._begin(loop)
        reading = self._loops[loop]
        reading[task] = _NEW
        try:
            return await body
        except asyncio.CancelledError:
            if reading[task] != _LATE or task.uncancel():
                raise  # not the time: somebody ends the request
            raise RequestTimeoutError(headers={'Connection': 'close'}) from None
        finally:
            del reading[task]

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        for each in [each for each in list(self._loops) if each.is_closed()]:
            del self._loops[each]
        self._loops[loop] = {}
        loop.call_later(self._seconds, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        reading = self._loops[loop]
        if not reading:
            del self._loops[loop]
            return
        loop.call_later(self._seconds, self._tick, loop)
        for task, state in reading.items():
            reading[task] = _KNOWN if state == _NEW else _LATE
            if state != _NEW:
                task.cancel()
