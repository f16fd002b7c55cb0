"""The hosts of an app, one for each event loop: started at first use, drained at signals, stopped by lifespans.

An app can be made at import, before a fork, and without a running loop.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import Context, copy_context
from functools import partial
from types import FrameType
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary, ref

from pydantic_ai.exceptions import UserError

from ..agent.connections import Connections
from ..clock import STOP_TIME
from ..errors import AgentUnavailable, AgentUnusable, BackendUnusable
from ..service.event_streams import OpenStreams
from ..service.slot_offers import Offer
from ..settings import Settings
from ..store.ports import Backend
from ..telemetry.spans import metrics
from .presence import present
from .worker import Worker

logger = logging.getLogger('pydantic_ai_a2a')

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_LONGEST_PAUSE = 30.0


def server_processes() -> int:
    """Return the number of processes that serve this app: uvicorn's `--workers` if present, else 1."""
    started_with: dict[str, Any] = getattr(multiprocessing.current_process(), '_kwargs', {})
    return getattr(started_with.get('config'), 'workers', 1)


_running: WeakKeyDictionary[Backend, ref[Hosting]] = WeakKeyDictionary()
"""The `Hosting` that runs the tasks of each backend in this process."""


def _pauses() -> Iterator[float]:
    """Seconds before each further attempt to enter an agent."""
    pause = 1.0
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE)


