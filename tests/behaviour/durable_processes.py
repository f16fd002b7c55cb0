"""Clients of servers that run in processes of their own, and what tests do with these processes."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sqlite3
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import httpx

from ..app_client import LIVE, message
from ..e2e.server import LIMIT, Gates, Process, process, rpc

ENDED = ('TASK_STATE_COMPLETED', 'TASK_STATE_FAILED', 'TASK_STATE_CANCELED')
Events: TypeAlias = AsyncIterator[tuple[int, Any]]


class ServerClient:
    """A client of one server."""

    def __init__(self, server: Process) -> None:
        self.server = server
        self.url = server.url
        self.gates = Gates(server.url)

    async def call(self, method: str, **params: Any) -> Any:
        async with httpx.AsyncClient(timeout=LIMIT, verify=False) as http:
            answer = (await http.post(self.url, json=rpc(method, **params), headers={'A2A-Version': '1.0'})).json()
        assert 'result' in answer, answer
        return answer['result']

    async def send(self, text: str, *, wait: bool = True, **fields: Any) -> dict[str, Any]:
        configuration = {'returnImmediately': not wait}
        return (await self.call('SendMessage', message=message(text, **fields), configuration=configuration))['task']

    @asynccontextmanager
    async def stream(self, method: str, headers: Mapping[str, str], **params: Any) -> AsyncGenerator[Events]:
        """Numbers and contents of the events that a method streams, with live text."""
        async with (
            httpx.AsyncClient(timeout=LIMIT, verify=False) as http,
            http.stream(
                'POST', self.url, json=rpc(method, **params), headers={'A2A-Version': '1.0', **LIVE, **headers}
            ) as response,
        ):
            yield _events(response.aiter_lines())

    @asynccontextmanager
    async def subscribe(self, task_id: str, **headers: str) -> AsyncGenerator[Events]:
        """Numbers and contents of a task's events."""
        given = {name.replace('_', '-'): it for name, it in headers.items()}
        async with self.stream('SubscribeToTask', given, id=task_id) as events:
            yield events

    async def ended(self, task_id: str) -> dict[str, Any]:
        """The task once it is over."""
        async with self.subscribe(task_id) as events:
            async for _ in events:
                pass
        task = await self.call('GetTask', id=task_id)
        assert task['status']['state'] in ENDED
        return task


@contextmanager
def server_process(
    app: str, *options: str, env: Mapping[str, str], packages: Sequence[str] = ()
) -> Generator[ServerClient]:
    """A client of a new server, up and listening."""
    with process('-m', 'uvicorn', app, '--port', '0', *options, env=env, packages=packages) as server:
        remote = ServerClient(server)
        try:
            yield remote
        finally:
            server.signal(signal.SIGCONT)  # one that is stopped does not end


async def holder_first(gate: str, *remotes: ServerClient) -> list[ServerClient]:
    """The servers, first the one whose agent has come to the gate: most often that which took the message."""
    waiting = {asyncio.ensure_future(remote.gates.reached(gate)): remote for remote in remotes}
    done, others = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for other in others:
        other.cancel()
    return [waiting[each] for each in (*done, *others)]


def pause(remote: ServerClient, *files: Path) -> None:
    """Stop a server, but not while it writes to one of these SQLite files: nobody else could."""
    while True:
        remote.server.stop()
        if not any(map(_is_locked, files)):
            return
        remote.server.signal(signal.SIGCONT)


def _is_locked(file: Path) -> bool:
    with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as database:
        try:
            database.execute('BEGIN IMMEDIATE')
        except sqlite3.OperationalError:
            return True
    return False


async def expire_leases(store: str) -> None:
    """Let the leases of all tasks in the store at a URL expire: other workers take them over.

    A worker looks for them in each third of a lease. A lease of 9 seconds outlasts a machine that stops for a while.
    """
    if store.startswith('sqlite:'):
        with closing(sqlite3.connect(store.removeprefix('sqlite:///'), timeout=LIMIT)) as file, file:
            file.execute('UPDATE task SET lease_until = 0 WHERE holder IS NOT NULL')
        return
    connection = await asyncpg.connect(store)
    await connection.execute('UPDATE a2a.task SET lease_until = 0 WHERE holder IS NOT NULL')
    await connection.close()


async def wait_for(remote: ServerClient, line: str) -> None:
    """Wait until a server has said something."""
    await asyncio.to_thread(remote.server.wait_for, re.escape(line))


async def kill(server: Process) -> None:
    server.signal(signal.SIGKILL)
    assert await server.ended() == -signal.SIGKILL


async def poll_until(reached: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again until the answer is yes."""
    async with asyncio.timeout(LIMIT):
        while not await reached():
            await asyncio.to_thread(time.sleep, 0.05)


async def _events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[int, Any]]:
    number = 0
    async for line in lines:
        if line.startswith('id: '):
            number = int(line[4:])
        elif line.startswith('data: '):
            yield number, json.loads(line[6:]).get('result')
