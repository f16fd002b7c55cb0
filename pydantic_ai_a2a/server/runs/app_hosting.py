"""The hosts of an app, one for each event loop: started at first use, drained at signals, stopped by lifespans.

An app can be made at import, before a fork, and without a running loop. So each event loop gets its host when a
lifespan or a request first needs the agent (`ensure`). Requests wait for the start of the one host of their loop.

If the start fails, requests get an error. A lifespan goes on all the same, unless the store needs a repair. A task of
the loop tries again with pauses (`_try_again`), because a server that is not ready may get no further requests.

A drain begins after a signal, or at the end of a lifespan. From then on, no new task is accepted. The end of the
lifespan waits for the drain, and only then forgets the host: until then, no request starts another one. A later
lifespan starts anew.

Several loops may run in threads of their own. Each changes its own entries of `_hosts` and `_trying`, and removes those
of closed loops. So a loop over the entries takes a copy.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import Context, copy_context
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, ref

from pydantic_ai.exceptions import UserError

from ...backoff import backoff
from ...errors import AgentUnavailable, AgentUnusable, BackendUnusable
from ...settings.app_settings import Settings
from ...telemetry.metrics import metrics
from ..agent.mcp_connections import MCPConnections
from ..service.event_streams import OpenStreams
from ..service.slot_offers import Offer
from ..store.ports import Backend
from .loop_host import ComponentState, Host
from .presence import present
from .shutdown import Shutdown, SignalHandler
from .worker import Worker

logger = logging.getLogger('pydantic_ai_a2a')

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
"""The first and the longest pause before a further attempt to enter an agent, in seconds."""

_VARIABLE = 'PYDANTIC_AI_A2A_WORKER'
"""Environment variable that is `off` in server processes without a worker, also under a server's own command."""

_running: WeakKeyDictionary[Backend, ref[Hosting]] = WeakKeyDictionary()
"""The `Hosting` that runs the tasks of each backend in this process."""


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
        connections: MCPConnections,
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
        self.runs_tasks = _has_worker()
        """True if hosts run tasks. Set to False before the first use, all tasks are left to other processes."""
        self.pauses: Callable[[], Iterator[float]] = partial(backoff, _FIRST_PAUSE, _LONGEST_PAUSE)
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
        for host in [host for loop, host in list(self._hosts.items()) if loop is running]:
            host.doubt()

    @property
    def begun(self) -> bool:
        """True if the running loop has a host, started or failed."""
        return asyncio.get_running_loop() in self._hosts

    def components(self) -> dict[str, ComponentState]:
        """Return the states of the parts of the running loop."""
        host = self._hosts.get(asyncio.get_running_loop())
        if self._leaving or self._draining:
            server: ComponentState = 'draining'
        else:
            server = 'idle' if host is None else 'ok'
        if host is None:
            part: ComponentState = 'idle' if self.runs_tasks else 'off'
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
                logger.warning('The agent still cannot be started, and the server tries again: %r', error)

    async def _ensure(self) -> None:
        loop = asyncio.get_running_loop()
        host = self._hosts.get(loop)
        if host is None or host.over:
            for closed in [loop for loop in list(self._hosts) if loop.is_closed()]:
                self._hosts.pop(closed, None)
                self._trying.pop(closed, None)
            if not self._hosts:
                self._draining = self.streams.closing = False
            if self.runs_tasks:
                self._check_alone()
            elif not self.durable and not _has_worker():
                raise BackendUnusable(
                    f'{_VARIABLE}=off leaves the tasks to other processes, which cannot see tasks in memory:'
                    " use backend='sqlite:///agent.db', or a PostgreSQL database."
                )
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
        except Exception as error:  # whatever an agent's toolsets raise
            text = 'The agent cannot be started: %r. The server serves only its card, and tries again in a moment.'
            logger.exception(text, error)

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


def _has_worker() -> bool:
    value = os.environ.get(_VARIABLE, 'on')
    if value not in ('on', 'off'):
        raise ValueError(f'The environment variable {_VARIABLE} takes on or off, not {value!r}.')
    return value == 'on'


def _install(number: int, handler: SignalHandler) -> SignalHandler:
    signal.signal(number, handler)
    return handler


def _is_servers(handler: object) -> bool:
    """Return True if a signal handler may be a server's: neither Python's own nor the one of `asyncio.run`."""
    inner = getattr(handler, 'func', None)  # asyncio.Runner installs a partial of one of its methods
    of_asyncio = isinstance(getattr(inner, '__self__', None), asyncio.Runner)
    return handler is not signal.default_int_handler and not of_asyncio
