"""a2a-handler: what its command line prints."""

from __future__ import annotations

import asyncio
import os
import tempfile
from typing import Any

from driver import drive

HOME = tempfile.TemporaryDirectory()
os.environ['HOME'] = HOME.name  # before the import, which reads the files of the user


async def run(url: str, command: str) -> dict[str, Any]:
    from a2a_handler.cli import cli
    from click.testing import CliRunner

    arguments = ['message', command, '--url', url, '--text', 'Go']
    done = await asyncio.to_thread(CliRunner().invoke, cli, arguments, catch_exceptions=False)
    lines = [line for line in done.stdout.splitlines() if not line.startswith(('event: ', 'task id: '))]
    return {'answer': '\n'.join(lines)}


async def stream(url: str) -> dict[str, Any]:
    return await run(url, 'stream')


async def send(url: str) -> dict[str, Any]:
    return await run(url, 'send')


drive(stream=stream, send=send)
