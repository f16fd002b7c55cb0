"""A TCP server for one block, of which nothing is left in the event loop."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

_TURNS = 5
"""Turns of the event loop in which an accepted connection begins."""


@asynccontextmanager
async def tcp_server(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    *,
    at: socket.socket | None = None,
    context: ssl.SSLContext | None = None,
) -> AsyncGenerator[int]:
    """Serve each connection with a function until the end of the block. Yields the port; `at` is a reserved one."""
    connections: list[tuple[asyncio.Future[None], asyncio.StreamWriter]] = []

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append((asyncio.ensure_future(serve(reader, writer)), writer))

    where: dict[str, Any] = {'host': '127.0.0.1', 'port': 0} if at is None else {'sock': at}
    server = await asyncio.start_server(begin, **where, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        for serving, _ in connections:
            serving.cancel()
        ends = await asyncio.gather(*(serving for serving, _ in connections), return_exceptions=True)
        for _, writer in connections:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()
    for end in ends:
        if isinstance(end, Exception) and not isinstance(end, OSError | EOFError):
            raise end
