"""Does what a reader of one page does: runs its blocks from top to bottom, in an empty directory of its own.

A Python block shares its names with the page's other blocks; one with a file's name as its title is saved and imported
instead, and its tests are run. A command that starts a server starts one, for the rest of the page or up to the next.
Two things differ from what is written: a model that needs a provider's key is the model `test`, as the pages tell
readers without a key, and the port is a free one.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from threading import Timer
from types import ModuleType
from typing import Any

import pytest

from .blocks import Block
from .expect import same_json, same_text

__all__ = ('Page', 'opened')

LIMIT = 30.0
"""Seconds that a command may take, or a server to start or to stop."""

_MODEL = re.compile(r"'openai:[\w.-]+'")
_ADDRESS = '127.0.0.1:8000'
_STARTED = re.compile(r'Uvicorn running on http://127.0.0.1:(\d+)')
_NOT_RUN = {'pip', 'make'}
"""Commands that need the network, or are what runs this test."""


class Page:
    """One page while it is read."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        self._monkeypatch = monkeypatch
        self._main = self._module('page')
        self._server: _Server | None = None
        monkeypatch.chdir(directory)

    def read(self, blocks: Sequence[Block]) -> None:
        """Run the blocks; what goes wrong says in which."""
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
        """Stop the server."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def _runner(self, block: Block) -> Callable[[Block, Block | None], None]:
        runners = {'python': self._python, 'bash': self._bash, 'text': _nothing}
        assert block.language in runners, f'nobody knows how to check a block of {block.language!r}'
        return runners[block.language]

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
            (self._directory / block.title).write_text(source.replace('port=8000', 'port=0'))
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
            self._curl(block, output)
            return
        assert output is None, f'nobody compares what {command!r} writes'
        if command in ('uvicorn', 'python'):
            assert len(block.words) == 1, 'a server is started by a block of its own'
            self.close()
            self._server = _Server(block.text)
        else:
            assert command in _NOT_RUN, f'nobody knows how to check {command!r}'

    def _curl(self, block: Block, output: Block | None) -> None:
        command = ['bash', '-euc', self._with_address(block.text)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
        assert done.returncode == 0, done.stderr
        if output is not None:
            same = same_json if output.language == 'json' else same_text
            same(output.text, self._without_address(done.stdout))

    def _with_address(self, text: str) -> str:
        if _ADDRESS not in text:
            return text
        assert self._server is not None, f'nothing listens at {_ADDRESS} yet'
        return text.replace(_ADDRESS, self._server.address)

    def _without_address(self, text: str) -> str:
        return text if self._server is None else text.replace(self._server.address, _ADDRESS)


@contextmanager
def opened(directory: Path) -> Generator[Page]:
    """A page whose files, modules and server are gone afterwards."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        page = Page(directory, monkeypatch)
        try:
            yield page
        finally:
            page.close()


def _nothing(block: Block, output: Block | None) -> None:
    """A diagram, for example."""
    assert output is None, 'text writes nothing'


def _run_tests(module: ModuleType) -> None:
    tests: dict[str, Any] = {name: value for name, value in vars(module).items() if name.startswith('test_')}
    assert tests or not module.__name__.startswith('test_'), 'a test file without tests'
    for test in tests.values():
        test()


class _Server:
    """What a command serves, in a process of its own."""

    def __init__(self, command: str) -> None:
        words = shlex.split(command)
        arguments = ['-m', *words, '--port', '0'] if words[0] == 'uvicorn' else words[1:]
        self._process = subprocess.Popen(
            [sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=os.environ
        )
        try:
            self.address = f'127.0.0.1:{self._port()}'
        except BaseException:
            self.stop()
            raise

    def _port(self) -> str:
        """The port in the server's own words, as soon as it says that it is up."""
        assert self._process.stderr is not None
        lines: list[str] = []
        timer = Timer(LIMIT, self._process.kill)
        timer.start()
        try:
            for line in self._process.stderr:
                lines.append(line)
                if started := _STARTED.search(line):
                    return started[1]
        finally:
            timer.cancel()
        raise AssertionError('the server did not start:\n' + ''.join(lines))

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.communicate(timeout=LIMIT)
        finally:
            self._process.kill()
            self._process.wait()
