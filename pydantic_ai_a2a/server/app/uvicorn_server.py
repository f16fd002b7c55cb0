"""uvicorn as the server of an app: its defaults, the check of hosts, gRPC beside HTTP, and what it logs."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from ipaddress import ip_address
from math import ceil
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Scope

from ..http.allowed_hosts import AllowedHosts, HostCheck
from ..http.asgi_requests import redact as redact_query
from .listening_sockets import url_of
from .playground import playground_paths
from .process_count import is_first_process
from .serve_grpc import GrpcState
from .served_apps import served_apps

if TYPE_CHECKING:
    import uvicorn


logger = logging.getLogger('uvicorn.error')

_KERNEL_GRACE = 10_000
"""Extra milliseconds of the kernel's time limit for a client that does not read, beyond the app's limit."""
_CUT_OFF = 5
"""Seconds after the grace period of the apps until connections of clients that do not read are cut."""
_SPARSE = 'The card of %s has no %s to tell other agents what to ask for: to_a2a(agent, description=..., skills=[...])'


def uvicorn_server(
    app: ASGIApp,
    listener: socket.socket,
    hosts: AllowedHosts | None,
    options: dict[str, Any],
    *,
    grpc: AbstractAsyncContextManager[GrpcState] | None = None,
) -> tuple[uvicorn.Server, threading.Event]:
    """Return a uvicorn server, and the event that is set once the server has started or failed to start."""
    import uvicorn  # noqa: PLC0415 - takes as long to import as the whole package, which other servers serve as well

    settled = threading.Event()
    beside = AsyncExitStack()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            try:
                await super().startup(sockets)
                if grpc is not None and self.started:
                    await self._start(grpc)
                if is_first_process():
                    _log_start(app, sockets or (), tls=config.is_ssl)
            finally:
                settled.set()

        async def _start(self, grpc: AbstractAsyncContextManager[GrpcState]) -> None:
            try:
                state = await beside.enter_async_context(grpc)
            except BaseException:
                await self.shutdown(sockets=None)
                raise
            logger.info('gRPC running on %s', state['grpc_address'])

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            for listening in self.servers:
                listening.close()  # else clients could connect over HTTP until gRPC has drained
            try:
                await beside.aclose()
            finally:
                await super().shutdown(sockets)

    apps = list(served_apps(app))
    for agent in apps:
        agent.playground_logged = True  # in a moment, with the host and the port
    _end_unread(listener, max((agent.serving.limits.answer_time for agent in apps), default=0.0))
    grace = max((agent.hosting.drain_grace for agent in apps), default=0.0)
    # httptools drops the body of a request with `Upgrade: h2c`, which Java's clients send by default.
    defaults: dict[str, Any] = {'timeout_graceful_shutdown': ceil(grace) + _CUT_OFF, 'http': 'h11'}
    config = uvicorn.Config(behind_host_check(app, listener, hosts), **(defaults | options))
    return Server(config), settled


def _log_start(app: ASGIApp, sockets: Sequence[socket.socket], *, tls: bool) -> None:
    for listening in sockets:  # uvicorn logs no URL for sockets that the caller has opened
        url = url_of(listening, tls=tls)
        logger.info('Uvicorn running on %s (Press CTRL+C to quit)', url)
        for path in playground_paths(app):
            logger.info('Playground: %s%s', url, path.removeprefix('/'))
    for card in (agent.card for agent in served_apps(app) if agent.card.missing):
        logger.info(_SPARSE, card.name, ' or '.join(card.missing))


def behind_host_check(app: ASGIApp, listener: socket.socket, hosts: AllowedHosts | None = None) -> ASGIApp:
    """Return the app behind a check of hosts: web pages in a browser on this machine can reach a local address."""
    if hosts is None and not ip_address(listener.getsockname()[0]).is_loopback:
        return app
    apps = list(served_apps(app))
    allowed = (hosts, *(agent.allowed_hosts for agent in apps))
    names = AllowedHosts(name for group in allowed if group is not None for name in group.names)

    def redact(scope: Scope) -> None:
        for agent in apps:
            redact_query(scope, agent.guard)

    return HostCheck(app, names, redact)


def run_server(server: uvicorn.Server, listener: socket.socket) -> None:
    """Run a server as `uvicorn.Server.run` does.

    That method calls `asyncio.run` with a `loop_factory`. After `nest_asyncio.apply()`, as in many notebooks,
    `asyncio.run` takes none.
    """
    config: Any = server.config
    loop_factory = getattr(config, 'get_loop_factory', None) or config.setup_event_loop  # before uvicorn 0.36
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(server.serve(sockets=[listener]))


def _end_unread(listener: socket.socket, answer_time: float) -> None:
    """Let the kernel end connections whose client reads nothing.

    The app ends connections with an unread long answer within twice the answer time. The kernel waits a little longer,
    and also ends connections with short unread answers in the server's buffer. Only Linux has the option.
    Connections inherit the option from the listening socket.
    """
    with suppress(AttributeError):
        timeout = ceil(2000 * answer_time) + _KERNEL_GRACE
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout)
