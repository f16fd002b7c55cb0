"""Measures the backends side by side; see README.md. Prints Markdown tables."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from backend_targets import agent
from load import LIMIT, Served, load, rate, server
from pydantic_ai.agent import WrapperAgent

sys.path.insert(0, str(Path(__file__).parent.parent))

from pydantic_ai_a2a import Retention, to_a2a
from tests.postgres import postgres_server

NAMES = ('memory', 'SQLite file', 'PostgreSQL')
TURNS = (1, 50, 200, 500)
AROUND = 20
"""Turns from each of them on, of which the median is taken."""


@dataclass(frozen=True)
class Store:
    """A backend under test: makes empty databases, and says how many bytes were written to one."""

    name: str
    make: Callable[[], str]
    written: Callable[[], int]
    shared: bool
    """Whether several processes can use it."""


@contextmanager
def stores() -> Iterator[list[Store]]:
    """The backends, for the block."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        postgres = stack.enter_context(postgres_server())
        files = (f'sqlite:///{folder}/{n}.db' for n in range(100))
        position = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"
        yield [
            Store(NAMES[0], lambda: 'memory', lambda: 0, shared=False),
            Store(NAMES[1], lambda: next(files), bytes_written, shared=True),
            Store(
                NAMES[2],
                lambda: postgres.url(postgres.create()),
                lambda: int(postgres.run(position)[0]),
                shared=True,
            ),
        ]


def bytes_written() -> int:
    """What this process has written so far."""
    fields = dict(line.split(': ') for line in Path('/proc/self/io').read_text().splitlines())
    return int(fields['wchar'])


# --- turns of one conversation ----------------------------------------------------------------------------------------


class Timed(WrapperAgent[Any, Any]):
    """Counts the time that the agent itself takes."""

    spent = 0.0

    @asynccontextmanager
    async def iter(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        begin = time.perf_counter()
        async with super().iter(*args, **kwargs) as run:
            yield run
        self.spent += time.perf_counter() - begin


async def turns(store: Store, until: int) -> dict[int, tuple[float, float]]:
    """By turn: our seconds, and bytes written."""
    timed = Timed(agent)
    app = to_a2a(timed, backend=store.make(), retention=Retention(namespace='turns'))
    ours: list[float] = []
    written: list[int] = []
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url='http://a') as client:
        for n in range(until):
            before, spent, begin = store.written(), timed.spent, time.perf_counter()
            await send(client, 'SendMessage', 'Hello, agent!', message_id=f'turn-{n:020d}')
            ours.append(time.perf_counter() - begin - (timed.spent - spent))
            written.append(store.written() - before)
    return {
        turn: (statistics.median(ours[turn - 1 : turn - 1 + AROUND]), statistics.median(written[turn - 1 :][:AROUND]))
        for turn in TURNS
        if turn <= until
    }


def body(method: str, text: str, message_id: str, **more: Any) -> dict[str, Any]:
    message = {'messageId': message_id, 'contextId': 'context', 'role': 'ROLE_USER', 'parts': [{'text': text}]}
    return {'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': {'message': message, **more}}


HEADERS = {'A2A-Version': '1.0'}


async def send(client: httpx.AsyncClient, method: str, text: str, *, message_id: str, **more: Any) -> dict[str, Any]:
    answered = await client.post('/', json=body(method, text, message_id, **more), headers=HEADERS)
    task = answered.json()['result']['task']
    assert more or task['status']['state'] == 'TASK_STATE_COMPLETED', task
    return task


# --- processes --------------------------------------------------------------------------------------------------------


def connected(served: Served) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f'http://127.0.0.1:{served.port}', timeout=LIMIT)


async def latency(here: Served, there: Served) -> list[float]:
    """Seconds from a delta in one process until a reader at the other has it, of the deltas after it has subscribed."""
    ages: list[float] = []
    async with connected(here) as sender, connected(there) as reader:
        streamed = body('SendStreamingMessage', 'stream', f'latency-{time.time_ns()}')
        async with sender.stream('POST', '/', json=streamed, headers=HEADERS) as stream:
            lines = stream.aiter_lines()  # kept: the stream is closed with it, and then nobody watches the task here
            task = json.loads(await first_data(lines))['result']['task']['id']
            subscribe = {'jsonrpc': '2.0', 'id': 2, 'method': 'SubscribeToTask', 'params': {'id': task}}
            async with reader.stream('POST', '/', json=subscribe, headers=HEADERS) as events:
                async for line in events.aiter_lines():
                    if '"artifactUpdate"' in line:
                        now = time.time_ns()
                        parts = json.loads(line.removeprefix('data:'))['result']['artifactUpdate']['artifact']['parts']
                        ages += [(now - int(at)) / 1e9 for part in parts for at in part['text'].split()]
    assert ages, 'The stream ended before the reader had subscribed.'
    return ages


async def first_data(lines: AsyncIterator[str]) -> str:
    while not (line := await anext(lines)).startswith('data:'):
        pass
    return line.removeprefix('data:')


