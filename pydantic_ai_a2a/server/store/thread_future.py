"""Futures that a thread resolves for a coroutine in another thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class ThreadFuture:
    """Brings the result or the error of a job to the coroutine that waits for the job.

    Args:
        undo: Given a result that nobody waits for any longer.
    """

    def __init__(self, undo: Callable[[Any], object] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[Any] = self._loop.create_future()
        self._undo = undo

    def __call__(self, result: Any, error: BaseException | None) -> None:
        """Answer, from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._settle, result, error)
        except RuntimeError:  # the loop is closed
            self._unclaimed(result, error)

    def _settle(self, result: Any, error: BaseException | None) -> None:
        if self._future.done():
            self._unclaimed(result, error)
        elif error is not None:
            self._future.set_exception(error)
        else:
            self._future.set_result(result)

    def _unclaimed(self, result: Any, error: BaseException | None) -> None:
        if error is None and self._undo is not None:
            self._undo(result)

    async def wait(self) -> Any:
        """The result, or the error raised."""
        try:
            return await self._future
        except asyncio.CancelledError:
            if not self._future.cancelled():  # the result and the cancellation arrived together
                error = self._future.exception()
                self._unclaimed(None if error is not None else self._future.result(), error)
            raise
