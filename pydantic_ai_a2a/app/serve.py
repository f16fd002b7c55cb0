"""Serves an app without a server's command line: in the main thread of a script, or beside a notebook or a test."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from inspect import signature
from ipaddress import ip_address
from math import ceil
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from pydantic_ai.agent import AbstractAgent
from starlette.types import ASGIApp, Scope

from ..arguments import checked, suggestion
from ..auth.hosts import is_loopback
from ..http.browser import AllowedHosts, HostCheck
from ..http.request import redact as redact_query
from ..notebooks import server_html
from .app import A2AApp
from .build import to_a2a
from .playground import playground_paths

if TYPE_CHECKING:
    import uvicorn

__all__ = ('CannotListen', 'Server', 'answering', 'check_callers', 'listen', 'run', 'serve', 'served', 'url_of')

logger = logging.getLogger('uvicorn.error')

_GIVE_UP_TIME = 5.0
"""Time limit for the end of an app after a failed start, in seconds."""
_START_TIME = 30.0
"""Time limit for the start of an app, in seconds."""
_KERNEL_GRACE = 10_000
"""Extra milliseconds of the kernel's time limit for a client that does not read, beyond the app's limit."""
_CUT_OFF = 5
"""Seconds after the grace period of the apps until connections of clients that do not read are cut."""


class CannotListen(OSError):
    """The server cannot listen on the address: it is in use, not of this machine, or not allowed."""


@checked
def run(
    app: ASGIApp | AbstractAgent[Any, Any],
    *,
    host: str = '127.0.0.1',
    port: int = 8000,
    allowed_hosts: Collection[str] | None = None,
    anonymous: bool = False,
    **uvicorn_options: Any,
) -> None:
    """Serve until SIGINT or SIGTERM, in this thread.

    Args:
        app: An agent, served as `to_a2a(agent)`; an app of `to_a2a`; or an ASGI app with a mounted app of `to_a2a`.
        host: Address to listen on. Default: only programs on this machine can connect.
        port: Port to listen on.
        allowed_hosts: Host names to answer for, in addition to the names in `to_a2a`; `*` is every name. Default None:
            no more names on an address of this machine only, all names on other addresses. A proxy on this machine
            that passes on the name of the outer host needs the name here.
        anonymous: True to let everyone call an agent without `auth=` at a public address or under a public host name.
            Also needed for an app without a recognised agent: an agent is recognised if mounted, or wrapped in
            middleware with the attribute `app`.
        uvicorn_options: Further arguments of `uvicorn.Config`.

    Raises:
        RuntimeError: An event loop runs in this thread.
        TypeError: An argument has a wrong type, or uvicorn has no such option.
        ValueError: Everyone could call the agent, or the agent is not recognised, without `anonymous=True`.
    """
    _check_no_loop()
    _check_options('run', uvicorn_options)
    app = _app_of(app)
    hosts = None if allowed_hosts is None else AllowedHosts(allowed_hosts)
    check_callers(app, host, hosts, anonymous)
    listener = listen(host, port)
    with listener, suppress(KeyboardInterrupt):  # uvicorn raises it again after the shutdown
        server, _ = _uvicorn(app, listener, hosts, uvicorn_options)
        server.run(sockets=[listener])


@checked
def serve(
    app: ASGIApp | AbstractAgent[Any, Any],
    *,
    host: str = '127.0.0.1',
    port: int = 0,
    allowed_hosts: Collection[str] | None = None,
    anonymous: bool = False,
    **uvicorn_options: Any,
) -> Server:
    """Serve in a separate thread and event loop. Close the server, or use the server as a context manager.

    ```python
    from pydantic_ai import Agent

    from pydantic_ai_a2a import serve

    with serve(Agent('test')) as server:
        print(server.url)
    ```

    Args:
        app: An agent, or an app, as for `run`.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        allowed_hosts: As for `run`.
        anonymous: As for `run`.
        uvicorn_options: Further arguments of `uvicorn.Config`.

    Raises:
        ValueError: As for `run`.
        RuntimeError: The app did not start.
    """
    _check_options('serve', uvicorn_options)
    app = _app_of(app)
    hosts = None if allowed_hosts is None else AllowedHosts(allowed_hosts)
    check_callers(app, host, hosts, anonymous)
    return Server(app, listen(host, port), {'log_level': 'warning', **uvicorn_options}, hosts)


def _app_of(app: ASGIApp | AbstractAgent[Any, Any]) -> ASGIApp:
    return to_a2a(cast('AbstractAgent[Any, Any]', app)) if isinstance(app, AbstractAgent) else app


def _check_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuse an unknown uvicorn option before the server listens."""
    import uvicorn  # noqa: PLC0415 - see `_uvicorn`

    choices = {*signature(uvicorn.Config).parameters, *signature(run).parameters}
    if unknown := next((option for option in options if option not in choices), None):
        raise TypeError(f'{name}() takes no {unknown!r}.{suggestion(unknown, choices)}')


