"""Aborts the connection of a request whose client does not read.

ASGI has no message for an abort. A server closes a connection only after the client has taken all buffered bytes, and
a client that never reads prevents the close for ever. Uvicorn's transport can abort the connection. With other
servers, the connection stays open.
"""

from __future__ import annotations

import asyncio
import socket
import struct

from starlette.types import Scope

REQUEST = 'pydantic_ai_a2a.receive'
"""Key of the scope for the server's own `receive`, before any wrapper."""
_NO_LINGER = struct.pack('ii', 1, 0)
"""A socket option: the kernel drops buffered bytes at the close, and resets the connection."""


async def abort(scope: Scope) -> None:
    """Abort the request's connection, if the server can. Bytes that are buffered for the client are lost."""
    if (transport := _transport_of(scope)) is not None:
        connection = transport.get_extra_info('socket')
        if connection is not None and not transport.is_closing():
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        transport.abort()
        await asyncio.sleep(0)  # let the server notice the abort: else the server logs that the answer is not complete


def abort_later(scope: Scope, seconds: float) -> None:
    """Abort the request's connection after some seconds. Until then, the client can take the buffered bytes."""
    if (transport := _transport_of(scope)) is not None:
        asyncio.get_running_loop().call_later(seconds, transport.abort)


def _transport_of(scope: Scope) -> asyncio.Transport | None:
    """Return the transport of the request's connection; None with HTTP/2, whose connections carry several requests."""
    if scope.get('http_version', '1.1')[0] != '1':
        return None
    transport = getattr(getattr(scope.get(REQUEST), '__self__', None), 'transport', None)
    return transport if callable(getattr(transport, 'abort', None)) else None
