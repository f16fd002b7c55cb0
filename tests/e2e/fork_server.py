"""A script that imports the packages of servers, and forks a process for each request. A fork starts ten times faster.

Standard input is a Unix socket. A request is JSON with `arguments` of Python, `cwd`, `environment`, and `packages` that
the script imports before the fork, for this process and all later processes. Three files come with the request: the
output of the process, its standard error, and a pipe for its states. The first state is the process ID. Each later
state is a status of `waitpid` for a process that stops or ends. A state has 4 bytes.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import socket
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any

_PACKAGES = (
    'asyncpg',
    'fastapi',
    'genai_prices.data',
    'pydantic_ai.models.function',
    'pydantic_ai.models.test',
    'pydantic_ai_a2a.server.app.a2a_app',
    'pydantic_ai_a2a.server.auth.api_keys',
    'pydantic_ai_a2a.server.auth.bearer_tokens',
    'pydantic_ai_a2a.server.auth.starlette',
    'pydantic_ai_a2a.server.store.postgres.backend',
    'pydantic_ai_a2a.server.store.sqlite.backend',
    'pydantic_ai_a2a.commands.dead_letters',
    'pydantic_ai_a2a.commands.migrate',
    'pydantic_ai_a2a.commands.serve',
    'pydantic_ai_a2a.commands.worker',
    'pydantic_ai_a2a.server.conversion.skills',
    'uvicorn.protocols.http.h11_impl',
    'uvicorn.protocols.http.httptools_impl',
    'uvloop',
)


def _run(request: dict[str, Any], output: int, errors: int) -> None:
    """Do what `python -u -W error` does with the arguments."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(errors, 2)
    os.closerange(3, os.sysconf('SC_OPEN_MAX'))
    os.chdir(request['cwd'])
    os.environ.clear()
    os.environ.update(request['environment'])
    sys.modules.pop('uvloop')  # a server with `--loop asyncio` does not import it
    first, *rest = request['arguments']
    if first == '-m':
        module, *rest = rest
        sys.path[0] = request['cwd']
        sys.argv = [first, *rest]
        runpy.run_module(module, run_name='__main__', alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(first))
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name='__main__')


def _watch(request: dict[str, Any], output: int, errors: int, states: int) -> None:
    """Fork the process, and report its states until its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    pid = os.fork()
    if not pid:
        _run(request, output, errors)
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.close(output)
    os.close(errors)
    os.write(states, pid.to_bytes(4, 'little'))
    ended = False
    while not ended:
        _, status = os.waitpid(pid, os.WUNTRACED)
        os.write(states, status.to_bytes(4, 'little'))
        ended = not os.WIFSTOPPED(status)
    os._exit(0)


def _import(packages: Iterable[str]) -> None:
    for package in packages:
        import_module(package)
    [_] = os.listdir('/proc/self/task')  # a fork of a process with several threads may hang


def _serve() -> None:
    _import(_PACKAGES)
    gc.freeze()  # a process that ends does not collect what it shares: 0.08 instead of 0.4 seconds of CPU time
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # a watcher leaves no zombie
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # coverage sets a handler of its own in each process
    with socket.socket(fileno=0) as requests:
        while True:
            content, files, _, _ = socket.recv_fds(requests, 1_000_000, 3)
            if not content:
                return
            request = json.loads(content)
            _import(request['packages'])
            if not os.fork():
                requests.detach()
                _watch(request, *files)
                return
            for file in files:
                os.close(file)


if __name__ == '__main__':
    _serve()
