"""Measures what slow clients cost the others; see README.md. Prints a Markdown table. Linux only."""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from load import LIMIT, Served, server

CARD = '/.well-known/agent-card.json'
TRICKLE = 2.0
"""Seconds between two bytes of a connection."""
BODY = 500_000
"""Bytes of a body that never comes whole: a larger one would be refused at once."""
_HEAD = '\r\n'.join(
    (
        'POST / HTTP/1.1',
        'Host: localhost',
        'Content-Type: application/json',
        'A2A-Version: 1.0',
        'Content-Length: {}',
        '\r\n',
    )
)
_ids = count(1)
Times = dict[str, list[float]]


def call(method: str, text: str) -> bytes:
    message = {'messageId': f'slow-{time.time_ns()}-{next(_ids)}', 'role': 'ROLE_USER', 'parts': [{'text': text}]}
    return json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': {'message': message}}).encode()


# --- slow clients, in a process of their own -------------------------------------------------------------------------


async def trickle(port: int, number: int, connections: int, begun: asyncio.Semaphore) -> None:
    """A connection that sends a byte now and then; when the server has had enough of it, another one."""
    while True:
        async with begun:
            reader, writer = await asyncio.open_connection('127.0.0.1', port)
            writer.write(_HEAD.format(BODY).encode())
        await asyncio.sleep(TRICKLE * number / connections)  # not all at the same moment
        while not reader.at_eof():
            try:
                writer.write(b' ')
                await writer.drain()
                await asyncio.wait_for(reader.read(4096), TRICKLE)
            except TimeoutError:
                continue
            except OSError:
                break
        writer.close()


def stall(port: int) -> socket.socket:
    """A stream of which nothing is read but its head."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(LIMIT)
    connection.connect(('127.0.0.1', port))
    body = call('SendStreamingMessage', 'fill')
    connection.sendall(_HEAD.format(len(body)).encode() + body)
    connection.recv(512)
    return connection


async def be_slow(port: int, connections: int, streams: int) -> None:
    """Be slow until the process is ended; say when all clients are there."""
    begun = asyncio.Semaphore(50)
    stalled = [await asyncio.to_thread(stall, port) for _ in range(streams)]
    tasks = [asyncio.create_task(trickle(port, n, connections, begun)) for n in range(connections)]
    await asyncio.sleep(TRICKLE)
    print(f'{len(stalled)} streams, {len(tasks)} connections', flush=True)
    await asyncio.gather(*tasks)


@contextmanager
def slow_clients(served: Served, connections: int, streams: int) -> Generator[None]:
    """Slow clients, for a block."""
    arguments = ['--be-slow', str(served.port), '--connections', str(connections), '--streams', str(streams)]
    with subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if not process.stdout.readline():
                raise RuntimeError('the slow clients could not begin')
            yield
        finally:
            process.kill()


# --- the others ------------------------------------------------------------------------------------------------------


def fetch(connection: http.client.HTTPConnection) -> None:
    connection.request('GET', CARD)
    response = connection.getresponse()
    if response.status != 200 or b'benchmark' not in response.read():
        raise RuntimeError(f'no card: {response.status}')


def send(connection: http.client.HTTPConnection) -> None:
    headers = {'Content-Type': 'application/json', 'A2A-Version': '1.0'}
    connection.request('POST', '/', call('SendMessage', 'Hello, agent!'), headers)
    body = connection.getresponse().read()
    if b'TASK_STATE_COMPLETED' not in body:
        raise RuntimeError(f'not completed: {body[-300:]!r}')


REQUESTS: dict[str, Callable[[http.client.HTTPConnection], None]] = {'card': fetch, 'send': send}


def measure(served: Served, requests: int) -> Times:
    """Seconds of each request, one after the other on one connection."""
    connection = http.client.HTTPConnection('127.0.0.1', served.port, timeout=LIMIT)
    times: Times = {name: [] for name in REQUESTS}
    for n in range(requests + 5):
        for name, request in REQUESTS.items():
            begin = time.perf_counter()
            request(connection)
            if n >= 5:  # the first ones warm up
                times[name].append(time.perf_counter() - begin)
    connection.close()
    return times


def row(name: str, idle: list[Times], slow: list[Times]) -> str:
    """Medians, and the median over the rounds of how they compare within one."""
    middle = [(statistics.median(a[name]), statistics.median(b[name])) for a, b in zip(idle, slow, strict=True)]
    ratio = statistics.median(b / a for a, b in middle)
    before, after = (statistics.median(each) * 1000 for each in zip(*middle, strict=True))
    return f'| {name} | {before:.2f} | {after:.2f} | {ratio:.2f} |'


def allow_files(needed: int) -> None:
    """See that a process may have so many connections: a child has the limits of its parent."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        sys.exit(f'This needs {needed} open files, and the limit is {hard}: see `ulimit -Hn`.')
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--connections', type=int, default=1000, help='that send a byte now and then')
    parser.add_argument('--streams', type=int, default=200, help='of which nobody reads')
    parser.add_argument('--rounds', type=int, default=3, help='idle and busy in turn (default: %(default)s)')
    parser.add_argument('--requests', type=int, default=200, help='of each kind in a turn (default: %(default)s)')
    parser.add_argument('--quick', action='store_true', help='a few seconds, only to see that it works')
    parser.add_argument('--out', type=Path, help='write the table to this file, too')
    parser.add_argument('--be-slow', type=int, metavar='PORT', help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.connections, options.streams, options.rounds, options.requests = 50, 5, 1, 10
    return options


def main() -> None:
    options = parse()
    if options.be_slow is not None:
        asyncio.run(be_slow(options.be_slow, options.connections, options.streams))
        return
    allow_files(options.connections + options.streams + 100)
    idle: list[Times] = []
    slow: list[Times] = []
    for _ in range(options.rounds):
        with server('slow_target.py') as served:
            idle.append(measure(served, options.requests))
            with slow_clients(served, options.connections, options.streams):
                slow.append(measure(served, options.requests))
    rows = [row(name, idle, slow) for name in REQUESTS]
    clients = f'{options.connections:,} slow connections, {options.streams:,} stalled streams'
    text = '\n'.join([f'| | idle: ms | {clients}: ms | ratio |', '|---|---:|---:|---:|', *rows, ''])
    print(text)
    if options.out is not None:
        options.out.write_text(text)


if __name__ == '__main__':
    main()
