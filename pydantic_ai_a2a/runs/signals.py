"""What a process does between SIGTERM or SIGINT and its server's own handling of it. Knows no server and no worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeAlias

__all__ = ('Handler', 'Shutdown')

Handler: TypeAlias = Callable[[int, FrameType | None], Any]


class Shutdown:
    """How one app leaves: it is announced, after a delay the app drains, and then the server is told.

    A second signal, of either kind, does not wait for the delay. Apps of one process wait together, for the longest.

    Args:
        loop: The app's event loop.
        delay: Seconds between the announcement and the rest.
        announce: Called at the first signal.
        drain: Called in the loop.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        delay: float,
        *,
        announce: Callable[[], object],
        drain: Callable[[], object],
    ) -> None:
        self.loop = loop
        self.gone = False
        """Whether the delay is over."""
        self._delay = delay
        self._announce = announce
        self._drain = drain
        self._announced = False

    def before(self, handler: Handler) -> Handler:
        """A signal handler that sees to this app's departure before another handler is called."""
        return _Chained(self, handler)

    def begin(self) -> float:
        """Announce it; the seconds to wait then, which are none if it had been announced before."""
        if self._announced:
            return 0.0
        self._announced = True
        self._announce()
        return self._delay

    def end(self) -> None:
        """Drain."""
        self.gone = True
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._drain)


class _Chained:
    """Called with the signal, instead of the handler that was there."""

    def __init__(self, shutdown: Shutdown, before: Handler) -> None:
        self._shutdown = shutdown
        self._before = before

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        delay, loop = self.begin(), self._shutdown.loop
        if delay and not loop.is_closed():
            loop.call_soon_threadsafe(loop.call_later, delay, self._go_late, signum)
        else:
            self._go(signum, frame)

    def begin(self) -> float:
        """Announce the departure of this app and of those whose handlers are called after."""
        behind = self._before.begin() if isinstance(self._before, _Chained) else 0.0
        return max(self._shutdown.begin(), behind)

    def _go_late(self, signum: int) -> None:
        if not self._shutdown.gone:
            self._go(signum, None)

    def _go(self, signum: int, frame: FrameType | None) -> None:
        self._shutdown.end()
        self._before(signum, frame)
