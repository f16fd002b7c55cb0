"""A request to stop a task, which its job takes from any thread."""

from __future__ import annotations

import asyncio


class Stop:
    """A request to stop one task, from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._asked = asyncio.Event()

    def cancel(self) -> None:
        """Request the stop."""
        self._loop.call_soon_threadsafe(self._asked.set)

    async def wait(self) -> None:
        """Wait for the request."""
        await self._asked.wait()
