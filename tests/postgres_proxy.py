"""What stands between a backend and PostgreSQL in tests, and loses what it is told to lose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal
from urllib.parse import parse_qs, urlsplit

from .tcp_server import tcp_server

Fault = Literal['lose the answer', 'say nothing more']
_DONE = b'Z\x00\x00\x00\x05I', b'n\x00\x00\x00\x04'
"""The server's last message of an answer: no transaction is open, or what was prepared gives no rows."""
_CANCEL = b'\x04\xd2\x16\x2e'
"""What a connection begins with, after its length, that only wants a statement of another one to be canceled."""


class Proxy:
    """Passes on what client and server say, but for the faults.

    Args:
        server_url: Where the database is.
    """

    def __init__(self, server_url: str) -> None:
        parts = urlsplit(server_url)
        self._parts = parts
        self._faults: list[tuple[bytes, Fault]] = []
        self.port = 0
        self.refuses = False
        """Whether nobody gets through."""
        self.admits = asyncio.Event()
        """Cleared while new connections wait."""
        self.admits.set()
        self.version: tuple[bytes, bytes] | None = None
        """What the server says of its version, and what clients hear."""
        self.connected: asyncio.Queue[None] = asyncio.Queue()
        """An entry for each connection that was tried."""
        self.silent = asyncio.Event()
        """Set once it says nothing more over a connection."""
        self._clients: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """Where clients find it."""
        who = self._parts.netloc.rpartition('@')[0]
        return f'postgresql://{who}@127.0.0.1:{self.port}{self._parts.path}?sslmode=disable'

    def when(self, said: bytes, fault: Fault) -> None:
        """When a client says this next: lose the answer with the connection, or say nothing more over it."""
        self._faults.append((said, fault))

    def cut(self) -> None:
        """End all connections."""
        for client in self._clients:
            client.close()

    def _fault(self, data: bytes) -> Fault | None:
        for each in self._faults:
            if each[0] in data:
                self._faults.remove(each)
                return each[1]
        return None

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._parts.hostname:
            return await asyncio.open_connection(self._parts.hostname, self._parts.port or 5432)
        return await asyncio.open_unix_connection(f'{parse_qs(self._parts.query)["host"][0]}/.s.PGSQL.5432')

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = b'' if self.refuses else await reader.read(1 << 16)
        self._clients.add(writer)
        if not first.endswith(_CANCEL, 4, 8):
            self.connected.put_nowait(None)
        await self.admits.wait()
        if first:
            answers, server = await self._open()
            server.write(first)
            await self._pass_on(reader, server, answers, writer)
        self._clients.discard(writer)
        writer.close()

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        server: asyncio.StreamWriter,
        answers: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        losing = asyncio.Event()
        asking = asyncio.create_task(self._ask(reader, server, losing))
        answering = asyncio.create_task(self._answer(answers, writer, losing))
        try:
            await asyncio.wait((asking, answering), return_when=asyncio.FIRST_COMPLETED)
        finally:
            server.close()  # without a wait before it: the end of the block may cancel a wait
            asking.cancel()
            answering.cancel()
            await asyncio.gather(asking, answering, return_exceptions=True)

    async def _ask(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter, losing: asyncio.Event) -> None:
        while data := await reader.read(1 << 16):
            fault = self._fault(data)
            if fault == 'say nothing more':
                self.silent.set()
                await asyncio.Event().wait()
            if fault == 'lose the answer':
                losing.set()
            server.write(data)

    async def _answer(self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter, losing: asyncio.Event) -> None:
        said = b''
        while data := await answers.read(1 << 16):
            if losing.is_set():
                said += data
                if said.endswith(_DONE):
                    return
            else:
                writer.write(data.replace(*self.version) if self.version else data)


@asynccontextmanager
async def proxied(server_url: str) -> AsyncGenerator[Proxy]:
    """A proxy for a database, for the block."""
    proxy = Proxy(server_url)
    async with tcp_server(proxy.connect) as proxy.port:
        yield proxy
