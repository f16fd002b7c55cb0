"""A TCP proxy that cuts connections at random places."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from random import Random
from urllib.parse import urlsplit

from ..tcp_server import tcp_server


class CuttingProxy:
    """Passes bytes on, and cuts all connections: some before the request or within the first answer, others later.

    Args:
        url: URL of the server.
        share: Part of the connections that are cut early.
        seed: The same seed cuts in the same way.
    """

    def __init__(self, url: str, *, share: float, seed: int) -> None:
        parts = urlsplit(url)
        self._server = parts.hostname, parts.port
        self._share = share
        self._random = Random(seed)
        self.cuts = 0
        """Number of cut connections."""

    def _limit(self) -> int:
        """Bytes of the answers after which a connection is cut: 0 before the request."""
        if self._random.random() >= self._share:
            return self._random.randrange(2000, 8000)
        return 0 if self._random.random() < 0.3 else self._random.randrange(1, 2000)

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        limit = self._limit()
        try:
            if limit == 0:
                self._cut(writer)
                return
            answers, server = await asyncio.open_connection(*self._server)
            asking = asyncio.create_task(self._pass_on(reader, server, None))
            try:
                if await self._pass_on(answers, writer, limit):
                    self._cut(writer)
            finally:  # without a wait before it: the end of the block may cancel a wait
                server.transport.abort()
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
        finally:
            writer.close()

    def _cut(self, writer: asyncio.StreamWriter) -> None:
        self.cuts += 1
        writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None) -> bool:
        """Pass bytes on until the end, or until the limit. Return True at the limit."""
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                piece = data if limit is None else data[:limit]
                writer.write(piece)
                await writer.drain()
                if limit is not None:
                    limit -= len(piece)
                    if limit <= 0:
                        return True
        with suppress(OSError, RuntimeError):
            writer.write_eof()
        return False


@asynccontextmanager
async def cutting_proxy(url: str, *, share: float, seed: int) -> AsyncGenerator[tuple[str, CuttingProxy]]:
    """A proxy in front of a server, by its URL."""
    cutter = CuttingProxy(url, share=share, seed=seed)
    async with tcp_server(cutter.connect) as port:
        yield f'http://127.0.0.1:{port}/', cutter