def _check_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        'run() cannot be called in a running event loop, such as that of a notebook or of an async function:'
        ' use serve(), which runs the server in a thread of its own.'
    )


def check_callers(
    app: ASGIApp,
    host: str,
    hosts: AllowedHosts | None,
    anonymous: bool,
    *,
    name: str = 'The app',
    say: str = 'anonymous=True',
) -> None:
    """Refuse to serve an app without authentication at a public address, unless the user asks for anonymous callers.

    Args:
        app: The app.
        host: The host to listen on.
        hosts: More names that the app answers for, such as the names of a proxy on this machine.
        anonymous: True if the user asks for anonymous callers.
        name: The name of the app in an error.
        say: The option for anonymous callers, in an error.

    Raises:
        ValueError: Everybody could call the app, and the user has not asked for anonymous callers.
    """
    apps = list(served(app))
    for agent in apps:
        agent.guard.expected |= anonymous
    open_to_all = [agent for agent in apps if agent.guard.anonymous]
    allowed = (hosts, *(agent.allowed_hosts for agent in open_to_all))
    names = [host, *(hostname for group in allowed if group is not None for hostname in group.names)]
    public = next((hostname for hostname in names if not is_loopback(hostname)), None)
    if anonymous or public is None:
        return
    if open_to_all:
        raise ValueError(
            f'{name} does not authenticate callers, and other machines can reach {public}: give to_a2a() an auth=,'
            f' or say {say}.'
        )
    if not apps:
        raise ValueError(
            f'{name} has no app of to_a2a() that can be found, so nothing shows whether {public} authenticates callers:'
            f' set the attribute app of each middleware to the app that the middleware wraps. To let everybody call,'
            f' say {say}.'
        )


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Its protocol is named, because asyncio sets TCP_NODELAY only then.

    Raises:
        CannotListen: The address cannot be used.
    """
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise CannotListen(
            f'Cannot listen on {host} port {port}: {error.strerror}. Choose another port or host.'
        ) from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL of a listening socket, with a final slash."""
    host, port = listener.getsockname()[:2]
    return f'http://[{host}]:{port}/' if ':' in host else f'http://{host}:{port}/'


def served(app: ASGIApp) -> Iterator[A2AApp]:
    """Return the apps of `to_a2a` in an app, which end their streams at a shutdown: uvicorn waits for the streams.

    The apps are mounted or wrapped. Middleware and Starlette's routes keep the wrapped app as `app`.
    """
    return _served(app, set())


def _served(app: object, seen: set[int]) -> Iterator[A2AApp]:
    if id(app) in seen:
        return
    seen.add(id(app))
    if isinstance(app, A2AApp):
        yield app
    for inner in (getattr(app, 'app', None), *(getattr(app, 'routes', None) or ())):
        if inner is not None:
            yield from _served(inner, seen)


