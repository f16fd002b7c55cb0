"""Processes of `fork_server.py`. They run modules and scripts as Python does, without the seconds that imports take."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO

from ..bounds import LIMIT

__all__ = ('PYTEST', 'Fork', 'can_fork')

PYTEST = ('-m', 'pytest', '-p', 'no:inline_snapshot', '-W', 'ignore::pytest.PytestAssertRewriteWarning')
"""A pytest that is forked. The fork server imports plugins before pytest can rewrite the assertions of plugins."""


def can_fork(arguments: Sequence[str]) -> bool:
    """Return whether a process with the arguments can be forked: a module or a script on Linux."""
    return sys.platform == 'linux' and (arguments[0] == '-m' or arguments[0].endswith('.py'))


@cache
def _server() -> socket.socket:
    """Start the fork server of this process, which ends with this process."""
    requests, stdin = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    script = Path(__file__).with_name('fork_server.py')
    with stdin:
        server = subprocess.Popen(
            [sys.executable, '-u', '-W', 'error', script], stdin=stdin.fileno(), cwd=script.parent
        )

    def end() -> None:
        requests.close()
        server.wait(LIMIT)

    atexit.register(end)
    return requests


class Fork:
    """A process, with the methods of `subprocess.Popen` that tests use."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        environment: Mapping[str, str],
        packages: Sequence[str] = (),
        errors: int | None = None,
    ) -> None:
        request = {
            'arguments': arguments,
            'cwd': str(cwd),
            'environment': dict(environment),
            'packages': packages,
        }
        output, output_of_process = os.pipe()
        states, states_of_process = os.pipe()
        files = [output_of_process, output_of_process if errors is None else errors, states_of_process]
        socket.send_fds(_server(), [json.dumps(request).encode()], files)
        os.close(output_of_process)
        os.close(states_of_process)
        self.stdout: IO[str] = os.fdopen(output, encoding='utf-8')
        self.returncode: int | None = None
        self._states = os.fdopen(states, 'rb')
        self._stops = 0
        self._changed = threading.Condition()
        pid = self._states.read(4)
        assert pid, 'the fork server has ended'
        self.pid = int.from_bytes(pid, 'little')
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        """Read the states of the process until its end. A watcher that is killed counts as its process."""
        with self._states as states:
            while self.returncode is None:
                content = states.read(4)
                status = int.from_bytes(content, 'little') if content else signal.SIGKILL
                with self._changed:
                    if os.WIFSTOPPED(status):
                        self._stops += 1
                    else:
                        self.returncode = os.waitstatus_to_exitcode(status)
                    self._changed.notify_all()

    def poll(self) -> int | None:
        """Return the exit code, or None if the process has not ended."""
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait until the process has ended; return its exit code."""
        with self._changed:
            self._changed.wait_for(lambda: self.returncode is not None, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return self.returncode

    def stop(self) -> None:
        """Send SIGSTOP, and wait until the process has stopped."""
        with self._changed:
            stops = self._stops
            self.send_signal(signal.SIGSTOP)
            assert self._changed.wait_for(lambda: self._stops > stops or self.returncode is not None, LIMIT)

    def send_signal(self, number: int) -> None:
        """Send a signal to the process, if it has not ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)
