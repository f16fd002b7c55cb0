"""What waits for clients, and the end of it where they take too long: one timer for all. Knows no request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

__all__ = ('SlowClients',)

T = TypeVar('T')

_NEW, _KNOWN, _LATE = range(3)
_Waiting: TypeAlias = dict[asyncio.Task[Any], int]


class SlowClients:
    """Gives up waiting for clients that take longer than a time, and at most twice as long.

    Args:
        seconds: The time.
        error: Makes what is raised then.
    """

    def __init__(self, seconds: float, error: Callable[[], Exception]) -> None:
        self._seconds = seconds
        self._error = error
        self._loops: dict[asyncio.AbstractEventLoop, _Waiting] = {}
        """Who waits, in the loops whose timers are set."""

    async def wait(self, for_client: Awaitable[T]) -> T:
        """What comes of it: once the client has sent, or read, what it has to.

        Raises:
            Exception: It takes too long.
        """
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        if loop not in self._loops:
            self._begin(loop)
        waiting = self._loops[loop]
        waiting[task] = _NEW
        try:
            return await for_client
        except asyncio.CancelledError:
            if waiting[task] != _LATE or task.uncancel():
                raise  # not the time: somebody ends the request
            raise self._error() from None
        finally:
            del waiting[task]

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        for each in [each for each in list(self._loops) if each.is_closed()]:
            del self._loops[each]
        self._loops[loop] = {}
        loop.call_later(self._seconds, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting = self._loops[loop]
        if not waiting:
            del self._loops[loop]
            return
        loop.call_later(self._seconds, self._tick, loop)
        for task, state in waiting.items():
            waiting[task] = _KNOWN if state == _NEW else _LATE
            if state != _NEW:
                task.cancel()
