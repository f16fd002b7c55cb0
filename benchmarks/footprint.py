"""Memory, pages and imports: sizes rather than times, and the growth of a conversation."""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from pydantic_ai.agent import WrapperAgent

from pydantic_ai_a2a import Retention, to_a2a

from .agents import plain
from .load import LIMIT, Connection, load, message, send, stream
from .ratios import NAMES, ours
from .report import Row
from .servers import SERVER_CORE, Databases, Served, cpu_of, pin, server
from .sizes import Size

WAL_HEADER, FRAME_HEADER, PAGE = 32, 24, 4096
AROUND = 10
"""Turns of which the median is taken."""
IMPORTS = {'pydantic_ai': 'import pydantic_ai', 'ours': 'from pydantic_ai_a2a import to_a2a'}

COMMAND = ('-m', 'pydantic_ai_a2a')
COMMANDS = {
    '--version': (),
    '--help': (),
    'card': ('{}',),
    'tasks': ('{}',),
    'doctor': ('{}',),
    'send': ('{}', 'Hello!'),
}


async def memory(size: Size, databases: Databases) -> list[Row]:
    """Resident bytes that a finished task adds."""
    with ExitStack() as stack:
        served = ours(stack, databases, 'plain', 'memory')
        await load(served, connections=16, tasks=min(1000, size.tasks))
        before = served.memory()
        done = await load(served, connections=16, tasks=size.tasks)
        return [Row.of('memory of a finished task', [(served.memory() - before) / done.tasks / 1e3], 'kB')]


async def stalled(size: Size, databases: Databases) -> list[Row]:
    """Resident bytes that a stream of 10 MB adds while its reader does not read, and the task of another caller."""
    rows: list[Row] = []
    for backend in ('memory', 'full'):
        with ExitStack() as stack:
            served = ours(stack, databases, 'large', backend)
            await load(served, connections=1, tasks=5)
            before = served.memory()
            reader = stack.enter_context(stall(served, stream('flood')))
            await settled(served)
            grown = (served.memory() - before) / 1e6
            other = await load(served, connections=1, tasks=20)
            reader.close()
        rows.append(Row.of(f'stalled reader of 10 MB, {NAMES[backend]}', [grown], 'MB'))
        rows.append(Row.of(f'task beside a stalled reader, {NAMES[backend]}', [other.seconds / 20 * 1e3], 'ms'))
    return rows


