"""The connection of a request: how it is ended although its client does not read.

ASGI has no message for this. A server closes a connection only after its client has taken what is buffered for it,
which a client that never reads prevents for ever. Uvicorn's transport can abort the connection, so it is asked for it.
Nothing else is known about servers here; of a server without such a transport, nothing is asked.
"""

from __future__ import annotations

import asyncio
import socket
import struct

from starlette.types import Scope

__all__ = ('REQUEST', 'abort', 'abort_later')

REQUEST = 'pydantic_ai_a2a.receive'
"""Key of the scope under which the app keeps the `receive` that the server called it with, before anything wraps it."""
_NO_LINGER = struct.pack('ii', 1, 0)
"""The kernel then forgets what it has buffered, and resets the connection when it is closed."""


def _transport_of(scope: Scope) -> asyncio.Transport | None:
    """The transport of the request's connection. One of HTTP/2 has other requests as well, and is left alone."""
    if scope.get('http_version', '1.1')[0] != '1':
        return None
    transport = getattr(getattr(scope.get(REQUEST), '__self__', None), 'transport', None)
    return transport if callable(getattr(transport, 'abort', None)) else None


def _reset(transport: asyncio.Transport) -> None:
    """Abort a connection, with what the process and the kernel have buffered for its client."""
    connection = transport.get_extra_info('socket')
    if connection is not None and not transport.is_closing():
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()


async def abort(scope: Scope) -> None:
    """Abort the request's connection, if the server lets us; what is buffered for the client is lost."""
    if (transport := _transport_of(scope)) is not None:
        _reset(transport)
        await asyncio.sleep(0)  # until the server knows, which would otherwise log that the answer is not complete


def abort_later(scope: Scope, seconds: float) -> None:
    """Abort the request's connection in a while. Until then, the client can take what is buffered for it."""
    if (transport := _transport_of(scope)) is not None:
        asyncio.get_running_loop().call_later(seconds, transport.abort)
