"""A webhook: an HTTP server on this machine that says what it was sent, and answers as it is told."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from .client import LIMIT

HANGS = b''
"""Never answers."""


class Received(NamedTuple):
    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers['webhook-id']

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def says(self) -> str:
        """What a notification tells, in short."""
        if 'status' in self.json:
            return f'task {self.json["status"]["state"]}'
        if 'artifactUpdate' not in self.json:
            return self.json['statusUpdate']['status']['state'].removeprefix('TASK_STATE_')
        update = self.json['artifactUpdate']
        marks = [name for name in ('append', 'lastChunk') if update.get(name)]
        return ' '.join([''.join(part['text'] for part in update['artifact']['parts']), *marks])


def url_at(port: int) -> str:
    """The URL of a webhook on a port."""
    return f'http://127.0.0.1:{port}/hook?key=secret'


class Webhook:
    """Answers with the given answers first, and with the last of them from then on.

    Args:
        answers: Statuses, bytes, or events: a request waits for its event, and is answered with 200.
    """

    def __init__(self, answers: Sequence[int | bytes | asyncio.Event]) -> None:
        self.answers = list(answers)
        self.received: list[Received] = []
        self.port = 0
        self._changed = asyncio.Condition()
        self._connections: list[tuple[asyncio.Task[None], asyncio.StreamWriter]] = []

    @property
    def url(self) -> str:
        return url_at(self.port)

    async def got(self, count: int) -> list[Received]:
        """All that came, once it is so much."""
        async with asyncio.timeout(LIMIT), self._changed:
            await self._changed.wait_for(lambda: len(self.received) >= count)
        return self.received

    def begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Begin a connection."""
        self._connections.append((asyncio.create_task(self._serve(reader, writer)), writer))

    async def end(self) -> None:
        """End all connections: none is left to the end of the event loop."""
        for task, writer in self._connections:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b'\r\n\r\n')).decode('latin-1')
        except asyncio.IncompleteReadError:
            writer.close()
            return
        line, *fields = head.strip().split('\r\n')
        headers = {name.lower(): value for name, value in (field.split(': ', 1) for field in fields)}
        body = await reader.readexactly(int(headers['content-length']))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        async with self._changed:
            self.received.append(Received(line, headers, body))
            self._changed.notify_all()
        if isinstance(answer, asyncio.Event):
            await answer.wait()
            answer = 200
        if answer == HANGS:
            await reader.read()
        elif isinstance(answer, int):
            writer.write(b'HTTP/1.1 %d Fine\r\nContent-Length: 0\r\n\r\n' % answer)
        else:
            writer.write(answer)
        writer.close()


@asynccontextmanager
async def webhook(
    *answers: int | bytes | asyncio.Event, at: socket.socket | None = None, context: ssl.SSLContext | None = None
) -> AsyncGenerator[Webhook]:
    """A webhook that takes everything, unless it is told to answer otherwise; on a reserved port if given."""
    hook = Webhook(answers or [200])
    where: dict[str, Any] = {'host': '127.0.0.1', 'port': 0} if at is None else {'sock': at}
    server = await asyncio.start_server(hook.begin, **where, ssl=context)
    hook.port = server.sockets[0].getsockname()[1]
    try:
        yield hook
    finally:
        server.close()
        await hook.end()
