"""Does what a reader of one page does: runs its blocks from top to bottom, in an empty directory of its own.

A Python block shares its names with the page's other blocks; one with a file's name as its title is saved and imported
instead, and its tests are run, but for those in classes and with fixtures, which a pytest command runs. A file called a
client is saved only, for the command that runs it; the official 0.3 client has a Python of its own. A command that
starts a server starts one, for the rest of the page or up to the next; a worker that is started then works as long. A
server at another port is another server, and goes on beside the first.
Three things differ from what is written: a model that needs a provider's key is the model `test`, as the pages tell
readers without a key, the ports are free ones, and requests that name no timeout wait longer than 5 seconds.
"""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, redirect_stdout
from inspect import signature
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryFile
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import httpx
import httpx2
import pytest

from ..bounds import LIMIT
from ..e2e.forks import PYTEST
from ..e2e.server import Process, process
from ..e2e.venvs import missing, python_with_a2a_sdk_0_3
from .blocks import ROOT, Block, same_json, same_text

__all__ = ('Page', 'open_page')

_MODEL = re.compile(r"'openai:[\w.-]+'")
_ADDRESS = re.compile(r'127\.0\.0\.1:(8000|8001)\b')
_PORTS = re.compile(r'\bport=(8000|50051)\b')
_GRPC_ADDRESS = re.compile(r'(?<=")127\.0\.0\.1:\d+(?=")')
"""The address of a gRPC server on an agent card: quoted, and without a scheme."""
_STARTED = r'Uvicorn running on http://127.0.0.1:\d+'
_WORKS = r'the worker runs the tasks'
_SLOW = ('pydantic_ai.mcp',)
"""Packages that the processes of a page import only once, if the page uses the package."""
_NOT_RUN = {'docker', 'pip', 'make'}
"""Commands that need the network or a Docker daemon, or are what runs this test."""


