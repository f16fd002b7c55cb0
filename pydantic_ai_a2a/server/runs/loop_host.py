"""The host of one event loop: owns the agent, the worker and the drain, beside the requests.

A host has two asyncio tasks. The keeper (`_keep_agent`) enters and leaves the agent, because a task group inside of the
agent that fails cancels the task that has entered it. The other task (`_work`) runs the worker from then on. It
outlives the keeper: if the agent closes itself, each run enters it anew.

| state | set by | meaning |
|---|---|---|
| `_entered` | the keeper | the first entry has succeeded, or has failed |
| `_up` | `_work` | the worker has started, or the start has failed: requests that wait in `started` go on |
| `_held` | the keeper | the agent is entered now |
| `renewing` of the connections | the keeper | a connection is lost: the worker pauses, and the agent is entered anew |
| `_wake` | `doubt`, and the end | the keeper looks whether a connection is lost, or leaves the agent |
| `_stop` | `stop` | `_work` closes the worker, and then `_leaving` ends the keeper |

A drain comes before the stop, and is a task of its own: a further signal begins another drain without grace, with which
the first one ends, too. Each wait for code of the user has a bound, so the process ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from contextvars import Context
from typing import Any, Literal, TypeAlias

from ...bounded_wait import bounded_wait
from ...clock import STOP_TIME
from ...telemetry.metrics import metrics
from ..agent.mcp_connections import MCPConnections
from .worker import Worker

logger = logging.getLogger('pydantic_ai_a2a')

_RUNS_END = 30.0
"""Seconds for the runs to end before the agent is entered anew. A connection in use is kept, and lost again."""

ComponentState: TypeAlias = Literal[
    'ok', 'idle', 'off', 'degraded', 'paused', 'starting', 'reconnecting', 'failed', 'read-only', 'stopped', 'draining'
]
"""State of a part of the app. `idle` starts with the first request, `off` is left to another process, `degraded` still
works, `paused` is a queue that an operator has paused. In all other states, send traffic elsewhere."""


class Host:
    """The worker of one loop, and the loop's hold on the agent. Ends with the loop, in bounded time."""

    def __init__(
        self,
        make_worker: Callable[[], Worker],
        *,
        agent: AbstractAsyncContextManager[Any],
        connections: MCPConnections,
        store: AbstractAsyncContextManager[Any],
        present: Callable[[], AbstractAsyncContextManager[None]],
        signals: Callable[[], AbstractContextManager[None]],
        context: Context,
        pauses: Callable[[], Iterator[float]],
        runs_tasks: bool,
    ) -> None:
        self._make_worker = make_worker
        self._runs_tasks = runs_tasks
        self._agent = agent if runs_tasks else nullcontext()
        self._connections = connections
        self._store = store
        self._present = present
        self._pauses = pauses
        self._signals = signals
        self._context = context
        self.loop = asyncio.get_running_loop()
        self._up: asyncio.Future[None] = self.loop.create_future()
        self._entered: asyncio.Future[None] = self.loop.create_future()
        self._held = False
        self._stop = asyncio.Event()
        self._leaving = False
        self._wake = asyncio.Event()
        """Set to leave the agent, and to look whether its connections still work."""
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
                async with self._present():
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
            self._leaving = True
            self._wake.set()
            await asyncio.wait([keeper], timeout=STOP_TIME if self._held else 0)
            keeper.cancel()  # entering or leaving the agent has had its time
            self._up.cancel()

    async def _keep_agent(self) -> None:
        """Hold the agent in an asyncio task of its own, since a failed task group inside cancels the entering task."""
        pauses = self._pauses()
        try:
            async with self._store:
                while not self._leaving:
                    try:
                        await self._hold()
                    except Exception as error:  # whatever an agent's toolsets raise
                        if not self._connections.renewing:
                            raise
                        if not self._held:
                            logger.warning('The agent still cannot be started, and the server tries again: %r', error)
                            await bounded_wait(next(pauses), self._wake.wait())  # until the host ends at most
                            continue
                        logger.debug('A lost connection could not be closed in order.', exc_info=True)
                    pauses, self._held = self._pauses(), False
        except Exception as error:
            if self._entered.done():
                logger.exception('The agent failed while the server closed it; the server stops anyway.')
            else:
                self._entered.set_exception(error)
        except asyncio.CancelledError:
            if not self._entered.cancel() and not self._task.cancelling():
                logger.error(
                    'A failure inside the agent has closed the agent; from now on each run starts the agent anew.'
                )

        finally:
            self._held = False
            self._renew(False)

    async def _hold(self) -> None:
        """Hold the agent until the host ends; or until a connection is lost, and no run holds the agent any more."""
        async with self._agent:
            self._held = True
            self._connections.entered()
            if self._entered.done():
                logger.info('The agent was started anew, and its tasks go on.')
            else:
                self._entered.set_result(None)
            self._renew(False)
            lost = None
            while lost is None and not self._leaving:
                await self._wake.wait()
                self._wake.clear()
                lost = None if self._leaving else await self._connections.lost()
                self._connections.in_doubt = self._wake.is_set()
            if lost is not None:
                logger.warning(
                    'The connection of %s is lost; the agent is started anew after its runs have ended.', lost
                )
                self._renew(True)
                await self._connections.idle(_RUNS_END)
                self._wake.clear()  # runs that failed meanwhile would cut short the pauses before the next entries

    def _renew(self, renewing: bool) -> None:
        """Keep new runs waiting while the agent is entered anew, or let them go on."""
        self._connections.in_doubt = False
        if renewing is not self._connections.renewing:
            self._connections.renewing = renewing
            if self.worker is not None:
                self.worker.hold_runs(renewing)

    def doubt(self) -> None:
        """Look whether the connections of the agent still work: a run had trouble with them, or with something else."""
        if self._held and not self._connections.renewing:
            self._connections.in_doubt = True
            self._wake.set()

    def agent_health(self) -> ComponentState:
        """Return the state of the agent."""
        if not self._entered.done():
            return 'starting'
        if self._entered.cancelled() or self._entered.exception() is not None:
            return 'failed'
        if not self._runs_tasks:
            return 'off'
        if self._connections.renewing:
            return 'reconnecting'
        return 'ok' if self._held else 'degraded'

    def worker_health(self) -> ComponentState:
        """Return the state of the worker."""
        if not self._runs_tasks:
            return 'off'
        if not self._up.done():
            return 'starting'
        if self.worker is None:
            return 'stopped'
        return 'paused' if self.worker.queue_paused else 'ok'

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


async def _both(one: Awaitable[None], other: Awaitable[None]) -> None:
    await asyncio.gather(one, other)
