"""A webhook: an HTTP server on this machine that says what it was sent, and answers as it is told."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from .app_client import LIMIT
from .tcp_server import tcp_server

NEVER_ANSWERS = b''
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
    def summary(self) -> str:
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

    @property
    def url(self) -> str:
        return url_at(self.port)

    async def got(self, count: int) -> list[Received]:
        """All that came, once it is so much."""
        async with asyncio.timeout(LIMIT), self._changed:
            await self._changed.wait_for(lambda: len(self.received) >= count)
        return self.received

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
        if answer == NEVER_ANSWERS:
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
    async with tcp_server(hook.serve, at=at, context=context) as hook.port:
        yield hook