class Page:
    """One page while it is read."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        self._monkeypatch = monkeypatch
        self._main = self._module('page')
        self._servers: dict[str, Process] = {}
        self._saved: dict[str, str] = {}
        self._worker: Process | None = None
        self._packages: list[str] = []
        monkeypatch.chdir(directory)
        monkeypatch.setenv('COLUMNS', '80')
        for client in (httpx.Client, httpx2.Client):
            default = signature(client).parameters['timeout'].default
            for wait in ('connect', 'read', 'write', 'pool'):
                monkeypatch.setattr(default, wait, LIMIT)

    def read(self, blocks: Sequence[Block]) -> None:
        """Run the blocks; what goes wrong says in which."""
        self._packages = [name for name in _SLOW if any(name in block.text for block in blocks)]
        for block, following in zip_longest(blocks, blocks[1:]):
            if block.title == 'Output':
                continue
            output = following if following is not None and following.title == 'Output' else None
            try:
                self._runner(block)(block, output)
            except Exception as error:
                error.add_note(f'In the block at {block.place}')
                raise

    def close(self) -> None:
        """Stop all servers and the worker."""
        for port in [*self._servers]:
            self._close(port)

    def _close(self, port: str) -> None:
        """Stop the server at a port, and its worker."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        if (server := self._servers.pop(port, None)) is not None:
            server.close()

    def _runner(self, block: Block) -> Callable[[Block, Block | None], None]:
        if (block.title or '').startswith('client_') or block.language in ('html', 'javascript', 'yaml'):
            return self._save
        runners = {'python': self._python, 'bash': self._bash, 'text': _nothing}
        assert block.language in runners, f'nobody knows how to check a block of {block.language!r}'
        return runners[block.language]

    def _save(self, block: Block, output: Block | None) -> None:
        assert block.title is not None, 'a client is saved under its title'
        assert output is None, 'a client is run by a command'
        self._saved[block.title] = block.text
        (self._directory / block.title).write_text(self._with_address(block.text))

    # --- Python -----------------------------------------------------------------------------------------------------

    def _python(self, block: Block, output: Block | None) -> None:
        source = self._with_address(_MODEL.sub("'test'", block.text))
        written = StringIO()
        with redirect_stdout(written):
            self._execute(block, source)
        if output is not None:
            same_text(output.text, self._without_address(written.getvalue()))

    def _execute(self, block: Block, source: str) -> None:
        module = self._main
        if block.title is not None:
            (self._directory / block.title).write_text(_PORTS.sub('port=0', source))
            module = self._module(block.title.removesuffix('.py'))
        # Blank lines before it make line numbers in tracebacks those of the page.
        exec(compile('\n' * (block.place.line - 1) + source, block.place.path, 'exec'), module.__dict__)
        if module is not self._main:
            _run_tests(module)

    def _module(self, name: str) -> ModuleType:
        """A module that later blocks can import."""
        module = ModuleType(name)
        self._monkeypatch.setitem(sys.modules, name, module)
        return module

    # --- commands ---------------------------------------------------------------------------------------------------

    def _bash(self, block: Block, output: Block | None) -> None:
        command = block.words[0][0]
        if command == 'curl':
            self._client(['bash', '-euc', self._with_address(block.text)], output)
            return
        if block.words[0][1].startswith('client'):
            self._run_client(*block.words[0], output=output)
            return
        if command == 'export':
            self._export(block)
            return
        ends = command == 'pydantic-ai-a2a' and block.words[0][1] not in ('serve', 'worker')
        if ends or '--help' in block.words[0]:
            self._program(_arguments(self._with_address(block.text)), output)
            return
        if command == 'pytest':
            # Warnings are errors here, and pytest-asyncio warns if it is not configured.
            self._program([*PYTEST, *block.words[0][1:], '-p', 'no:asyncio'], output)
            return
        if command == 'eval':
            script = block.text.replace('pydantic-ai-a2a)', f'{sys.executable} -m pydantic_ai_a2a)')
            self._client(['bash', '-euc', f'{script}\ncomplete -p pydantic-ai-a2a'], output)
            return
        assert output is None, f'nobody compares what {command!r} writes'
        if block.words[0][:2] == ['pydantic-ai-a2a', 'worker']:
            self._worker = self._start(_arguments(block.text), _WORKS)
            return
        if command == 'pkill':
            self._servers['8000'].signal(signal.SIGKILL)
            self._servers.pop('8000').exit_code()
        elif command in ('uvicorn', 'python', 'pydantic-ai-a2a'):
            assert len(block.words) == 1, 'a server is started by a block of its own'
            self._serve(_arguments(block.text), chooses=command != 'python')
        else:
            assert command in _NOT_RUN, f'nobody knows how to check {command!r}'

    def _export(self, block: Block) -> None:
        for name, _, value in (word.partition('=') for words in block.words for word in words[1:]):
            self._monkeypatch.setenv(name, str(ROOT) if value == 'pydantic-ai-a2a' else value)

    def _serve(self, arguments: list[str], *, chooses: bool) -> None:
        """Start a server in the place of the one at its port, at a free port if its command takes one."""
        port = '8000'
        if '--port' in arguments:
            *arguments, _, port = arguments
        self._close(port)
        self._servers[port] = self._start([*arguments, *(('--port', '0') if chooses else ())], _STARTED)

    def _start(self, arguments: Sequence[str], up: str) -> Process:
        """Start a process that goes on, and wait until its output has the pattern."""
        started = Process(*arguments, cwd=self._directory, packages=self._packages)
        try:
            started.wait_for(up)
        except BaseException:
            started.close()
            raise
        return started

    def _run_client(self, command: str, file: str, *arguments: str, output: Block | None) -> None:
        # The server may have another port than when the client was saved.
        (self._directory / file).write_text(self._with_address(self._saved[file]))
        if command != 'python':
            self._client([_installed(command), file, *arguments], output)
        elif file == 'client_0_3.py':
            self._client([str(python_with_a2a_sdk_0_3()), file, *arguments], output)
        else:
            self._program(['-m', file.removesuffix('.py'), *arguments], output)

    def _program(self, arguments: Sequence[str], output: Block | None) -> None:
        """Run a Python module to its end."""
        with (
            TemporaryFile('w+') as errors,
            process(*arguments, cwd=self._directory, packages=self._packages, errors=errors.fileno()) as running,
        ):
            code = running.exit_code()
            errors.seek(0)
            assert code == 0, running.output + errors.read()
        self._compare(output, running.output)

    def _client(self, command: Sequence[str], output: Block | None) -> None:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        self._compare(output, done.stdout)

    def _compare(self, output: Block | None, written: str) -> None:
        if output is not None:
            same = same_json if output.language == 'json' else same_text
            same(output.text, self._without_address(written))

    def _with_address(self, text: str) -> str:
        """Put the addresses of the servers in the place of those of the page."""
        return _ADDRESS.sub(lambda documented: self._address(documented[1]), text)

    def _without_address(self, text: str) -> str:
        if not self._servers:
            return text
        for port in self._servers:
            text = text.replace(self._address(port), f'127.0.0.1:{port}')
        return _GRPC_ADDRESS.sub('127.0.0.1:50051', text)

    def _address(self, port: str) -> str:
        assert port in self._servers, f'nothing listens at port {port} yet'
        return urlsplit(self._servers[port].url).netloc


@contextmanager
def open_page(directory: Path) -> Generator[Page]:
    """A page whose files, modules and server are gone afterwards."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        page = Page(directory, monkeypatch)
        try:
            yield page
        finally:
            page.close()


def _installed(command: str) -> str:
    """Return the path of a program."""
    path = shutil.which(command)
    if path is None:
        missing(f'{command} is not installed')
    return path


def _nothing(block: Block, output: Block | None) -> None:
    """A diagram, for example."""
    assert output is None, 'text writes nothing'


def _run_tests(module: ModuleType) -> None:
    tests: dict[str, Any] = {name: value for name, value in vars(module).items() if name.startswith('test_')}
    classes = [name for name in vars(module) if name.startswith('Test')]
    assert tests or classes or not module.__name__.startswith('test_'), 'a test file without tests'
    for test in tests.values():
        if not signature(test).parameters:
            test()


def _arguments(command: str) -> list[str]:
    """What Python is given to run a command that the package or one of its dependencies has installed."""
    words = shlex.split(command)
    if words[0] == 'python':
        return ['-m', words[1].removesuffix('.py'), *words[2:]]
    return ['-m', words[0].replace('pydantic-ai-a2a', 'pydantic_ai_a2a'), *words[1:]]
