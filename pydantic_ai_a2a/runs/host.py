"""The host of one event loop: owns the agent, the worker and the drain, beside the requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from contextvars import Context
from typing import Any, Literal, TypeAlias

from ..clock import STOP_TIME
from ..telemetry import metrics
from .worker import Worker

__all__ = ('Component', 'Host')

logger = logging.getLogger('pydantic_ai_a2a')

Component: TypeAlias = Literal[
    'ok', 'idle', 'off', 'degraded', 'starting', 'failed', 'read-only', 'stopped', 'draining'
]
"""State of a part of the app. `idle` starts with the first request, `off` is left to another process, `degraded` still
works. In all other states, send traffic elsewhere."""


async def _both(one: Awaitable[None], other: Awaitable[None]) -> None:
    await asyncio.gather(one, other)


class Host:
    """The worker of one loop, and the loop's hold on the agent. Ends with the loop, in bounded time."""

    def __init__(
        self,
        make_worker: Callable[[], Worker],
        agent: AbstractAsyncContextManager[Any],
        signals: Callable[[], AbstractContextManager[None]],
        context: Context,
        *,
        runs_tasks: bool,
    ) -> None:
        self._make_worker = make_worker
        self._runs_tasks = runs_tasks
        self._agent = agent
        self._signals = signals
        self._context = context
        self.loop = asyncio.get_running_loop()
        self._up: asyncio.Future[None] = self.loop.create_future()
        self._entered: asyncio.Future[None] = self.loop.create_future()
        self._held = False
        self._stop = asyncio.Event()
        self._leave = asyncio.Event()
        self._draining: asyncio.Task[None] | None = None
        self.worker: Worker | None = None
        # An empty context: the context of the first request must not outlive the request.
        self._task = self.loop.create_task(self._work(), context=Context())

    @property
    def over(self) -> bool:
        """True after the end or a failed start."""
        return self._task.done()

    async def started(self) -> None:
        """Wait until the host is up."""
        await asyncio.shield(self._up)

    async def _work(self) -> None:
        """Run a worker while the agent is held. After a lost hold the worker goes on, and each run enters the agent."""
        keeper = self.loop.create_task(self._keep_agent(), context=self._context)
        try:
            await self._entered
            worker = self.worker = self._make_worker()
            metrics.watch(worker)
            try:
                await (worker.start() if self._runs_tasks else worker.ask_store())
                with self._signals():
                    self._up.set_result(None)
                    await self._stop.wait()
            finally:
                self.worker = None
                await worker.close()
        except Exception as error:
            if self._up.done():
                logger.exception('The worker failed while it stopped; its tasks run again once their leases expire.')
            else:
                self._up.set_exception(error)
        finally:
            self._leave.set()
            await asyncio.wait([keeper], timeout=STOP_TIME if self._held else 0)
            keeper.cancel()  # entering or leaving the agent has had its time
            self._up.cancel()

    async def _keep_agent(self) -> None:
        """Hold the agent in an asyncio task of its own, since a failed task group inside cancels the entering task."""
        try:
            async with self._agent:
                self._entered.set_result(None)
                self._held = True
                await self._leave.wait()
        except Exception as error:
            if self._entered.done():
                logger.exception('The agent failed while the server left its context; the server stops anyway.')
            else:
                self._entered.set_exception(error)
        except asyncio.CancelledError:
            if not self._entered.cancel() and not self._task.cancelling():
                logger.error(
                    'A failure inside the agent has closed the agent; from now on each run enters the agent anew.'
                )

        finally:
            self._held = False

    def agent_health(self) -> Component:
        """Return the state of the agent."""
        if not self._entered.done():
            return 'starting'
        if self._entered.cancelled() or self._entered.exception() is not None:
            return 'failed'
        if not self._runs_tasks:
            return 'off'
        return 'ok' if self._held else 'degraded'

    def worker_health(self) -> Component:
        """Return the state of the worker."""
        if not self._runs_tasks:
            return 'off'
        if not self._up.done():
            return 'starting'
        return 'stopped' if self.worker is None else 'ok'

    def drain(
        self, grace: float, beside: Callable[[float], Coroutine[Any, Any, None]] | None, done: Callable[[], None]
    ) -> None:
        """Begin to drain, and call `done` at the end. Again, without grace: stop the runs, so that the drain ends."""
        if self.worker is not None and (self._draining is None or not grace):
            self.worker.begin_drain()
            draining = self.worker.drain(grace)
            if beside is not None:
                draining = _both(draining, beside(grace))
            if self._draining is not None:
                draining = _both(draining, self._draining)
            self._draining = self.loop.create_task(draining, context=Context())
            self._draining.add_done_callback(lambda _: done())

    async def stop(self) -> None:
        """Finish the drain, and leave the agent."""
        try:
            if self._draining is not None:
                await self._draining
        finally:
            self._stop.set()
            if not self._up.done():  # the host is still starting
                self._task.cancel()
            await asyncio.wait([self._task])
