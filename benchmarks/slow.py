"""The cost of slow clients for other callers.

Connections send a byte of a body every two seconds, and nobody reads a number of streams. Meanwhile another caller
asks for the card and sends messages. The slow clients are a process of their own:
`python -m benchmarks.slow PORT CONNECTIONS STREAMS`.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import median

from .footprint import stall
from .load import DONE, HEAD, Connection, get_card, send, stream
from .report import Row
from .servers import ROOT, Databases, Served, server
from .sizes import Size

TRICKLE = 2.0
"""Seconds between two bytes of a connection."""
BODY = 500_000
"""Bytes of a body that never comes whole: a larger one would be refused at once."""
SEND_BUFFER = 16_384
WARM_UP = 30
"""Requests of each kind before the measured ones."""
REQUESTS = {'card': (get_card, b'benchmark'), 'send': (send, DONE)}


async def trickle(served: Served, number: int, connections: int, begun: asyncio.Semaphore) -> None:
    """Send a byte now and then; open another connection once the server has closed this one."""
    while True:
        async with begun:
            reader, writer = await asyncio.open_connection('127.0.0.1', served.port)
            writer.write(HEAD.format(BODY).encode())
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


async def be_slow(served: Served, connections: int, streams: int) -> None:
    """Be slow until the process is ended; write a line once all clients are connected."""
    begun = asyncio.Semaphore(50)
    open_streams = [await asyncio.to_thread(stall, served, stream('fill')) for _ in range(streams)]
    tasks = [asyncio.create_task(trickle(served, n, connections, begun)) for n in range(connections)]
    await asyncio.sleep(TRICKLE)
    print(f'{len(open_streams)} streams, {len(tasks)} connections', flush=True)
    await asyncio.gather(*tasks)


@contextmanager
def slow_clients(served: Served, connections: int, streams: int) -> Iterator[None]:
    """Run slow clients for a block."""
    command = [sys.executable, '-m', 'benchmarks.slow', str(served.port), str(connections), str(streams)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            if not process.stdout.readline():
                raise RuntimeError('The slow clients could not begin.')
            yield
        finally:
            process.kill()


async def medians(served: Served, requests: int) -> Mapping[str, float]:
    """Return the median seconds of each request, one after the other on one connection."""
    connection = await Connection.open(served)
    times: dict[str, list[float]] = {name: [] for name in REQUESTS}
    for number in range(requests + WARM_UP):
        for name, (request, shows) in REQUESTS.items():
            begin = time.perf_counter()
            await connection.exchange(request(), shows=shows)
            if number >= WARM_UP:
                times[name].append(time.perf_counter() - begin)
    await connection.close()
    return {name: median(seconds) for name, seconds in times.items()}


async def slow(size: Size, databases: Databases) -> list[Row]:
    """Latency of another caller beside slow clients, over the latency without slow clients."""
    allow_files(size.slow + size.stalled + 100)
    rounds: list[tuple[Mapping[str, float], Mapping[str, float]]] = []
    for _ in range(min(3, size.rounds)):
        with server(kind='ours', agent='large', send_buffer=SEND_BUFFER) as served:
            alone = await medians(served, size.requests)
            with slow_clients(served, size.slow, size.stalled):
                rounds.append((alone, await medians(served, size.requests)))
    beside = f'beside {size.slow:,} slow connections and {size.stalled:,} stalled streams'
    return [
        Row.of(f'latency of a {name} {beside}', [both[name] / alone[name] for alone, both in rounds])
        for name in REQUESTS
    ]


def allow_files(needed: int) -> None:
    """Allow a number of connections for this process and its children."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        sys.exit(f'The benchmark needs {needed} open files, and the limit is {hard}: see `ulimit -Hn`.')
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


if __name__ == '__main__':
    PORT, CONNECTIONS, STREAMS = map(int, sys.argv[1:])
    asyncio.run(be_slow(Served(0, PORT), CONNECTIONS, STREAMS))
