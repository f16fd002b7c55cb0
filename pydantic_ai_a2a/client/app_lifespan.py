"""The start and the stop of an app in this process by its client."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import Protocol, Self, runtime_checkable

from starlette.applications import Starlette


class _Hosting(Protocol):
    @property
    def begun(self) -> bool:
        """True if the app has been started in the current event loop."""
        ...


@runtime_checkable
class OwnApp(Protocol):
    """An app of `to_a2a`, as far as its clients in the same process need to know it."""

    @property
    def hosting(self) -> _Hosting:
        """The start and the stop of the app."""
        ...


class Lifespan:
    """The lifespan of an app, in a task of its own: other tasks may start and stop the app."""

    def __init__(self, app: Starlette, context: Context) -> None:
        self._started, self._stopping = asyncio.Event(), asyncio.Event()
        self._running = asyncio.create_task(self._run(app), context=context)

    @classmethod
    async def start(cls, app: Starlette, context: Context) -> Self:
        """Start an app. An error of the app's start is raised."""
        lifespan = cls(app, context)
        started = asyncio.create_task(lifespan._started.wait())
        try:
            await asyncio.wait((lifespan._running, started), return_when=asyncio.FIRST_COMPLETED)
            if lifespan._running.done():
                await lifespan._running
        except BaseException:
            lifespan._running.cancel()
            raise
        finally:
            started.cancel()
        return lifespan

    async def stop(self) -> None:
        """Stop the app."""
        self._stopping.set()
        await self._running

    async def _run(self, app: Starlette) -> None:
        async with app.router.lifespan_context(app):
            self._started.set()
            await self._stopping.wait()