class Hosting:
    """Starts a host at first use in each loop. A lifespan starts and stops the host in order.

    Args:
        make_worker: Makes the worker of the running loop.
        backend: Stores the tasks. One app of a process may run the tasks of a backend.
        service: The agent in words, for other processes of the backend.
        agent: Entered while a host lives that runs tasks.
        connections: Connections of the agent.
        settings: Settings of the app.
        store: Entered while a host lives.
        beside: Ends the work beside the tasks within the given seconds. Called in its loop.
    """

    def __init__(
        self,
        make_worker: Callable[[], Worker],
        agent: AbstractAsyncContextManager[Any],
        connections: Connections,
        settings: Settings,
        *,
        backend: Backend,
        service: str,
        store: AbstractAsyncContextManager[Any],
        beside: Callable[[float], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self._make_worker = make_worker
        self._agent = agent
        self._connections = connections
        connections.on_doubt = self._doubt
        self._backend = backend
        self._service = service
        self._store = store
        self.streams = OpenStreams(settings.limits.keep_alive, self.running)
        """The app's event streams, which end at the drain."""
        self.drain_grace = settings.workers.drain_grace
        self.drain_delay = settings.workers.drain_delay
        self.durable = backend.durable
        """True if other processes see the tasks and may run them."""
        self._beside = beside
        self.runs_tasks = True
        """True if hosts run tasks. Set to False before the first use, all tasks are left to other processes."""
        self.pauses: Callable[[], Iterator[float]] = _pauses
        """Seconds before each further attempt to start a host."""
        self._leaving = False
        """True between the signal and the drain."""
        self._hosts: dict[asyncio.AbstractEventLoop, Host] = {}
        self._trying: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}
        """The retry task of each loop without a started host."""
        self._ready: Host | None = None
        """The host of the last use, if up."""
        self._draining = False
        self._context = Context()
        """Context variables of the lifespan, in which the agent is entered: a test may override the agent."""

    def accepting(self) -> bool:
        """Return True if new tasks are accepted."""
        return not self._draining

    def running(self, task_id: str) -> bool:
        """Return True if the task runs in this process."""
        return any(host.worker is not None and host.worker.running(task_id) for host in list(self._hosts.values()))

    def offer(self) -> Offer | None:
        """Return the offer of a slot of the running loop's worker; None if tasks have to wait."""
        host = self._hosts.get(asyncio.get_running_loop())
        return None if host is None or host.worker is None else host.worker.offer()

    def _doubt(self) -> None:
        running = asyncio.get_running_loop()
        for host in [host for loop, host in self._hosts.items() if loop is running]:
            host.doubt()

    @property
    def begun(self) -> bool:
        """True if the running loop has a host, started or failed."""
        return asyncio.get_running_loop() in self._hosts

    def components(self) -> dict[str, Component]:
        """Return the states of the parts of the running loop."""
        host = self._hosts.get(asyncio.get_running_loop())
        if self._leaving or self._draining:
            server: Component = 'draining'
        else:
            server = 'idle' if host is None else 'ok'
        if host is None:
            part: Component = 'idle' if self.runs_tasks else 'off'
            return {'server': server, 'agent': part, 'worker': part}
        return {'server': server, 'agent': host.agent_health(), 'worker': host.worker_health()}

    async def ensure(self) -> None:
        """Start the host of the running loop, unless the loop has a host.

        Raises:
            Exception: The agent raised while being entered. The next call tries again, and so does the host after a
                while, except after a `BackendUnusable`.
        """
        loop = asyncio.get_running_loop()
        if self._ready is not None and self._ready.loop is loop:
            return  # enough for most requests
        try:
            await self._ensure()
        except BackendUnusable:
            raise
        except Exception:
            if loop not in self._trying:
                self._trying[loop] = loop.create_task(self._try_again(), context=Context())
            raise

    async def begin(self) -> None:
        """Start the host for a request, like `ensure`.

        Raises:
            AgentUnavailable: The agent cannot be entered now. The host tries again.
            AgentUnusable: The agent cannot be entered, and time changes nothing: a key or a package is missing.
            BackendUnusable: The store needs a repair.
        """
        try:
            await self.ensure()
        except BackendUnusable:
            raise
        except (UserError, ImportError) as error:
            raise AgentUnusable from error
        except Exception as error:  # whatever an agent's toolsets raise
            raise AgentUnavailable from error

    async def _try_again(self) -> None:
        """Start a host of this loop: a server that is not ready gets no requests to start the host."""
        loop, pauses = asyncio.get_running_loop(), self.pauses()
        while loop in self._trying:
            await asyncio.sleep(next(pauses))
            try:
                await self._ensure()
                del self._trying[loop]
            except Exception as error:  # whatever an agent's toolsets raise
                logger.warning('The agent still cannot be entered, and the server tries again: %r', error)

    async def _ensure(self) -> None:
        loop = asyncio.get_running_loop()
        host = self._hosts.get(loop)
        if host is None or host.over:
            for closed in [loop for loop in self._hosts if loop.is_closed()]:
                del self._hosts[closed]
                self._trying.pop(closed, None)
            if not self._hosts:
                self._draining = self.streams.closing = False
            if self.runs_tasks:
                self._check_alone()
            metrics.begin()
            host = self._hosts[loop] = Host(
                self._make_worker,
                agent=self._agent,
                connections=self._connections,
                store=self._store,
                present=partial(present, self._backend, self._service),
                signals=self._signals,
                context=self._context.copy(),
                pauses=self.pauses,
                runs_tasks=self.runs_tasks,
            )
        await host.started()
        self._ready = host

    def _check_alone(self) -> None:
        """Refuse a second app on one backend: each would run the tasks of the other with its own agent.

        Raises:
            BackendUnusable: A running app of this process has the backend.
        """
        other = None if self._backend not in _running else _running[self._backend]()
        if other is not None and other is not self and other.alive:
            raise BackendUnusable(
                'Another running app of this process uses this backend: give each app a backend of its own.'
            )
        _running[self._backend] = ref(self)

    @property
    def alive(self) -> bool:
        """True if an open event loop has a running host."""
        return any(not (host.over or loop.is_closed()) for loop, host in list(self._hosts.items()))

    async def start(self) -> None:
        """Start a lifespan. An agent that cannot be entered, for want of a provider's key, still serves its card.

        Raises:
            BackendUnusable: The store needs a repair before serving makes sense.
            RuntimeError: The server runs another event loop than asyncio's, such as Hypercorn with trio.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError('The app needs asyncio: start Hypercorn with --worker-class asyncio.') from None
        self._context = copy_context()
        try:
            await self.ensure()
        except BackendUnusable:
            raise
        except Exception:  # whatever an agent's toolsets raise
            logger.exception('The agent cannot be entered. The server serves the card, and tries again in a moment.')

    async def stop(self) -> None:
        """End a lifespan: drain, then leave the agent."""
        loop = asyncio.get_running_loop()
        self.drain(loop)
        try:
            if (host := self._hosts.get(loop)) is not None:  # a lifespan within may have stopped the host
                await host.stop()
        finally:
            self._hosts.pop(loop, None)  # only now: until then, requests find this host and start no other
            self._ready = None
            self._draining = False
            self._context = Context()
            # Some streams of this loop may still be open. The next lifespan accepts streams again.
            self.streams.closing = not self._hosts

    def drain_everywhere(self) -> None:
        """Begin to drain in every loop, from any thread."""
        for loop in list(self._hosts):
            if not loop.is_closed():
                loop.call_soon_threadsafe(self.drain, loop)

    @contextmanager
    def _signals(self) -> Generator[None]:
        """Drain at SIGTERM and SIGINT, before the server waits for connections, which may wait for tasks.

        The server's own handlers are called after the drain begins. Without handlers, the signal ends the process as
        before. Only the main thread can have handlers. In other threads, the end of a lifespan starts the drain.
        """
        loop = asyncio.get_running_loop()
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        shutdown = Shutdown(loop, self.drain_delay, announce=self._leave, drain=partial(self.drain, loop))
        restore = [
            (number, before, _install(number, shutdown.before(before)))
            for number in _SIGNALS
            if _is_servers(before := signal.getsignal(number)) and callable(before)
        ]
        try:
            yield
        finally:
            self._leaving = False
            for number, before, ours in restore:
                if signal.getsignal(number) is ours:
                    signal.signal(number, before)

    def _leave(self) -> None:
        self._leaving = True

    def drain(self, loop: asyncio.AbstractEventLoop, at_once: bool = False) -> None:
        """Start to drain the host of this loop, or end the drain at once.

        Call in the loop; the end of its lifespan waits for the drain.
        """
        host = self._hosts.get(loop)
        if (trying := self._trying.pop(loop, None)) is not None:
            trying.cancel()
        if host is not None:
            self._draining = True
            # Streams of running tasks go on until the drain has ended the tasks or handed them back.
            host.drain(0.0 if at_once else self.drain_grace, self._beside, self.streams.close)
            self.streams.close()


def _install(number: int, handler: Handler) -> Handler:
    signal.signal(number, handler)
    return handler


def _is_servers(handler: object) -> bool:
    """Return True if a signal handler may be a server's: neither Python's own nor the one of `asyncio.run`."""
    inner = getattr(handler, 'func', None)  # asyncio.Runner installs a partial of one of its methods
    of_asyncio = isinstance(getattr(inner, '__self__', None), asyncio.Runner)
    return handler is not signal.default_int_handler and not of_asyncio


# --- the host of one event loop ---------------------------------------------------------------------------------------
# Owns the agent, the worker and the drain, beside the requests.

Component: TypeAlias = Literal[
    'ok', 'idle', 'off', 'degraded', 'paused', 'starting', 'reconnecting', 'failed', 'read-only', 'stopped', 'draining'
]
"""State of a part of the app. `idle` starts with the first request, `off` is left to another process, `degraded` still
works, `paused` is a queue that an operator has paused. In all other states, send traffic elsewhere."""


_RUNS_END = 30.0
"""Seconds for the runs to end before the agent is entered anew. A connection in use is kept, and lost again."""


async def _both(one: Awaitable[None], other: Awaitable[None]) -> None:
    await asyncio.gather(one, other)


class Host:
    """The worker of one loop, and the loop's hold on the agent. Ends with the loop, in bounded time."""

    def __init__(
        self,
        make_worker: Callable[[], Worker],
        *,
        agent: AbstractAsyncContextManager[Any],
        connections: Connections,
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
                            logger.warning('The agent still cannot be entered, and the server tries again: %r', error)
                            await self._sleep(next(pauses))
                            continue
                        logger.debug('A lost connection could not be closed in order.', exc_info=True)
                    pauses, self._held = self._pauses(), False
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
            self._renew(False)

    async def _hold(self) -> None:
        """Hold the agent until the host ends; or until a connection is lost, and no run holds the agent any more."""
        async with self._agent:
            self._held = True
            self._connections.entered()
            if self._entered.done():
                logger.info('The agent was entered anew, and its tasks go on.')
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
                    'The connection of %s is lost; the agent is entered anew after its runs have ended.', lost
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
                self.worker.pause(renewing)

    async def _sleep(self, seconds: float) -> None:
        """Wait, until the host ends at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def doubt(self) -> None:
        """Look whether the connections of the agent still work: a run had trouble with them, or with something else."""
        if self._held and not self._connections.renewing:
            self._connections.in_doubt = True
            self._wake.set()

    def agent_health(self) -> Component:
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

    def worker_health(self) -> Component:
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


# --- the shutdown of apps at SIGTERM or SIGINT, before the server's own handler ---------------------------------------

Handler: TypeAlias = Callable[[int, FrameType | None], Any]


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

    def before(self, handler: Handler) -> Handler:
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
        """Announce the shutdown of this app and of the apps behind its handler."""
        behind = self._before.begin() if isinstance(self._before, _Chained) else 0.0
        return max(self._shutdown.begin(), behind)

    def _go_late(self, signum: int) -> None:
        if not self._shutdown.gone:
            self._go(signum, None)

    def _go(self, signum: int, frame: FrameType | None) -> None:
        self._shutdown.end()
        self._before(signum, frame)