async def recovery(lost: Served, left: Served) -> float:
    """Seconds from the end of a process until another one runs its task anew."""
    async with connected(lost) as sender, connected(left) as reader:
        task = await send(
            sender,
            'SendMessage',
            'stuck',
            message_id=f'recovery-{time.time_ns()}',
            configuration={'returnImmediately': True},
        )
        await reached(reader, task['id'], 'TASK_STATE_WORKING')
        killed = time.time_ns()
        os.kill(lost.pid, signal.SIGKILL)
        done = await reached(reader, task['id'], 'TASK_STATE_COMPLETED')
    return (int(done['artifacts'][0]['parts'][0]['text']) - killed) / 1e9


def recoveries(backend: str, lost: Served, left: Served, count: int) -> str:
    """The median of so many recoveries, each from the end of another process."""
    seconds = [asyncio.run(recovery(lost, left))]
    for _ in range(count - 1):
        with server('backend_targets.py', backend, 'stuck') as each:
            seconds.append(asyncio.run(recovery(each, left)))
    return f'{statistics.median(seconds):.1f}'


async def reached(client: httpx.AsyncClient, task_id: str, state: str) -> dict[str, Any]:
    """The task, once it is in a state."""
    get = {'jsonrpc': '2.0', 'id': 1, 'method': 'GetTask', 'params': {'id': task_id}}
    async with asyncio.timeout(LIMIT):
        while True:
            task = (await client.post('/', json=get, headers=HEADERS)).json()['result']
            if task['status']['state'] == state:
                return task
            await asyncio.sleep(0.01)


def processes(store: Store, options: argparse.Namespace) -> list[str]:
    """Tasks a second, latency, recovery and memory of one backend."""
    backend = store.make()
    with ExitStack() as stack:
        lost = stack.enter_context(server('backend_targets.py', backend, 'stuck'))
        other = stack.enter_context(server('backend_targets.py', backend)) if store.shared else lost
        asyncio.run(load(lost, 'SendMessage', connections=options.connections, seconds=options.seconds / 2))
        rounds = [
            asyncio.run(load(lost, 'SendMessage', connections=options.connections, seconds=options.seconds))
            for _ in range(options.rounds)
        ]
        before = lost.memory()
        kept = asyncio.run(load(lost, 'SendMessage', connections=16, seconds=10 * LIMIT, tasks=options.tasks)).tasks
        grown = (lost.memory() - before) / kept / 1000
        ages = asyncio.run(latency(lost, other))
        recovered = recoveries(backend, lost, other, options.recoveries) if store.shared else '–'
    cpu = statistics.median(each.cpu_per_task for each in rounds) * 1e6
    return [f'{rate(rounds):,.0f}', f'{cpu:,.0f}', f'{statistics.median(ages) * 1e3:.1f}', recovered, f'{grown:.1f}']


# --- tables -----------------------------------------------------------------------------------------------------------


def table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ['---', *('---:' for _ in columns[1:])], *rows]
    return '\n'.join('| ' + ' | '.join(line) + ' |' for line in lines) + '\n'


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--rounds', type=int, default=5, help='rounds of load (default: %(default)s)')
    parser.add_argument('--seconds', type=float, default=1.0, help='length of a round (default: %(default)s)')
    parser.add_argument('--connections', type=int, default=16, help='connections kept busy (default: %(default)s)')
    parser.add_argument('--tasks', type=int, default=10_000, help='tasks for the memory figure (default: %(default)s)')
    parser.add_argument('--recoveries', type=int, default=5, help='processes to kill (default: %(default)s)')
    parser.add_argument('--only', action='append', choices=NAMES, help='measure this backend only; may be repeated')
    parser.add_argument('--quick', action='store_true', help='a few seconds, only to see that it works')
    parser.add_argument('--out', type=Path, help='write the tables to this file, too')
    options = parser.parse_args()
    options.turns = TURNS[-1] + AROUND
    if options.quick:
        options.rounds, options.seconds, options.connections, options.tasks, options.turns = 1, 0.2, 4, 50, 50 + AROUND
        options.recoveries = 2
    return options


def main() -> None:
    options = parse()
    turn_rows: list[list[str]] = []
    process_rows: list[list[str]] = []
    with stores() as compared:
        for store in compared:
            if options.only and store.name not in options.only:
                continue
            by_turn = asyncio.run(turns(store, options.turns))
            cells = [f'{seconds * 1e3:.1f} ms, {written / 1000:.0f} kB' for seconds, written in by_turn.values()]
            turn_rows.append([store.name, *cells])
            process_rows.append([store.name, *processes(store, options)])
    turn_columns = ['Our part of a turn', *(f'turn {turn}' for turn in by_turn)]
    process_columns = ['', 'tasks/s', 'CPU µs', 'event ms', 'recovery s', 'kB/task kept']
    text = '\n'.join([table(turn_columns, turn_rows), table(process_columns, process_rows)])
    print(text)
    if options.out is not None:
        options.out.write_text(text)


if __name__ == '__main__':
    main()
