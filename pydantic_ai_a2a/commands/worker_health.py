"""The health endpoints of a worker."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Host, Match, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..server.app.listening_sockets import listen, url_of
from ..server.app.uvicorn_server import behind_host_check
from ..server.http.catalogue import Agents
from ..server.http.health import LIVE_PATH, READY_PATH, Live, Ready
from ..server.http.joined_health import ReadyTogether
from .terminal import say

_NOT_FOUND = PlainTextResponse('Not Found', 404)


@asynccontextmanager
async def health_server(app: ASGIApp, host: str, port: int) -> AsyncGenerator[None]:
    """Serve only the health routes of an app, also while its lifespan begins and ends."""
    import uvicorn  # noqa: PLC0415 - takes as long to import as the whole package, and most workers need none

    up = asyncio.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            up.set()

        @contextmanager
        def capture_signals(self) -> Generator[None]:
            yield  # the worker handles the signals, and serves health until its end

    with listen(host, port) as listener:
        options: Any = {'lifespan': 'off', 'ws': 'none', 'log_level': 'warning', 'timeout_graceful_shutdown': 1}
        server = Server(uvicorn.Config(behind_host_check(HealthOnly(app), listener), **options))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await up.wait()
        say(f'the health endpoints listen on {url_of(listener)}')
        try:
            yield
        finally:
            server.should_exit = True
            await asyncio.wait([serving])


class HealthOnly:
    """An ASGI app with only the health routes of an app, and with those of all its agents together."""

    def __init__(self, app: ASGIApp) -> None:
        agents = dict(_agents(app))
        if agents.keys() != {''}:  # an agent at the root answers at the same paths itself
            together = {LIVE_PATH: Live(), READY_PATH: ReadyTogether(Agents(agents, {}))}
            routes = [Route(path, health, methods=['GET', 'HEAD']) for path, health in together.items()]
            app = Starlette(routes=[*routes, Mount('/', app)])
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward requests for a health route."""
        health = _tells_health(self._app, scope)
        await (self._app if health else _NOT_FOUND)(scope, receive, send)


def _agents(app: object, place: str = '') -> Iterator[tuple[str, Ready]]:
    """Yield the readiness of each agent in an app, by the path, or the host and the path, of the agent."""
    for route in getattr(routed_app(app), 'routes', ()):
        if isinstance(ready := getattr(route, 'endpoint', None), Ready):
            yield place, ready
        else:
            below = f'//{route.host}' if isinstance(route, Host) else getattr(route, 'path', '')
            yield from _agents(getattr(route, 'app', None), place + below)


def _tells_health(app: object, scope: Scope) -> bool:
    """Return True if a request goes to a health route, by the routes of the app and of mounted apps."""
    for route in getattr(routed_app(app), 'routes', ()):
        match, child = route.matches(scope)
        if match is Match.FULL:
            endpoint = child['endpoint']
            return isinstance(endpoint, Live | Ready | ReadyTogether) or _tells_health(endpoint, {**scope, **child})
    return False


def routed_app(app: Any) -> Any:
    """Return the app with routes inside its wrappers; None without routes."""
    while app is not None and not hasattr(app, 'routes'):
        app = getattr(app, 'app', None)
    return app
