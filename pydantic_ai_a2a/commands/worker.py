"""The commands `serve` and `worker`, which run until a signal ends them."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from runpy import run_module
from types import FrameType
from typing import Any

import click
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Host, Match, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..app.app import A2AApp
from ..app.build import check_callers
from ..app.serve import answering, frozen, run
from ..app.serve_grpc import grpc_agent_of, listen, url_of
from ..http.allowed_hosts import AllowedHosts
from ..http.catalogue import Agents, ReadyTogether
from ..http.health import LIVE_PATH, READY_PATH, Live, Ready
from .named_app import apart, find, place_options
from .terminal import say

_NOT_FOUND = PlainTextResponse('Not Found', 404)
_PORT = click.IntRange(0, 65535)


@click.command()
@click.argument('target', metavar='MODULE:NAME')
@place_options
@click.option('--host', default='127.0.0.1', show_default=True, metavar='HOST', help='Address to listen on.')
@click.option('--port', type=_PORT, default=8000, show_default=True, metavar='PORT', help='Port to listen on.')
@click.option('--grpc-port', type=_PORT, metavar='PORT', help='Also serve gRPC on this port.')
@click.option('--allowed-host', multiple=True, metavar='NAME', help='Also answer for this host name. Can be repeated.')
@click.option('--no-worker', is_flag=True, help='Leave all tasks to worker processes.')
@click.option('--auth', metavar='MODULE:NAME', help='Authenticator for the callers of an agent, such as a BearerAuth.')
@click.option('--anonymous', is_flag=True, help='Serve without authentication, also on a public address.')
@click.option('--reload', is_flag=True, help='Start again after each change of a Python file, for development.')
def serve(
    *,
    target: str,
    app_dir: str,
    backend: str | None,
    host: str,
    port: int,
    grpc_port: int | None,
    allowed_host: Sequence[str],
    no_worker: bool,
    auth: str | None,
    anonymous: bool,
    reload: bool,
) -> int:
    """Serve an app or an agent over HTTP and gRPC.

    MODULE:NAME is the app or the agent, such as joker:agent; joker alone means joker:app. The server ends at SIGINT or
    SIGTERM.
    """
    if reload:
        return _reload(target, app_dir)
    if auth is not None and anonymous:
        raise click.UsageError('--auth and --anonymous cannot be combined: give one of them.')
    app = find(target, app_dir, backend, auth)
    if no_worker:
        for served in apart(app, target):
            served.hosting.runs_tasks = False
    names = allowed_host or None
    try:
        hosts = None if names is None else AllowedHosts(names)
        check_callers(app, host, hosts, anonymous, name=target, say='--anonymous, or --auth for an agent')
        if grpc_port is not None:
            grpc_agent_of(app)
    except (ImportError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    run(app, host=host, port=port, grpc_port=grpc_port, allowed_hosts=names, anonymous=anonymous)
    return 0


def _reload(target: str, app_dir: str) -> int:
    """Serve in a process that uvicorn starts again after each change of a Python file."""
    import uvicorn  # noqa: PLC0415 - as in `run`
    from uvicorn.supervisors import ChangeReload  # noqa: PLC0415

    config = uvicorn.Config(target, reload=True, reload_dirs=app_dir or '.')
    arguments = [argument for argument in sys.argv[1:] if argument != '--reload']
    ChangeReload(config, target=partial(_command, arguments), sockets=[]).run()
    return 0


def _command(arguments: Sequence[str], sockets: object) -> None:
    """Run the command in a new process."""
    sys.argv[1:] = arguments
    run_module('pydantic_ai_a2a', run_name='__main__')


@click.command()
@click.argument('target', metavar='MODULE:NAME')
@place_options
@click.option('--engine', is_flag=True, help='Run the workflows of the engine of the app, and no tasks.')
@click.option('--health-port', type=_PORT, metavar='PORT', help='Answer /health/live and /health/ready on this port.')
@click.option(
    '--health-host', default='127.0.0.1', show_default=True, metavar='HOST', help='Address to listen on for health.'
)
def worker(
    *, target: str, app_dir: str, backend: str | None, engine: bool, health_host: str, health_port: int | None
) -> int:
    """Run the tasks of an app that other processes serve.

    MODULE:NAME is the app, such as joker:app; joker alone means joker:app. The worker ends at SIGINT or SIGTERM.
    """
    app = find(target, app_dir, backend)
    apps = apart(app, target)
    for served in apps:
        served.hosting.drain_delay = 0.0  # a worker has no traffic to redirect
        served.hosting.runs_tasks = not engine
        if engine and (served.at_engine is None or served.at_engine.engine.in_server):
            raise click.UsageError(
                f'{target} has no engine with workers of its own, as to_a2a(engine=Temporal(…)) has.'
            )
    code = 1
    with frozen(), suppress(asyncio.CancelledError):
        code = asyncio.run(_work(app, apps, target, health_host, health_port, engine=engine))
    return code


async def _work(app: Any, apps: Sequence[A2AApp], target: str, host: str, port: int | None, *, engine: bool) -> int:
    """Run tasks until a signal, and return the exit code; a second signal does not wait for the running tasks."""
    async with AsyncExitStack() as stack:
        stopped = stack.enter_context(_signals())
        if port is not None:
            await stack.enter_async_context(_health_server(app, host, port))
        await stack.enter_async_context(_working(app, apps))
        for served in apps if engine else ():
            await stack.enter_async_context(_engine_worker(served))
        say(f'the worker runs the {"workflows" if engine else "tasks"} of {target}')
        await stopped.wait()
        say('the worker stops')
    return 0


@asynccontextmanager
async def _engine_worker(served: A2AApp) -> AsyncGenerator[None]:
    """Run the workflows of an app.

    Raises:
        ClickException: The worker of the engine has failed, which cancels the current task.
    """
    assert served.at_engine is not None, 'the command has checked it'
    worker = await served.at_engine.engine.worker(served)
    try:
        async with worker:
            yield
    except Exception as error:  # also of plugins of the user
        raise click.ClickException(f'the worker of the engine has failed: {error}') from error


@asynccontextmanager
async def _working(app: Any, apps: Sequence[A2AApp]) -> AsyncGenerator[None]:
    """Start the workers of all apps: those in the outer app's lifespan, and those that a server starts at a request."""
    async with AsyncExitStack() as stack:
        outer = _inside(app)
        await stack.enter_async_context(outer.router.lifespan_context(outer))
        for served in apps:
            if not served.hosting.begun:
                await stack.enter_async_context(served.router.lifespan_context(served))
            await served.hosting.ensure()  # a server would try again later to enter its agent
        yield


@contextmanager
def _signals() -> Generator[asyncio.Event]:
    """Yield an event that the first SIGTERM or SIGINT sets; the next signal cancels the task."""
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
        server = Server(uvicorn.Config(answering(HealthOnly(app), listener), **options))
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
    for route in getattr(_inside(app), 'routes', ()):
        if isinstance(ready := getattr(route, 'endpoint', None), Ready):
            yield place, ready
        else:
            below = f'//{route.host}' if isinstance(route, Host) else getattr(route, 'path', '')
            yield from _agents(getattr(route, 'app', None), place + below)


def _tells_health(app: object, scope: Scope) -> bool:
    """Return True if a request goes to a health route, by the routes of the app and of mounted apps."""
    for route in getattr(_inside(app), 'routes', ()):
        match, child = route.matches(scope)
        if match is Match.FULL:
            endpoint = child['endpoint']
            return isinstance(endpoint, Live | Ready | ReadyTogether) or _tells_health(endpoint, {**scope, **child})
    return False


def _inside(app: Any) -> Any:
    """Return the app with routes inside its wrappers; None without routes."""
    while app is not None and not hasattr(app, 'routes'):
        app = getattr(app, 'app', None)
    return app