def answering(app: ASGIApp, listener: socket.socket, hosts: AllowedHosts | None = None) -> ASGIApp:
    """Return the app behind a check of hosts: web pages in a browser on this machine can reach a local address."""
    if hosts is None and not ip_address(listener.getsockname()[0]).is_loopback:
        return app
    apps = list(served(app))
    allowed = (hosts, *(agent.allowed_hosts for agent in apps))
    names = AllowedHosts(name for group in allowed if group is not None for name in group.names)

    def redact(scope: Scope) -> None:
        for agent in apps:
            redact_query(scope, agent.guard)

    return HostCheck(app, names, redact)


def _uvicorn(
    app: ASGIApp, listener: socket.socket, hosts: AllowedHosts | None, options: dict[str, Any]
) -> tuple[uvicorn.Server, threading.Event]:
    """Return a uvicorn server, and the event that is set once the server has started or failed to start."""
    import uvicorn  # noqa: PLC0415 - takes as long to import as the whole package, which other servers serve as well

    settled = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            try:
                await super().startup(sockets)
                for listening in sockets or ():  # uvicorn logs no URL for sockets that the caller has opened
                    logger.info('Uvicorn running on %s (Press CTRL+C to quit)', url_of(listening))
                    for path in playground_paths(app):
                        logger.info('Playground: %s%s', url_of(listening), path.removeprefix('/'))
            finally:
                settled.set()

    apps = list(served(app))
    _end_unread(listener, max((agent.answer_time for agent in apps), default=0.0))
    grace = max((agent.hosting.drain_grace for agent in apps), default=0.0)
    defaults: dict[str, Any] = {'timeout_graceful_shutdown': ceil(grace) + _CUT_OFF}
    config = uvicorn.Config(answering(app, listener, hosts), **(defaults | options))
    return Server(config), settled


def _end_unread(listener: socket.socket, answer_time: float) -> None:
    """Let the kernel end connections whose client reads nothing.

    The app ends connections with an unread long answer within twice the answer time. The kernel waits a little longer,
    and also ends connections with short unread answers in the server's buffer. Only Linux has the option.
    Connections inherit the option from the listening socket.
    """
    with suppress(AttributeError):
        timeout = ceil(2000 * answer_time) + _KERNEL_GRACE
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout)


class Server:
    """A server in a separate thread."""

    url: str
    """URL of the server, with a final slash."""
    docs_url: str | None
    """URL of the playground of the first agent; None without a playground."""

    def __init__(
        self,
        app: ASGIApp,
        listener: socket.socket,
        options: dict[str, Any],
        hosts: AllowedHosts | None = None,
    ) -> None:
        self.url = url_of(listener)
        path = next(playground_paths(app), None)
        self.docs_url = None if path is None else self.url + path.removeprefix('/')
        self._app = app
        self._listener = listener
        self._server, self._settled = _uvicorn(app, listener, hosts, {'lifespan': 'on', **options})
        self._thread = threading.Thread(target=self._serve, name='pydantic-ai-a2a', daemon=True)
        self._thread.start()
        if not self._settled.wait(_START_TIME) or not self._server.started:
            self._server.should_exit = True
            self._thread.join(_GIVE_UP_TIME)  # a daemon thread: an app that hangs does not keep the process alive
            raise RuntimeError('The app did not start: the error is in the log.')

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._listener])
        except SystemExit:
            pass  # uvicorn exits if the lifespan failed, and then `started` is False
        finally:
            self._settled.set()
            self._listener.close()

    def close(self) -> None:
        """Drain and stop; returns when the thread has ended. Idempotent."""
        self._server.should_exit = True
        for app in served(self._app):
            app.hosting.drain_everywhere()
        self._thread.join()

    def __repr__(self) -> str:
        return f'<Server {self.url}>'

    def _repr_html_(self) -> str:
        return server_html(self.url, self.docs_url)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
