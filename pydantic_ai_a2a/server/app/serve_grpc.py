"""Serves an app over gRPC, beside its HTTP server in the same event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from typing import Any, TypedDict
from urllib.parse import urlsplit

from pydantic_ai.agent import AbstractAgent
from starlette.types import ASGIApp

from ...arguments import checked
from ...errors import CannotListen, needs_extra
from ...settings.tls import TLS
from ...wire.extensions import own_extensions
from .a2a_app import A2AApp
from .anonymous_callers import check_anonymous
from .process_count import server_processes
from .served_apps import app_of, served_apps

_END = 1.0
"""Seconds that calls get to end after the drain of the app."""

_EXTENSIONS = (own_extensions.EVENT_IDS,)


class GrpcState(TypedDict):
    """State of a lifespan with gRPC."""

    grpc_address: str
    """Address of the gRPC server, as `host:port`."""


@checked
def serve_grpc(
    app: ASGIApp | AbstractAgent[Any, Any],
    *,
    host: str = '127.0.0.1',
    port: int = 50051,
    url: str | None = None,
    tls: TLS | None = None,
    reuse_port: bool | None = None,
    on_card: bool = True,
    anonymous: bool = False,
) -> AbstractAsyncContextManager[GrpcState]:
    """Serve an app over gRPC while the block runs, in the running event loop. The agent card then lists the binding.

    As the `lifespan` of an app, the gRPC server starts and ends with the HTTP server:

    ```python
    from functools import partial

    from pydantic_ai import Agent
    from pydantic_ai_a2a import serve_grpc, to_a2a

    app = to_a2a(Agent('test'), lifespan=partial(serve_grpc, port=50051))
    ```

    The end of the block drains the app, as the end of its lifespan does. If several gRPC servers serve the app, the end
    of the last one drains the app, and the card lists the newest one. Without an HTTP server, the first gRPC server
    must end last, because its block is the lifespan of the app.

    Args:
        app: An agent, served as `to_a2a(agent)`; an app of `to_a2a`; or an ASGI app with one app of `to_a2a` inside.
        host: Address to listen on. Default: only programs on this machine can connect.
        port: Port to listen on; 0 takes a free one, if uvicorn has one worker. Default 50051.
        url: The public `host:port` of the server, for the card. Default: the host of the agent's URL, and the port.
        tls: Certificate and key of the server, and the authority of the certificates of clients. Default: no TLS.
        reuse_port: True if several processes listen on the port, and share the connections. Default: True if uvicorn
            has several workers.
        on_card: False leaves gRPC off the agent card over HTTP, for clients that refuse a card with a second origin,
            such as google-adk. Clients of gRPC then need the address from you. Default True.
        anonymous: As for `run`.

    Returns:
        A context manager. Its value has the address of the server, and is also a state for a lifespan.

    Raises:
        CannotListen: The address cannot be used, or the certificate or key of `tls` cannot.
        ImportError: The packages of the extra `grpc` are missing.
        OSError: A file of `tls` cannot be read.
        TypeError: An argument has a wrong type.
        ValueError: The app does not serve A2A 1.0, or does not have exactly one app of `to_a2a`. Everyone could call
            the agent without `anonymous=True`. Processes cannot share a port on this machine, or each
            process would take another free port.
    """
    agent = grpc_agent_of(app_of(app))
    check_anonymous(agent, host, None, anonymous)
    processes = server_processes()
    if processes > 1 and port == 0:
        raise ValueError(
            f'Each of the {processes} workers of uvicorn would serve gRPC on another free port: choose a port= for'
            ' serve_grpc().'
        )
    shares = processes > 1 if reuse_port is None else reuse_port
    if shares and not hasattr(socket, 'SO_REUSEPORT'):
        raise ValueError(
            'Several processes cannot share the port of gRPC on this machine, because its kernel has no SO_REUSEPORT:'
            ' serve gRPC from one process.'
        )
    return _serving(agent, host=host, port=port, url=url, tls=tls, shares=shares, on_card=on_card)


@asynccontextmanager
async def _serving(
    agent: A2AApp, *, host: str, port: int, url: str | None, tls: TLS | None, shares: bool, on_card: bool
) -> AsyncGenerator[GrpcState]:
    from ..grpc.server import GrpcServer  # noqa: PLC0415 - its packages are of an extra

    server = GrpcServer(agent.serving, reuse_port=shares)
    address = f'[{host}]' if ':' in host else host
    try:
        server.listen(f'{address}:{port}', tls)
    except RuntimeError as error:
        files = '' if tls is None else ' If the port is free, a file of tls= is no certificate or key in PEM form.'
        raise CannotListen(
            f'Cannot listen on {host} port {port} for gRPC. Choose another port or host.{files}'
        ) from error
    async with AsyncExitStack() as stack:
        if not agent.hosting.begun:  # no HTTP server serves the app
            await stack.enter_async_context(agent.router.lifespan_context(agent))
        await server.start()

        def place(base: str) -> str | None:
            if base and not on_card:
                return None
            return url or f'{_host(base) or address}:{server.port}'

        agent.declare_grpc(place, _EXTENSIONS)
        try:
            yield GrpcState(grpc_address=f'{address}:{server.port}')
        finally:
            if agent.withdraw_grpc(place, _EXTENSIONS):
                agent.hosting.drain(asyncio.get_running_loop())
            await server.stop(agent.hosting.drain_grace + _END)


def grpc_agent_of(app: ASGIApp) -> A2AApp:
    """Return the app of `to_a2a` in an app, if gRPC can serve the app.

    Raises:
        ImportError: The packages of the extra `grpc` are missing.
        ValueError: There are several apps of `to_a2a`, or none, or the app does not serve A2A 1.0.
    """
    if find_spec('grpc') is None or find_spec('a2a') is None:
        raise ImportError(needs_extra('gRPC', 'grpc'))
    agents = list(served_apps(app))
    if len(agents) != 1:
        found = 'several apps' if agents else 'no app'
        raise ValueError(
            f'gRPC serves one agent on a port, and {found} of to_a2a() can be found: serve each app alone.'
        )
    if agents[0].serving.versions.http is None:
        raise ValueError("gRPC has only A2A 1.0, and Access.versions leaves 1.0 out: add '1.0'.")
    return agents[0]


def _host(base: str) -> str | None:
    """Return the host of a URL, as a URL has it."""
    name = urlsplit(base).hostname
    return f'[{name}]' if name is not None and ':' in name else name
