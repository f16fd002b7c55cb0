"""The commands `serve` and `worker`: what runs until a signal ends it. Knows no operation."""

from __future__ import annotations

import asyncio
import signal
import socket
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from types import FrameType
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from ..app import A2AApp
from ..bindings.browser import AllowedHosts
from ..bindings.health import Live, Ready
from ..serve import answering, check_callers, listen, run, url_of
from .target import Refused, add_target, apart, find, say

__all__ = ('HealthOnly', 'add_serve', 'add_worker', 'serve', 'worker')

_NOT_FOUND = PlainTextResponse('Not Found', 404)


def add_serve(parser: ArgumentParser) -> None:
    """Add the arguments of `serve`."""
    add_target(parser)
    parser.add_argument('--host', default='127.0.0.1', help='address to listen on (default: %(default)s)')
    parser.add_argument('--port', type=int, default=8000, help='port to listen on (default: %(default)s)')
    parser.add_argument(
        '--allowed-host',
        action='append',
        type=host_name,
        metavar='NAME',
        help='answer for a host of this name, too; may be given several times',
    )
    parser.add_argument('--no-worker', action='store_true', help='run no tasks here: worker processes do')
    callers = parser.add_mutually_exclusive_group()
    callers.add_argument('--auth', metavar='MODULE:NAME', help="an agent's callers: where a BearerAuth or the like is")
    callers.add_argument('--anonymous', action='store_true', help='let everybody call, on a public address, too')


def add_worker(parser: ArgumentParser) -> None:
    """Add the arguments of `worker`."""
    add_target(parser)
    parser.add_argument('--health-port', type=int, metavar='PORT', help='answer /health/live and /health/ready here')
    parser.add_argument(
        '--health-host', default='127.0.0.1', metavar='HOST', help='address for that (default: %(default)s)'
    )


def host_name(text: str) -> str:
    """The name of a host, or ValueError."""
    return AllowedHosts([text]).names[0]


def serve(options: Namespace) -> int:
    """Serve an app or an agent until SIGINT or SIGTERM."""
    app = find(options)
    if options.no_worker:
        for each in apart(app, options.target):
            each.hosting.runs_tasks = False
    _check_callers(app, options)
    run(
        app,
        host=options.host,
        port=options.port,
        allowed_hosts=options.allowed_host,
        anonymous=options.anonymous,
    )
    return 0


def _check_callers(app: ASGIApp, options: Namespace) -> None:
    """See that everybody may call only where that is meant."""
    said = '--anonymous, or --auth for an agent'
    try:
        hosts = None if options.allowed_host is None else AllowedHosts(options.allowed_host)
        check_callers(app, options.host, hosts, options.anonymous, name=options.target, say=said)
    except ValueError as error:
        raise Refused(str(error)) from None


def worker(options: Namespace) -> int:
    """Run the tasks of an app that other processes serve, until SIGINT or SIGTERM."""
    app = find(options)
    apps = apart(app, options.target)
    for each in apps:
        each.hosting.drain_delay = 0.0  # there is no traffic to send elsewhere
    try:
        asyncio.run(_work(app, apps, options))
    except asyncio.CancelledError:
        return 1
    return 0


async def _work(app: Any, apps: Sequence[A2AApp], options: Namespace) -> None:
    """Run tasks until a signal comes; the second one does not wait for those that run."""
    async with AsyncExitStack() as stack:
        stopped = stack.enter_context(_signals())
        if options.health_port is not None:
            await stack.enter_async_context(_health_server(app, options.health_host, options.health_port))
        await stack.enter_async_context(_working(app, apps))
        say(f'the worker runs the tasks of {options.target}')
        await stopped.wait()
        say('the worker stops')


@asynccontextmanager
async def _working(app: Any, apps: Sequence[A2AApp]) -> AsyncGenerator[None]:
    """Have all the apps' workers: those that the outer app starts, and those that would start with a request."""
    async with AsyncExitStack() as stack:
        outer = _inside(app)
        await stack.enter_async_context(outer.router.lifespan_context(outer))
        for each in apps:
            if not each.hosting.begun:
                await stack.enter_async_context(each.router.lifespan_context(each))
            await each.hosting.ensure()  # a server would try again later to enter its agent
        yield


@contextmanager
def _signals() -> Generator[asyncio.Event]:
    """What the first SIGTERM or SIGINT sets; the next one cancels the task."""
    loop, task, stopped = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()
    assert task is not None

    def handle(signum: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(task.cancel if stopped.is_set() else stopped.set)

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@asynccontextmanager
async def _health_server(app: ASGIApp, host: str, port: int) -> AsyncGenerator[None]:
    """Serve the health routes of an app, and nothing else of it, also while its lifespan begins and ends."""
    import uvicorn  # noqa: PLC0415 - takes as long to import as the whole package, and most workers need none

    up = asyncio.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            up.set()

        @contextmanager
        def capture_signals(self) -> Generator[None]:
            yield  # the worker's signals end the worker; its health is told until then

    with listen(host, port) as listener:
        options: Any = {'lifespan': 'off', 'ws': 'none', 'log_level': 'warning', 'timeout_graceful_shutdown': 1}
        server = Server(uvicorn.Config(answering(HealthOnly(app), listener), **options))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await up.wait()
        say(f'health is told on {url_of(listener)}')
        try:
            yield
        finally:
            server.should_exit = True
            await asyncio.wait([serving])


class HealthOnly:
    """An app of which nothing but health can be reached, as an ASGI app."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is for a route of health."""
        health = _tells_health(self._app, scope)
        await (self._app if health else _NOT_FOUND)(scope, receive, send)


def _tells_health(app: object, scope: Scope) -> bool:
    """Whether a route of health is what a request comes to, by the routes of the app and of what is mounted in it."""
    for route in getattr(_inside(app), 'routes', ()):
        match, child = route.matches(scope)
        if match is Match.FULL:
            endpoint = child['endpoint']
            return isinstance(endpoint, Live | Ready) or _tells_health(endpoint, {**scope, **child})
    return False


def _inside(app: Any) -> Any:
    """What has routes, in whatever it is wrapped; None if nothing has."""
    while app is not None and not hasattr(app, 'routes'):
        app = getattr(app, 'app', None)
    return app
