"""The command `pydantic-ai-a2a`: finds an app or an agent by name, and serves it or runs its tasks. Knows no operation.

Ends with 0 when it has done its work, 1 if it could not begin, 2 for a command that makes no sense; a server that is
ended by SIGTERM ends by that signal, as uvicorn does.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from importlib import import_module
from types import FrameType, ModuleType
from typing import Any

from pydantic_ai.agent import AbstractAgent
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import TypeIs

from .app import A2AApp, to_a2a
from .bindings.health import LIVE_PATH, READY_PATH
from .errors import BackendUnusable
from .serve import CannotListen, listen, run, served, url_of

__all__ = ('main',)

_NOT_FOUND = PlainTextResponse('Not Found', 404)
_SHARED = "to_a2a(agent, backend='sqlite:///agent.db')"


class _Refused(Exception):
    """A command that makes no sense; says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; the exit code.

    Raises:
        SystemExit: The command line makes no sense (2), asks for help (0), or uvicorn could not serve the app.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        return options.command(options)
    except _Refused as refused:
        parser.exit(2, f'{parser.prog}: error: {refused}\n')
    except (BackendUnusable, CannotListen) as error:
        parser.exit(1, f'{parser.prog}: error: {error}\n')


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog='pydantic-ai-a2a', description='Serve Pydantic AI agents over A2A.')
    commands = parser.add_subparsers(required=True, metavar='COMMAND')
    serve = commands.add_parser('serve', help='serve an app or an agent over HTTP', description=_serve.__doc__)
    _add_target(serve)
    serve.add_argument('--host', default='127.0.0.1', help='address to listen on (default: %(default)s)')
    serve.add_argument('--port', type=int, default=8000, help='port to listen on (default: %(default)s)')
    serve.add_argument('--no-worker', action='store_true', help='run no tasks here: worker processes do')
    serve.set_defaults(command=_serve)
    worker = commands.add_parser('worker', help='run the tasks of an app, without HTTP', description=_worker.__doc__)
    _add_target(worker)
    worker.add_argument('--health-port', type=int, metavar='PORT', help='answer /health/live and /health/ready here')
    worker.add_argument(
        '--health-host', default='127.0.0.1', metavar='HOST', help='address for that (default: %(default)s)'
    )
    worker.set_defaults(command=_worker)
    return parser


def _add_target(parser: ArgumentParser) -> None:
    parser.add_argument('target', metavar='MODULE:NAME', help='where the app or the agent is, such as joker:app')
    parser.add_argument('--app-dir', default='', metavar='DIR', help='where the module is (default: here)')
    parser.add_argument('--backend', metavar='URL', help='where an agent keeps its tasks, such as sqlite:///agent.db')


# --- what is served ---------------------------------------------------------------------------------------------------


def _find(options: Namespace) -> ASGIApp:
    """The app that the command line names; an agent is made into one."""
    sys.path.insert(0, options.app_dir)
    module_name, _, name = options.target.partition(':')
    if not module_name or not name:
        raise _Refused(f'{options.target!r} does not name an app: write MODULE:NAME, such as joker:app.')
    found: Any = _import(module_name)
    for attribute in name.split('.'):
        if not hasattr(found, attribute):
            raise _Refused(f'The module {module_name!r} has no {name!r}.{_suggestion(module_name)}')
        found = getattr(found, attribute)
    return _app(found, options)


def _import(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f'{name}.'.startswith(f'{error.name}.'):
            raise  # the module is there; one that it imports is not
        raise _Refused(f'There is no module {error.name!r}, neither in the directory nor on the Python path.') from None


def _suggestion(module_name: str) -> str:
    values = vars(sys.modules[module_name])
    names = [repr(name) for name, value in values.items() if isinstance(value, A2AApp | AbstractAgent)]
    return f' It has {", ".join(names)}.' if names else ''


def _app(found: Any, options: Namespace) -> ASGIApp:
    app = found
    if _is_agent(found):
        return _served_agent(found, options.backend or 'memory')
    if not callable(found):
        raise _Refused(f'{options.target} is neither an app nor an agent, but of the type {type(found).__name__}.')
    if options.backend is not None:
        raise _Refused(f'--backend is for an agent; the app {options.target} has its backend already.')
    return app


def _is_agent(found: object) -> TypeIs[AbstractAgent[Any, Any]]:
    return isinstance(found, AbstractAgent)


def _served_agent(agent: AbstractAgent[Any, Any], backend: str) -> A2AApp:
    try:
        return to_a2a(agent, backend=backend)
    except ValueError as error:  # that of --backend, since nothing else is given
        raise _Refused(str(error)) from None


def _apart(app: ASGIApp, target: str) -> list[A2AApp]:
    """The A2A apps in an app, if their tasks can be run by other processes than serve them."""
    apps = list(served(app))
    if not apps:
        raise _Refused(f'{target} is no app that to_a2a() made, and none is mounted in it.')
    if not all(each.hosting.durable for each in apps):
        raise _Refused(
            f'{target} keeps its tasks in the memory of one process, which has to serve and run them.'
            f' Give it a backend that processes can share, such as {_SHARED}.'
        )
    return apps


# --- the commands -----------------------------------------------------------------------------------------------------


def _serve(options: Namespace) -> int:
    """Serve an app or an agent until SIGINT or SIGTERM."""
    app = _find(options)
    if options.no_worker:
        for each in _apart(app, options.target):
            each.hosting.runs_tasks = False
    run(app, host=options.host, port=options.port)
    return 0


def _worker(options: Namespace) -> int:
    """Run the tasks of an app that other processes serve, until SIGINT or SIGTERM."""
    app = _find(options)
    apps = _apart(app, options.target)
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
        _say(f'the worker runs the tasks of {options.target}')
        await stopped.wait()
        _say('the worker stops')


@asynccontextmanager
async def _working(app: Any, apps: Sequence[A2AApp]) -> AsyncGenerator[None]:
    """Have all the apps' workers: those that the outer app starts, and those that would start with a request."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(app.router.lifespan_context(app))
        for each in apps:
            if not each.hosting.begun:
                await stack.enter_async_context(each.router.lifespan_context(each))
            await each.hosting.ensure()  # a server would leave an agent that cannot be entered to its next request
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
        server = Server(uvicorn.Config(_HealthOnly(app), **options))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await up.wait()
        _say(f'health is told on {url_of(listener)}')
        try:
            yield
        finally:
            server.should_exit = True
            await asyncio.wait([serving])


class _HealthOnly:
    """An app of which nothing but health can be reached."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        health = scope['path'].endswith((LIVE_PATH, READY_PATH))
        await (self._app if health else _NOT_FOUND)(scope, receive, send)


def _say(text: str) -> None:
    sys.stderr.write(f'pydantic-ai-a2a: {text}\n')
    sys.stderr.flush()
