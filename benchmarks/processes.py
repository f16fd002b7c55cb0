"""Several processes over one database: the cost of a neighbour, the age of events, and recovery from a crash."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import asyncpg
import httpx

from .load import LIMIT, Round, load, message
from .ratios import NAMES, ours
from .report import Row
from .servers import Databases, Served, server
from .sizes import Size

HEADERS = {'A2A-Version': '1.0'}
LISTENERS = 50
SHARED = ('normal', 'postgres')
"""Databases that several processes can use."""


async def neighbour(size: Size, databases: Databases) -> list[Row]:
    """A task of one process: CPU time that an idle process over the same PostgreSQL database adds."""
    with ExitStack() as stack:
        alone = ours(stack, databases, 'plain', 'postgres')
        backend = databases.make('postgres')
        busy = stack.enter_context(server(kind='ours', agent='plain', backend=backend))
        idle = stack.enter_context(server(kind='ours', agent='plain', backend=backend))
        meters = {'database': databases.postgres_cpu, 'idle': idle.cpu}
        for served in (alone, busy, idle):  # a first task opens the connections
            await load(served, connections=1, tasks=1)
        resting = await _at_rest(databases, size.seconds * 8) / 3
        rounds: list[tuple[Round, Round]] = []
        for number in range(size.rounds + 1):
            pair = [
                await load(served, connections=size.connections, seconds=size.seconds, meters=meters)
                for served in (alone, busy)
            ]
            if number:
                rounds.append((pair[0], pair[1]))
    return [
        Row.of(
            'CPU time of PostgreSQL that an idle neighbour adds to a task',
            [(two.others['database'] / two.tasks - one.others['database'] / one.tasks) * 1e3 for one, two in rounds],
            'ms',
        ),
        Row.of(
            'CPU time of an idle neighbour for a task of another process',
            [
                (two.others['idle'] - one.others['idle'] / one.seconds * two.seconds) / two.tasks * 1e3
                for one, two in rounds
            ],
            'ms',
        ),
        Row.of(
            'CPU time of an idle process in a second, PostgreSQL',
            [one.others['idle'] / one.seconds * 1e3 for one, _ in rounds],
            'ms',
        ),
        Row.of('CPU time of PostgreSQL for an idle process in a second', [resting * 1e3], 'ms'),
    ]


async def _at_rest(databases: Databases, seconds: float) -> float:
    """Return the CPU seconds that PostgreSQL takes in a second while no process has a task."""
    begin, cpu = time.monotonic(), databases.postgres_cpu()
    await asyncio.sleep(seconds)
    return (databases.postgres_cpu() - cpu) / (time.monotonic() - begin)


async def notify(size: Size, databases: Databases) -> list[Row]:
    """Commits a second of PostgreSQL alone: without NOTIFY, with NOTIFY, and with processes that listen."""
    url = databases.make('postgres')
    rows: list[Row] = []
    async with AsyncExitStack() as stack:

        async def connected() -> asyncpg.Connection:
            connection = await asyncpg.connect(url)
            stack.push_async_callback(connection.close)
            return connection

        writers = [await connected() for _ in range(16)]
        await writers[0].execute('CREATE TABLE word (word TEXT)')
        for listeners, sql in ((0, ''), (0, "; NOTIFY words, 'a'"), (LISTENERS, "; NOTIFY words, 'a'")):
            for _ in range(listeners):
                await (await connected()).add_listener('words', lambda *_: None)
            name = f'{"with" if sql else "without"} NOTIFY{f" and {listeners} listeners" if listeners else ""}'
            rates = [await _commits(writers, f"INSERT INTO word VALUES ('a'){sql}", size.seconds) for _ in range(3)]
            rows.append(Row.of(f'commits a second of PostgreSQL alone, {name}', rates, '/s'))
    return rows


async def _commits(writers: Sequence[asyncpg.Connection], sql: str, seconds: float) -> float:
    """Return the commits a second of connections that write at once."""
    begin = time.monotonic()
    done = 0

    async def write(connection: asyncpg.Connection) -> None:
        nonlocal done
        while time.monotonic() < begin + seconds:
            await connection.execute(sql)
            done += 1

    await asyncio.gather(*map(write, writers))
    return done / (time.monotonic() - begin)


async def events(size: Size, databases: Databases) -> list[Row]:
    """Time from a delta until a reader at another process has it."""
    rows: list[Row] = []
    for backend in SHARED:
        url = databases.make(backend)
        with ExitStack() as stack:
            here, there = (stack.enter_context(server(kind='ours', agent='timed', backend=url)) for _ in range(2))
            async with asyncio.timeout(LIMIT):
                while not (ages := await _ages(here, there)):  # the reader came too late
                    pass
        rows.append(Row.of(f'age of an event at another process, {NAMES[backend]}', [age * 1e3 for age in ages], 'ms'))
    return rows


async def recovery(size: Size, databases: Databases) -> list[Row]:
    """Time from `kill -9` of a process until another process runs its task again, with leases of two seconds."""
    rows: list[Row] = []
    for backend in SHARED:
        url = databases.make(backend)
        with ExitStack() as stack:
            other = stack.enter_context(server(kind='ours', agent='timed', backend=url))
            seconds: list[float] = []
            for _ in range(size.recoveries):
                with server(kind='ours', agent='stuck', backend=url) as lost:
                    seconds.append(await _recovered(lost, other))
        rows.append(Row.of(f'recovery from a killed process, {NAMES[backend]}', seconds, 's'))
    return rows


def _connected(served: Served) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f'http://127.0.0.1:{served.port}', timeout=LIMIT, headers=HEADERS)


def _call(method: str, params: Any) -> dict[str, Any]:
    return {'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': params}


async def _ages(here: Served, there: Served) -> list[float]:
    """Return the ages of the deltas, in seconds, after a reader at another process has subscribed."""
    ages: list[float] = []
    async with _connected(here) as sender, _connected(there) as reader:
        sent = _call('SendStreamingMessage', {'message': message('stream')})
        async with sender.stream('POST', '/', json=sent) as opened:
            lines = opened.aiter_lines()  # a name keeps the iterator: without it, the stream would be closed
            task = json.loads(await _first_data(lines))['result']['task']['id']
            async with reader.stream('POST', '/', json=_call('SubscribeToTask', {'id': task})) as response:
                async for line in response.aiter_lines():
                    if '"artifactUpdate"' in line:
                        now = time.time_ns()
                        update = json.loads(line.removeprefix('data:'))['result']['artifactUpdate']
                        times = [at for part in update['artifact']['parts'] for at in part['text'].split()]
                        ages += [(now - int(at)) / 1e9 for at in times]
    return ages


async def _first_data(lines: AsyncIterator[str]) -> str:
    while not (line := await anext(lines)).startswith('data:'):
        pass
    return line.removeprefix('data:')


async def _recovered(lost: Served, other: Served) -> float:
    """Kill a process, and return the seconds until the other process runs its task again."""
    async with _connected(lost) as sender, _connected(other) as reader:
        params = {'message': message('stuck'), 'configuration': {'returnImmediately': True}}
        sent = (await sender.post('/', json=_call('SendMessage', params))).json()
        task = sent['result']['task']['id']
        await _reached(sender, task, 'TASK_STATE_WORKING')
        killed = time.time_ns()
        os.kill(lost.pid, signal.SIGKILL)
        done = await _reached(reader, task, 'TASK_STATE_COMPLETED')
    return (int(done['artifacts'][0]['parts'][0]['text']) - killed) / 1e9


async def _reached(client: httpx.AsyncClient, task_id: str, state: str) -> dict[str, Any]:
    """Return the task once it is in a state."""
    async with asyncio.timeout(LIMIT):
        while True:
            task = (await client.post('/', json=_call('GetTask', {'id': task_id}))).json()['result']
            if task['status']['state'] == state:
                return task
            await asyncio.sleep(0.01)
