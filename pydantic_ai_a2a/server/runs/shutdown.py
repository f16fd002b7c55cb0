"""The shutdown of apps at SIGTERM or SIGINT, before the server's own handler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeAlias

SignalHandler: TypeAlias = Callable[[int, FrameType | None], Any]


class Shutdown:
    """The shutdown of one app: an announcement, a delay, the drain, and then the server's handler.

    A second signal, of either kind, ends the delay, and the next one the drain. The connections end with the drain,
    because uvicorn waits for them from Python 3.12 on, also if it is forced. Apps of one process wait together, for the
    longest delay.

    Args:
        loop: The app's event loop.
        delay: Seconds between the announcement and the drain.
        announce: Called at the first signal.
        drain: Called in the loop, at each further signal with True to end the drain.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        delay: float,
        *,
        announce: Callable[[], object],
        drain: Callable[[bool], object],
    ) -> None:
        self.loop = loop
        self.gone = False
        """True after the delay."""
        self._delay = delay
        self._announce = announce
        self._drain = drain
        self._announced = False

    def before(self, handler: SignalHandler) -> SignalHandler:
        """Return a signal handler that shuts this app down before another handler is called."""
        return _Chained(self, handler)

    def begin(self) -> float:
        """Announce the shutdown. Return the seconds to wait, 0 if announced before."""
        if self._announced:
            return 0.0
        self._announced = True
        self._announce()
        return self._delay

    def end(self) -> None:
        """Drain, or end the drain."""
        again, self.gone = self.gone, True
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._drain, again)


class _Chained:
    """The signal handler of an app, in front of the previous handler."""

    def __init__(self, shutdown: Shutdown, before: SignalHandler) -> None:
        self._shutdown = shutdown
        self._before = before

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        delay, loop = self.begin(), self._shutdown.loop
        if delay and not loop.is_closed():
            loop.call_soon_threadsafe(loop.call_later, delay, self._go_late, signum)
        else:
            self._go(signum, frame)

    def begin(self) -> float:
        """Announce the shutdown of this app and of the apps behind its handler."""
        behind = self._before.begin() if isinstance(self._before, _Chained) else 0.0
        return max(self._shutdown.begin(), behind)

    def _go_late(self, signum: int) -> None:
        if not self._shutdown.gone:
            self._go(signum, None)

    def _go(self, signum: int, frame: FrameType | None) -> None:
        self._shutdown.end()
        self._before(signum, frame)