def stall(served: Served, request: bytes) -> socket.socket:
    """Open a stream of which only the head is read."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(LIMIT)
    connection.connect(('127.0.0.1', served.port))
    connection.sendall(request)
    connection.recv(512)
    return connection


async def settled(served: Served) -> None:
    """Wait until the server is idle: all deltas are made."""
    until, cpu = time.monotonic() + LIMIT, -1.0
    while time.monotonic() < until and served.cpu() - cpu > 0.02:
        cpu = served.cpu()
        await asyncio.sleep(0.5)


# --- a turn of a conversation in a file -------------------------------------------------------------------------------


def frames(wal: Path) -> tuple[int, int]:
    """Return the pages and the commits in a WAL file of SQLite."""
    pages = commits = 0
    with wal.open('rb') as file:
        file.seek(WAL_HEADER)
        while len(head := file.read(FRAME_HEADER)) == FRAME_HEADER:
            pages += 1
            commits += struct.unpack('>II', head[:8])[1] != 0  # the size of the database, in the last frame of a commit
            file.seek(PAGE, os.SEEK_CUR)
    return pages, commits


async def written(size: Size, databases: Databases) -> list[Row]:
    """Pages and commits of a turn in one context, counted in the WAL."""
    url = databases.make('full')
    turns = min(30, size.turns)
    with ExitStack() as stack:
        served = stack.enter_context(server(kind='ours', agent='plain', backend=url))
        connection = await Connection.open(served)
        wal = Path(url.removeprefix('sqlite:///').partition('?')[0] + '-wal')
        for _ in range(5):
            await connection.exchange(send(contextId='context'))
        counts: list[tuple[int, int]] = []
        for _ in range(turns):
            pages, commits = frames(wal)
            await connection.exchange(send(contextId='context'))
            after = frames(wal)
            counts.append((after[0] - pages, after[1] - commits))
        await connection.close()
    return [
        Row.of('pages written a turn, SQLite', [float(number) for number, _ in counts], 'pages'),
        Row.of('commits a turn, SQLite', [float(commits) for _, commits in counts], 'commits'),
        Row.of('bytes of the WAL a turn, SQLite', [number * (PAGE + FRAME_HEADER) / 1e3 for number, _ in counts], 'kB'),
    ]


class Timed(WrapperAgent[Any, Any]):
    """Counts the CPU time of the agent itself."""

    spent = 0.0

    @asynccontextmanager
    async def iter(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        begin = time.process_time()
        async with super().iter(*args, **kwargs) as run:
            yield run
        self.spent += time.process_time() - begin


async def turns(size: Size, databases: Databases) -> list[Row]:
    """Our part of a turn at the end of a conversation, over our part at its beginning: 1 means no growth."""
    return [
        Row.of(
            f'our part of turn {size.turns} over turn 1, {NAMES[backend]}', [await _growth(size, databases, backend)]
        )
        for backend in ('memory', 'normal', 'postgres')
    ]


async def _growth(size: Size, databases: Databases, backend: str) -> float:
    timed = Timed(plain())
    app = to_a2a(timed, backend=databases.make(backend), retention=Retention(namespace='turns'))
    parts: list[float] = []
    transport = httpx.ASGITransport(app)
    headers = {'A2A-Version': '1.0'}
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url='http://a') as client:
        for number in range(size.turns + AROUND):
            spent, begin = timed.spent, time.process_time()
            params = {'message': message(contextId='context')}
            body = {'jsonrpc': '2.0', 'id': 1, 'method': 'SendMessage', 'params': params}
            response = await client.post('/', json=body, headers=headers)
            assert 'TASK_STATE_COMPLETED' in response.text, (number, response.text)
            parts.append(time.process_time() - begin - (timed.spent - spent))
    await asyncio.to_thread(app.backend.close)
    return statistics.median(parts[-AROUND:]) / statistics.median(parts[1 : 1 + AROUND])


# --- imports and commands ---------------------------------------------------------------------------------------------


async def imports(size: Size, databases: Databases) -> list[Row]:
    """CPU time of the import of the package over that of Pydantic AI, from bytecode that the first round writes."""
    rounds = [{name: _cpu('-c', code) for name, code in IMPORTS.items()} for _ in range(size.rounds + 1)][1:]
    return [Row.of('import over `pydantic_ai`', [each['ours'] / each['pydantic_ai'] for each in rounds])]


async def commands(size: Size, databases: Databases) -> list[Row]:
    """CPU time of commands; and of `serve` until it serves, over that of an import of its agent."""
    (databases.folder / 'joker.py').write_text("from pydantic_ai import Agent\nagent = Agent('test')\n")
    with ExitStack() as stack:
        served = ours(stack, databases, 'plain', 'memory')
        rounds = [_commands(f'http://127.0.0.1:{served.port}', databases.folder) for _ in range(size.rounds + 1)][1:]
    return [
        *(Row.of(f'CPU time of `{name}`', [each[name] for each in rounds], 's') for name in COMMANDS),
        Row.of('`serve` over an import of its agent', [each['serve'] / each['agent'] for each in rounds]),
    ]


def _commands(url: str, folder: Path) -> dict[str, float]:
    seconds = {name: _cpu(*COMMAND, name, *(word.format(url) for word in words)) for name, words in COMMANDS.items()}
    code = f'import sys; sys.path.insert(0, {str(folder)!r}); import joker'
    return {**seconds, 'agent': _cpu('-c', code), 'serve': _cpu_of_serve(folder)}


def _cpu(*arguments: str) -> float:
    """Return the CPU seconds of a Python process."""
    with _python(*arguments, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, arguments
    return usage.ru_utime + usage.ru_stime


def _cpu_of_serve(folder: Path) -> float:
    """Return the CPU seconds until a server listens."""
    arguments = [*COMMAND, 'serve', '--app-dir', str(folder), '--port', '0', 'joker:agent']
    with _python(*arguments, stdout=subprocess.PIPE) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if b' running on ' in line:
                break
        seconds = cpu_of(process.pid)
        process.terminate()
        process.communicate()
    return seconds


def _python(*arguments: str, stdout: int) -> subprocess.Popen[bytes]:
    # An environment with this variable would compile each changed module at each import.
    environment = {name: value for name, value in os.environ.items() if name != 'PYTHONDONTWRITEBYTECODE'}
    command = [sys.executable, *arguments]
    process = subprocess.Popen(command, env=environment, stdout=stdout, stderr=subprocess.PIPE)
    pin(process.pid, SERVER_CORE)
    return process
