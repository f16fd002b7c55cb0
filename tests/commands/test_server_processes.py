"""The parent of several server processes."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import NamedTuple

from pydantic_ai_a2a.commands.server_processes import ServerProcesses


class Options(NamedTuple):
    starts: Path
    """A file with a byte for each start of a process."""
    workers: int = 1


def end_at_once(options: Options, listener: socket.socket) -> None:
    """End as soon as the process has started; a second one with an error."""
    with options.starts.open('a') as file:
        file.write('x')
    sys.exit(0 if options.starts.read_text() == 'x' else 7)


def test_server_process_with_exit_code_0_is_not_replaced(tmp_path: Path) -> None:
    starts = tmp_path / 'starts'
    with socket.create_server(('127.0.0.1', 0)) as listener:
        assert ServerProcesses(end_at_once, Options(starts), listener).run() == 0
    assert starts.read_text() == 'x'
