"""Measures `to_a2a` beside a hand-written route; see README.md. Prints a Markdown table."""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

TARGETS = ('route', 'to_a2a')
DELTAS = 50
CASES = {
    'plain send': ('SendMessage', 'streams'),
    'plain send, model cannot stream': ('SendMessage', 'cannot stream'),
    f'stream of {DELTAS} deltas': ('SendStreamingMessage', 'streams'),
}
"""The method that is called and the model that answers, by the row of the table."""
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
def server(name: str, model: str) -> Iterator[Served]:
    """A server in a process of its own."""
    command = [sys.executable, str(Path(__file__).with_name('targets.py')), name, model]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
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


async def measure(method: str, servers: dict[str, Served], options: argparse.Namespace) -> dict[str, list[Round]]:
    """Rounds of all servers in turn, after a warm-up."""
    rounds: dict[str, list[Round]] = {name: [] for name in servers}
    for served in servers.values():
        await load(served, method, connections=options.connections, seconds=options.seconds / 2)
    for _ in range(options.rounds):
        for name, served in servers.items():
            rounds[name].append(await load(served, method, connections=options.connections, seconds=options.seconds))
    return rounds


def rate(rounds: list[Round]) -> float:
    """Tasks per second in the best round: other work on the machine only ever takes away."""
    return max(each.tasks / each.seconds for each in rounds)


def row(label: str, rounds: dict[str, list[Round]]) -> str:
    pairs = zip(rounds['to_a2a'], rounds['route'], strict=True)
    ratio = statistics.median(ours.cpu_per_task / theirs.cpu_per_task for ours, theirs in pairs)
    cells = [label, f'{ratio:.2f}']
    for name in TARGETS:
        cpu = statistics.median(each.cpu_per_task for each in rounds[name])
        cells += [f'{cpu * 1e6:,.0f}', f'{rate(rounds[name]):,.0f}']
    return '| ' + ' | '.join(cells) + ' |'


async def memory(served: Served, tasks: int) -> str:
    """How much the server grows with finished tasks that it keeps."""
    await load(served, 'SendMessage', connections=16, seconds=LIMIT, tasks=100)
    before = served.memory()
    done = await load(served, 'SendMessage', connections=16, seconds=LIMIT, tasks=tasks)
    return f'{(served.memory() - before) / done.tasks / 1000:,.1f} kB for each of {done.tasks:,} finished tasks kept'


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--rounds', type=int, default=10, help='turns of each server (default: %(default)s)')
    parser.add_argument('--seconds', type=float, default=1.0, help='length of a turn (default: %(default)s)')
    parser.add_argument('--connections', type=int, default=16, help='connections kept busy (default: %(default)s)')
    parser.add_argument('--tasks', type=int, default=2000, help='tasks for the memory figure (default: %(default)s)')
    parser.add_argument('--quick', action='store_true', help='a few seconds, only to see that it works')
    parser.add_argument('--out', type=Path, help='write the table to this file, too')
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds, options.connections, options.tasks = 1, 0.2, 4, 50
    return options


def main() -> None:
    options = parse()
    rows: list[str] = []
    notes: list[str] = []
    with ExitStack() as stack:
        servers = {
            model: {name: stack.enter_context(server(name, model)) for name in TARGETS}
            for model in dict.fromkeys(model for _, model in CASES.values())
        }
        for label, (method, model) in CASES.items():
            rounds = asyncio.run(measure(method, servers[model], options))
            rows.append(row(label, rounds))
            if method == 'SendStreamingMessage':
                deltas = ', '.join(f'{name} {rate(rounds[name]) * DELTAS:,.0f}' for name in TARGETS)
                notes.append(f'Deltas per second: {deltas}.')
        kept = asyncio.run(memory(servers['cannot stream']['to_a2a'], options.tasks))
        notes.append(f'Memory: {kept}.')
    columns = ['', 'CPU per task, ratio']
    for name in TARGETS:
        columns += [f'{name}: CPU µs', f'{name}: tasks/s']
    table = ['| ' + ' | '.join(columns) + ' |', '|---|' + '---:|' * (len(columns) - 1), *rows]
    text = '\n'.join([*table, '', *notes, ''])
    print(text)
    if options.out is not None:
        options.out.write_text(text)


if __name__ == '__main__':
    main()
