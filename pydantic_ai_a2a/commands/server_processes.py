"""Several processes that serve on one socket, and their parent, which starts and ends them.

| event | the parent |
|---|---|
| SIGINT or SIGTERM, each time | sends SIGTERM to the processes, and ends after the last one |
| a process is killed, such as for want of memory | starts another one in its place |
| a process ends by itself, such as with an app that cannot start | ends the others, with the same exit code |

Ctrl-C in a terminal reaches all processes of a group. So each process has a group of its own, or else it would get two
signals, and the second one cuts the drain short. If the parent is killed, the processes end as at SIGTERM.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from itertools import count
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from socket import socket
from types import FrameType
from typing import Generic, Protocol, TypeVar

logger = logging.getLogger('pydantic_ai_a2a')

_SPAWN = multiprocessing.get_context('spawn')
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class ProcessOptions(Protocol):
    """What each process gets. It can be pickled."""

    @property
    def workers(self) -> int:
        """The number of processes."""
        ...


OptionsT = TypeVar('OptionsT', bound=ProcessOptions)


class ServerProcesses(Generic[OptionsT]):
    """The processes of a server.

    Args:
        serve: Serves on the socket in each process. A function of a module.
        options: The first argument of `serve`.
        listener: The socket. It is closed in the end.
    """

    def __init__(self, serve: Callable[[OptionsT, socket], None], options: OptionsT, listener: socket) -> None:
        self._serve, self._options, self._listener = serve, options, listener
        self._processes: list[SpawnProcess] = []
        self._numbers = count(1)
        self._stopped_by: list[int] = []
        """The signals that end the processes, or 0 for the end of a process."""
        self._code = 0

    def run(self) -> int:
        """Serve until a signal, and return the exit code. SIGTERM then ends this process, too."""
        before = {number: signal.signal(number, self._stop) for number in _SIGNALS}
        try:
            self._start()
            while self._processes:
                wait([process.sentinel for process in self._processes])
                for process in [process for process in self._processes if process.exitcode is not None]:
                    self._processes.remove(process)
                    if not self._stopped_by:
                        self._replace(process.pid, process.exitcode or 0)
        finally:
            self._stop()  # if one could not be started
            for number, handler in before.items():
                signal.signal(number, handler)
        if signal.SIGTERM in self._stopped_by:
            signal.raise_signal(signal.SIGTERM)
        return self._code

    def _start(self) -> None:
        """Start the missing processes. Signals wait until then, and in a process until it has a group of its own."""
        kwargs = {'serve': self._serve, 'server_options': self._options, 'listener': self._listener}
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        while not self._stopped_by and len(self._processes) < self._options.workers:
            process = _SPAWN.Process(target=_serve_process, kwargs=kwargs, name=f'server-{next(self._numbers)}')
            process.start()
            self._processes.append(process)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    def _replace(self, pid: int | None, code: int) -> None:
        """Start another process for a killed one, or stop because a process has ended by itself."""
        if code < 0:
            logger.warning('Signal %d has ended the server process %d. Another one starts.', -code, pid)
            self._start()
        else:
            self._code = code
            self._stop()

    def _stop(self, number: int = 0, frame: FrameType | None = None) -> None:
        self._stopped_by.append(number)
        self._listener.close()  # with those of the processes: else clients could connect, and get no answer
        for process in self._processes:
            process.terminate()


def _serve_process(serve: Callable[[OptionsT, socket], None], server_options: OptionsT, listener: socket) -> None:
    os.setpgrp()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # drops a signal that came before
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    serve(server_options, listener)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, 'a server process has a parent'
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
