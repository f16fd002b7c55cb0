"""Servers in processes of their own, and what tests say to them beside A2A. Every wait is bounded."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from os import WUNTRACED, environ, waitpid
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import pytest

from ..bounds import LIMIT
from .forks import Fork, can_fork

ROOT = Path(__file__).parents[2]
UVLOOP = ('--loop', 'uvloop', '--http', 'httptools')
ASYNCIO = ('--loop', 'asyncio', '--http', 'h11')
SERVERS = pytest.mark.parametrize('options', [UVLOOP, ASYNCIO], ids=['uvloop and httptools', 'asyncio and h11'])
"""The options of uvicorn for its two event loops and parsers."""


class Process:
    """A Python process whose output is read all the time.

    Args:
        arguments: Arguments of Python.
        cwd: Its directory.
        env: Additions to the environment of this process.
        fork: Whether the process may be forked.
        packages: More packages that forked processes share.
        errors: Descriptor of a file for standard error, which is otherwise a part of the output.
    """

    def __init__(
        self,
        *arguments: str,
        cwd: Path = ROOT,
        env: Mapping[str, str] | None = None,
        fork: bool = True,
        packages: Sequence[str] = (),
        errors: int | None = None,
    ) -> None:
        environment = {**environ, **(env or {})}
        self._process = (
            Fork(arguments, cwd=cwd, environment=environment, packages=packages, errors=errors)
            if fork and can_fork(arguments)
            else subprocess.Popen(
                [sys.executable, '-u', '-W', 'error', *arguments],
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if errors is None else errors,
                encoding='utf-8',
            )
        )
        self.output = ''
        self._changed = threading.Condition()
        self._over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                with self._changed:
                    self.output += line
                    self._changed.notify_all()
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until the output has the pattern."""
        end = time.monotonic() + LIMIT
        with self._changed:
            while (found := re.search(pattern, self.output)) is None:
                left = end - time.monotonic()
                if self._over or left <= 0 or not self._changed.wait(left):
                    raise AssertionError(f'{pattern!r} is not in the output:\n{self.output}')
        return found

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def url(self) -> str:
        """Where uvicorn says that it listens; ends in a slash."""
        return self.wait_for(r'Uvicorn running on (http://[^/\s]+)')[1] + '/'

    @property
    def complaints(self) -> list[str]:
        """All that uvicorn and the app wrote but information: warnings, errors, tracebacks."""
        return [line for line in self.output.splitlines() if not line.startswith('INFO: ')]

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop(self) -> None:
        """Hold it where it is, until SIGCONT."""
        if isinstance(self._process, Fork):
            self._process.stop()
        else:
            self.signal(signal.SIGSTOP)
            waitpid(self.pid, WUNTRACED)

    def exit_code(self) -> int:
        """How the process ended, once it has; negative is the signal that ended it."""
        try:
            code = self._process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            raise AssertionError(f'the process does not end; its output:\n{self.output}') from None
        self._reader.join(LIMIT)
        return code

    async def ended(self) -> int:
        """`exit_code`, beside a running event loop."""
        return await asyncio.to_thread(self.exit_code)

    def close(self) -> None:
        """End the process, with force if it needs that."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(LIMIT)
        self._reader.join(LIMIT)


@contextmanager
def process(
    *arguments: str,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    fork: bool = True,
    packages: Sequence[str] = (),
    errors: int | None = None,
) -> Generator[Process]:
    """A Python process that ends with the block; forked, where that is possible and not refused."""
    running = Process(*arguments, cwd=cwd, env=env, fork=fork, packages=packages, errors=errors)
    try:
        yield running
    finally:
        running.close()


@contextmanager
def uvicorn(
    app: str, *options: str, cwd: Path = ROOT, env: Mapping[str, str] | None = None, fork: bool = True
) -> Generator[Process]:
    """`uvicorn module:app` on a free port, up and listening."""
    with process('-m', 'uvicorn', app, '--port', '0', *options, cwd=cwd, env=env, fork=fork) as server:
        assert server.url
        yield server


class Gates:
    """The gates at which the agents of `apps.py` wait."""

    def __init__(self, url: str) -> None:
        self._url = f'{url}gates/'

    async def reached(self, gate: str) -> None:
        """Wait until a run waits at the gate."""
        await self._request('GET', gate, 'reached')

    async def open(self, gate: str) -> None:
        """Let the run go on."""
        await self._request('POST', gate, 'open')

    async def stopped(self, gate: str) -> bool:
        """Whether a run was cancelled at the gate."""
        return (await self._request('GET', gate, 'stopped')).json()

    async def _request(self, method: str, gate: str, path: str) -> httpx.Response:
        # Certificates, which take long to read, are of no use here.
        async with httpx.AsyncClient(timeout=LIMIT, verify=False) as http:
            return (await http.request(method, f'{self._url}{gate}/{path}')).raise_for_status()


def rpc(method: str, **params: Any) -> dict[str, Any]:
    return {'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': params}


def send_streaming(text: str) -> dict[str, Any]:
    message = {'messageId': uuid4().hex, 'role': 'ROLE_USER', 'parts': [{'text': text}]}
    return rpc('SendStreamingMessage', message=message)


def send_without_reading(url: str, body: dict[str, Any]) -> socket.socket:
    """A connection on which a request is sent and the answer not read; the kernel keeps as little as it can."""
    parts, content = urlsplit(url), json.dumps(body).encode()
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(LIMIT)
    connection.connect((parts.hostname, parts.port))
    head = 'POST / HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\n'
    connection.sendall(f'{head}Content-Length: {len(content)}\r\n\r\n'.encode() + content)
    return connection
