"""The client: requests over kept connections, and rounds in which several servers take turns."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from os import urandom
from statistics import median
from typing import Any

from .servers import Served
from .targets import CARD

LIMIT = 600.0
"""Seconds that one request may take."""
DONE, DELTA = b'TASK_STATE_COMPLETED', b'"artifactUpdate"'
HEAD = (
    'POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n'
    'Content-Length: {}\r\n\r\n'
)
_ids = count(1)
_client = urandom(4).hex()


def message(text: str = 'Hello, agent!', **fields: Any) -> dict[str, Any]:
    """A message with an id of its own."""
    return {
        'messageId': f'benchmark-{_client}-{next(_ids):09d}',
        'role': 'ROLE_USER',
        'parts': [{'text': text}],
        **fields,
    }


def post(method: str, params: Mapping[str, Any]) -> bytes:
    """A JSON-RPC request, as HTTP."""
    body = json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': params}).encode()
    return HEAD.format(len(body)).encode() + body


def send(text: str = 'Hello, agent!', **fields: Any) -> bytes:
    return post('SendMessage', {'message': message(text, **fields)})


def stream(text: str = 'Hello, agent!') -> bytes:
    return post('SendStreamingMessage', {'message': message(text)})


def get_card() -> bytes:
    return f'GET {CARD} HTTP/1.1\r\nHost: localhost\r\n\r\n'.encode()


class Connection:
    """A connection that carries one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.first = 0.0
        """Seconds until the first delta of the last response."""

    @classmethod
    async def open(cls, served: Served) -> Connection:
        return cls(*await asyncio.open_connection('127.0.0.1', served.port, limit=2**24))

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()

    async def exchange(self, request: bytes, *, shows: bytes = DONE) -> bytes:
        """Send a request and read its whole response, which must show the given bytes."""
        async with asyncio.timeout(LIMIT):
            begin = time.perf_counter()
            self.writer.write(request)
            head = (await self.reader.readuntil(b'\r\n\r\n')).lower()
            if b'transfer-encoding: chunked' in head:
                body = await self._chunks(begin)
            else:
                length = int(head.partition(b'content-length: ')[2].partition(b'\r\n')[0])
                body = await self.reader.readexactly(length)
        if shows not in body:
            raise RuntimeError(f'The response does not show {shows!r}: {body[-300:]!r}')
        return body

    async def _chunks(self, begin: float) -> bytes:
        body = bytearray()
        self.first = 0.0
        while not body.endswith(b'\r\n0\r\n\r\n'):
            chunk = await self.reader.read(2**16)
            if not chunk:
                raise RuntimeError('The connection has been closed.')
            body += chunk
            if not self.first and DELTA in body:
                self.first = time.perf_counter() - begin
        return bytes(body)


@dataclass(frozen=True)
class Round:
    """The load of one server for a while."""

    tasks: int
    seconds: float
    cpu: float
    """CPU seconds of the server."""
    others: Mapping[str, float] = field(default_factory=dict[str, float])
    """CPU seconds of the other meters."""
    first: float = 0.0
    """Median of the seconds until the first delta."""

    @property
    def cpu_per_task(self) -> float:
        return self.cpu / self.tasks


Meters = Mapping[str, Callable[[], float]]


async def load(
    served: Served,
    request: Callable[[], bytes] = send,
    *,
    connections: int,
    seconds: float = LIMIT,
    tasks: int | None = None,
    meters: Meters | None = None,
    shows: bytes = DONE,
) -> Round:
    """Keep connections busy, for a time or for a number of tasks."""
    meters = meters or {}
    opened = [await Connection.open(served) for _ in range(connections)]
    firsts: list[float] = []
    done = 0
    before = {name: meter() for name, meter in meters.items()}
    begin, cpu = time.monotonic(), served.cpu()

    async def work(connection: Connection) -> None:
        nonlocal done
        while not done or (time.monotonic() < begin + seconds and (tasks is None or done < tasks)):
            done += 1
            await connection.exchange(request(), shows=shows)
            firsts.append(connection.first)

    async with asyncio.TaskGroup() as group:
        for connection in opened:
            group.create_task(work(connection))
    cpu, lasted = served.cpu() - cpu, time.monotonic() - begin
    others = {name: meter() - before[name] for name, meter in meters.items()}
    for connection in opened:
        await connection.close()
    return Round(done, lasted, cpu, others, median(firsts))


@dataclass(frozen=True)
class Turn:
    """A server, the request it gets and the meters beside its own CPU time."""

    served: Served
    request: Callable[[], bytes] = send
    meters: Meters | None = None
    shows: bytes = DONE


async def take_turns(turns: Mapping[str, Turn], *, rounds: int, seconds: float, connections: int) -> dict[str, Any]:
    """Load the servers in turn, after a warm-up; return the rounds of each."""
    measured: dict[str, list[Round]] = {name: [] for name in turns}
    for number in range(rounds + 1):
        for name, turn in turns.items():
            result = await load(
                turn.served,
                turn.request,
                connections=connections,
                seconds=seconds,
                meters=turn.meters,
                shows=turn.shows,
            )
            if number:
                measured[name].append(result)
    return measured


def ratios(rounds: Sequence[Round], floor: Sequence[Round]) -> list[float]:
    """Return the ratio of CPU time a task in each round."""
    return [ours.cpu_per_task / base.cpu_per_task for ours, base in zip(rounds, floor, strict=True)]
