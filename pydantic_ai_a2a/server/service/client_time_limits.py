"""Time limits of clients that send or read slowly, with one timer for all clients of an event loop.

Each wait has a mark, and a tick comes once in the time limit: it makes a new wait a known one, and cancels the task of
a wait that it knows already. So a wait ends after one to two limits. Without waits, the ticks stop.

A task can be cancelled by the tick and by the server at once. `Task.uncancel` counts: only if the tick was the only one
to cancel, the cancellation becomes the error. The marks belong to one event loop, and its thread alone changes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

T = TypeVar('T')

_NEW, _KNOWN, _LATE = range(3)
_Waiting: TypeAlias = dict[asyncio.Task[Any], int]


class SlowClients:
    """Ends waits for slow clients after a time limit, and after at most twice the limit.

    Args:
        seconds: The limit.
        error: Makes the error of such a wait.
    """

    def __init__(self, seconds: float, error: Callable[[], Exception]) -> None:
        self._seconds = seconds
        self._error = error
        self._loops: dict[asyncio.AbstractEventLoop, _Waiting] = {}
        """The waiting tasks of the event loops whose timers are set."""

    async def wait(self, for_client: Awaitable[T]) -> T:
        """Return the result of a read from the client or a send to the client.

        Raises:
            Exception: The client is too slow. The error is made by `error`.
        """
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        if loop not in self._loops:
            self._begin(loop)
        waiting = self._loops[loop]
        waiting[task] = _NEW
        try:
            return await for_client
        except asyncio.CancelledError:
            if waiting[task] != _LATE or task.uncancel():
                raise  # not the time limit: the server ends the request
            raise self._error() from None
        finally:
            del waiting[task]

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        for closed in [other for other in list(self._loops) if other.is_closed()]:
            del self._loops[closed]
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
