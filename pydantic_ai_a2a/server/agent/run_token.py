"""Cancels the runs of one task, also while they are entered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

from pydantic_ai import CancellationToken
from pydantic_ai.run import AgentRun

T = TypeVar('T')

_ENTRY = 0.1
"""Seconds for which an entry holds a cancellation back."""
_TURNS = 100
"""Turns of the event loop after these seconds: on a busy machine, an entry may need more time, but not more turns."""


class RunToken(CancellationToken):
    """Cancels the runs of one task, and the making of `deps`.

    Pydantic AI leaves a task of its own behind for ever if a cancellation arrives in the last moment of the entry into
    a run or a stream. So the cancellation waits for the entry, or a little if the entry takes long.
    """

    on_entered: Callable[[AgentRun[Any, Any]], object] = id
    """Called with each run once it is entered. The token outlives its runs, and keeps none: `id` does nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._opening: asyncio.Timeout | None = None
        self.enters = False
        """True during an entry."""
        self._waits = False

    def cancel(self) -> None:
        """Cancel, from any thread. A second call does nothing."""
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if not self.enters:
            self._cancel_now()
        elif not self._waits:
            self._waits = True
            self._loop.call_later(_ENTRY, self._cancel_after, _TURNS)

    def _cancel_after(self, turns: int) -> None:
        if self.enters and turns:
            self._loop.call_soon(self._cancel_after, turns - 1)
        else:
            self._cancel_now()

    def _cancel_now(self) -> None:
        super().cancel()
        self._stop_opening()

    def entered(self) -> None:
        """End an entry, and cancel now if a cancellation has waited."""
        self.enters = False
        if self._waits:
            self._cancel_now()

    @contextmanager
    def opening(self, opening: asyncio.Timeout) -> Generator[None]:
        """End a timeout's block when the token is cancelled, or at once if cancelled before."""
        self._opening = opening
        self._stop_opening()
        try:
            yield
        finally:
            self._opening = None

    def _stop_opening(self) -> None:
        if self.cancelled and self._opening is not None and not self._opening.expired():
            self._opening.reschedule(self._loop.time())


class Entering(AbstractAsyncContextManager[T]):
    """Enters a run or a stream of Pydantic AI whole, before a cancellation of its token."""

    def __init__(self, token: RunToken, entered: AbstractAsyncContextManager[T]) -> None:
        self._token = token
        self._entered = entered

    async def __aenter__(self) -> T:
        self._token.enters = True
        try:
            return await self._entered.__aenter__()
        finally:
            self._token.entered()

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._entered.__aexit__(*error)
