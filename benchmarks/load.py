"""Servers in processes of their own, and the load that keeps them busy; shared by the benchmarks. Linux only."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from os import environ
from pathlib import Path

LIMIT = 30.0
"""Seconds that one task may take."""

_ids = count(1)


@dataclass(frozen=True)
class Served:
    """A server under test."""

    pid: int
    port: int

    def cpu(self) -> float:
        """CPU seconds of all its threads so far."""
        threads = Path(f'/proc/{self.pid}/task').glob('*/schedstat')
        return sum(int(each.read_text().split()[0]) for each in threads) / 1e9

    def memory(self) -> int:
        """Resident bytes."""
        return int(Path(f'/proc/{self.pid}/statm').read_text().split()[1]) * 4096


@dataclass(frozen=True)
class Round:
    """One target for a while."""

    tasks: int
    seconds: float
    cpu: float

    @property
    def cpu_per_task(self) -> float:
        return self.cpu / self.tasks


@contextmanager
def server(program: str, *arguments: str, environment: Mapping[str, str] = {}) -> Iterator[Served]:
    """A server in a process of its own: a program beside this one, which prints its port."""
    command = [sys.executable, str(Path(__file__).with_name(program)), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**environ, **environment}) as process:
        assert process.stdout is not None
        try:
            yield Served(process.pid, int(process.stdout.readline()))
        finally:
            process.terminate()


def request(method: str) -> bytes:
    """One task, as HTTP."""
    message = {'messageId': f'benchmark-{next(_ids):012d}', 'role': 'ROLE_USER', 'parts': [{'text': 'Hello, agent!'}]}
    body = json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': {'message': message}}).encode()
    head = (
        'POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n'
        f'Content-Length: {len(body)}\r\n\r\n'
    )
    return head.encode() + body


async def task(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, method: str) -> None:
    """Send one task and read its whole answer."""
    writer.write(request(method))
    head = (await reader.readuntil(b'\r\n\r\n')).lower()
    if b'transfer-encoding: chunked' in head:
        body = await reader.readuntil(b'\r\n0\r\n\r\n')
    else:
        length = int(head.partition(b'content-length: ')[2].partition(b'\r\n')[0])
        body = await reader.readexactly(length)
    if b'TASK_STATE_COMPLETED' not in body:
        raise RuntimeError(f'not completed: {body[-300:]!r}')


async def load(served: Served, method: str, *, connections: int, seconds: float, tasks: int | None = None) -> Round:
    """Keep so many connections busy, for a time or for a number of tasks."""
    done = 0
    begin, cpu = time.monotonic(), served.cpu()

    async def work() -> None:
        nonlocal done
        reader, writer = await asyncio.open_connection('127.0.0.1', served.port, limit=2**20)
        while time.monotonic() < begin + seconds and (tasks is None or done < tasks):
            async with asyncio.timeout(LIMIT):
                await task(reader, writer, method)
            done += 1
        writer.close()
        await writer.wait_closed()

    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(work())
    return Round(done, time.monotonic() - begin, served.cpu() - cpu)


def rate(rounds: list[Round]) -> float:
    """Tasks per second in the best round: other work on the machine only ever takes away."""
    return max(each.tasks / each.seconds for each in rounds)
