"""Serves an app without a server's command line: in the main thread of a script, or beside a notebook or a test."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from inspect import signature
from typing import Any

from pydantic_ai.agent import AbstractAgent
from starlette.types import ASGIApp

from ...arguments import checked, suggestion
from ...settings.tls import TLS
from ..http.allowed_hosts import AllowedHosts
from .anonymous_callers import check_anonymous
from .garbage_collection import frozen_objects
from .listening_sockets import listen
from .serve_grpc import GrpcState, serve_grpc
from .served_apps import app_of
from .threaded_server import Server
from .uvicorn_server import run_server, uvicorn_server

_NOT_FOR_GRPC = {
    'ssl_context_factory': 'gRPC reads certificates from files only. Use serve_grpc(tls=) as lifespan.',
    'ssl_keyfile_password': 'gRPC reads only keys in clear.',  # nosec B105
}
"""Options of uvicorn that gRPC does not have, and why."""
_NOT_IN_THIS_PROCESS: Mapping[str, tuple[str, object]] = {
    'workers': (
        'For N tasks at once, write to_a2a(agent, workers=Workers(running=N)). `uvicorn --workers N` is for processes.',
        1,
    ),
    'reload': ('Use `pydantic-ai-a2a serve --reload`.', False),
}
"""Options of uvicorn that only its command line heeds: what to use, and the value that asks for nothing."""


@checked
def run(
    app: ASGIApp | AbstractAgent[Any, Any],
    *,
    host: str = '127.0.0.1',
    port: int = 8000,
    grpc_port: int | None = None,
    allowed_hosts: Collection[str] | None = None,
    anonymous: bool = False,
    **uvicorn_options: Any,
) -> None:
    """Serve until SIGINT or SIGTERM, in this thread.

    Args:
        app: An agent, served as `to_a2a(agent)`; an app of `to_a2a`; or an ASGI app with a mounted app of `to_a2a`.
        host: Address to listen on. Default: only programs on this machine can connect.
        port: Port to listen on.
        grpc_port: Port to serve gRPC on as well, with the `ssl_` options of uvicorn; 0 takes a free one. Default None:
            no gRPC.
        allowed_hosts: Host names to answer for, in addition to the names in `to_a2a`; `*` is every name. Default None:
            no more names on an address of this machine only, all names on other addresses. A proxy on this machine
            that passes on the name of the outer host needs the name here.
        anonymous: True to let everyone call an agent without `auth=` at a public address or under a public host name.
            Also needed for an app without a recognised agent: an agent is recognised if mounted, or wrapped in
            middleware with the attribute `app`.
        uvicorn_options: Further arguments of `uvicorn.Config`.

    Raises:
        CannotListen: An address cannot be used.
        ImportError: The packages of the extra `grpc` are missing.
        RuntimeError: An event loop runs in this thread.
        TypeError: An argument has a wrong type, or uvicorn has no such option.
        ValueError: Everyone could call the agent, or the agent is not recognised, without `anonymous=True`. gRPC cannot
            serve the app: see `serve_grpc`. `workers` or `reload` asks for other processes.
    """
    _check_no_loop()
    _check_options(run, uvicorn_options)
    app = app_of(app)
    hosts = None if allowed_hosts is None else AllowedHosts(allowed_hosts)
    check_anonymous(app, host, hosts, anonymous)
    grpc = None
    if grpc_port is not None:
        grpc = serve_grpc(app, host=host, port=grpc_port, tls=_tls(uvicorn_options), anonymous=anonymous)
    serve_on(listen(host, port), app, hosts, uvicorn_options, grpc)


def serve_on(
    listener: socket.socket,
    app: ASGIApp,
    hosts: AllowedHosts | None,
    uvicorn_options: dict[str, Any],
    grpc: AbstractAsyncContextManager[GrpcState] | None,
) -> None:
    """Serve on a socket until SIGINT or SIGTERM, in this thread."""
    with listener, suppress(KeyboardInterrupt):  # uvicorn raises it again after the shutdown
        server, _ = uvicorn_server(app, listener, hosts, uvicorn_options, grpc=grpc)
        with frozen_objects():
            run_server(server, listener)


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
    _check_options(serve, uvicorn_options)
    app = app_of(app)
    hosts = None if allowed_hosts is None else AllowedHosts(allowed_hosts)
    check_anonymous(app, host, hosts, anonymous)
    return Server(app, listen(host, port), {'log_level': 'warning', **uvicorn_options}, hosts)


def _tls(options: Mapping[str, Any]) -> TLS | None:
    """Return the TLS of gRPC, from the options of uvicorn."""
    for option, reason in _NOT_FOR_GRPC.items():
        if options.get(option) is not None:
            raise ValueError(f'grpc_port= cannot be combined with {option}=: {reason}')
    if (certificate := options.get('ssl_certfile')) is None:
        return None
    required = options.get('ssl_cert_reqs') == ssl.CERT_REQUIRED
    authority = options.get('ssl_ca_certs') if required else None
    if required and authority is None:
        raise ValueError('ssl_cert_reqs=ssl.CERT_REQUIRED with grpc_port= needs ssl_ca_certs=: name the authority.')
    return TLS(certificate=certificate, key=options.get('ssl_keyfile') or certificate, client_ca=authority)


def _check_options(function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Refuse an unknown uvicorn option before the server listens."""
    import uvicorn  # noqa: PLC0415 - see `uvicorn_server`

    choices = {*signature(uvicorn.Config).parameters, *signature(function).parameters}
    if unknown := next((option for option in options if option not in choices), None):
        raise TypeError(f'{function.__name__}() takes no {unknown!r}.{suggestion(unknown, choices)}')
    for option, (remedy, nothing) in _NOT_IN_THIS_PROCESS.items():
        if options.get(option) not in (None, nothing):
            raise ValueError(f'{function.__name__}() serves in this process, without {option}=. {remedy}')


def _check_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(
        'run() cannot be called in a running event loop, such as that of a notebook or of an async function:'
        ' use serve(), which runs the server in a thread of its own.'
    )
