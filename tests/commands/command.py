"""Runs commands in this process or in a terminal, and puts into the store what they work on."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import pytest
from pydantic_ai.usage import RunUsage

from pydantic_ai_a2a.commands.cli import main
from pydantic_ai_a2a.server.app.backend_choice import open_store
from pydantic_ai_a2a.server.store.ports import DEAD_LETTER, Backend

from ..bounds import LIMIT
from ..suites.values import EXPIRED, START, claim_and_finish, claim_task, finish_of, message, model_turn, submit

STORE_OPTIONS = ('--backend', 'sqlite:///agent.db', '--namespace', 'joker')
ATTEMPTS_MESSAGE = b'{"messageId":"why","parts":[{"text":"too often"}],"metadata":{"correlationId":"correlation"}}'


class Outcome(NamedTuple):
    code: object
    out: str
    err: str

    @property
    def why(self) -> tuple[object, str]:
        """The exit code, and what the error is."""
        return self.code, re.split('[eE]rror: ', self.err.strip().splitlines()[-1], maxsplit=1)[1]

    @property
    def lines(self) -> list[Any]:
        """What was written as JSON Lines."""
        assert self.code == 0, self.err
        return [json.loads(line) for line in self.out.splitlines()]


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str) -> Outcome:
    """How a command ends."""
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    written = capsys.readouterr()
    return Outcome(exit_.value.code, written.out, written.err)


def with_store(
    fill: Callable[[Backend], Awaitable[object]], url: str = 'sqlite:///agent.db', namespace: str = 'joker'
) -> None:
    """Do something with the store of the app, or another one."""

    async def do() -> None:
        backend = open_store(url, namespace)
        try:
            await fill(backend)
        finally:
            backend.close()

    asyncio.run(do())


async def add_dead_letter(
    backend: Backend, task_id: str, *, context: str = 'c', owner: str = '/ann', at: int = START
) -> None:
    """A dead letter."""
    await submit(backend, message(f'do {task_id}', new=task_id, context=context, owner=owner, at=at))
    for n in range(2):
        await claim_task(backend, task_id, f'holder {n}', at=at, lease=EXPIRED)
    end = at + 60_000
    claimed = await claim_task(backend, task_id, 'the last', at=end)
    await backend.queue.finish(
        claimed, finish_of(claimed, 'failed', at=end, status_message=ATTEMPTS_MESSAGE, failure=DEAD_LETTER)
    )


async def add_completed_task(backend: Backend, task_id: str, *, context: str = 'c', owner: str = '/ann') -> None:
    """A task that is completed, with a turn in its context."""
    await submit(backend, message(f'do {task_id}', new=task_id, context=context, owner=owner))
    artifact = b'{"artifactId":"a","parts":[{"text":"the result"}]}'
    await claim_and_finish(
        backend,
        task_id,
        messages=model_turn(f'do {task_id}', 'the result'),
        artifacts=[('a', artifact)],
        usage=RunUsage(requests=1),
    )


# --- a pseudo-terminal: for a command in this process, and for a process of its own

ESCAPES = re.compile(r'\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_=>78])')

_RUN = """
import os, runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may ignore it
os.close(os.open(os.ttyname(0), os.O_RDWR))  # the first terminal that the leader of a session opens controls it
runpy.run_module('pydantic_ai_a2a', run_name='__main__', alter_sys=True)
"""


class Terminal:
    """One pseudo-terminal, whose output is collected."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self._output = b''
        self._seen = 0
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        """What was written, without escape sequences."""
        return ESCAPES.sub('', self._output.decode(errors='replace')).replace('\r', '')

    @property
    def raw(self) -> str:
        return self._output.decode(errors='replace')

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def until(self, text: str, times: int = 1) -> None:
        """Wait until a text was written so often."""
        with self._news:
            assert self._news.wait_for(lambda: self.text.count(text) >= times, LIMIT), self.text

    def until_new(self, text: str) -> None:
        """Wait until a text was written after the text of the last wait."""
        with self._news:
            assert self._news.wait_for(lambda: text in self.text[self._seen :], LIMIT), self.text[self._seen :]
            self._seen = self.text.index(text, self._seen) + len(text)

    def until_prompt(self, times: int = 1) -> None:
        """Wait until `chat` has shown its prompt so often, and reads each key."""
        with self._news:
            assert self._news.wait_for(lambda: self.raw.count('\x1b[?2004h') >= times, LIMIT), self.text

    def close(self) -> str:
        """Close, and return all that was written."""
        os.close(self.slave)
        self._reader.join(LIMIT)
        os.close(self.master)
        return self.text

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self.master, 65536)
            except OSError:  # the other side is closed
                return
            with self._news:
                self._output += data
                self._news.notify_all()


@contextmanager
def in_terminal(monkeypatch: pytest.MonkeyPatch, typed: str = '') -> Generator[Terminal]:
    """A terminal as standard input, output and error of this process."""
    terminal = Terminal()
    attributes = termios.tcgetattr(terminal.slave)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(terminal.slave, termios.TCSANOW, attributes)
    terminal.type(typed)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may ignore it
    try:
        with os.fdopen(os.dup(terminal.slave), 'r') as stdin, os.fdopen(os.dup(terminal.slave), 'w') as stdout:
            with monkeypatch.context() as patch:
                for name, stream in (('stdin', stdin), ('stdout', stdout), ('stderr', stdout)):
                    patch.setattr(sys, name, stream)
                yield terminal
            stdout.flush()
    finally:
        signal.signal(signal.SIGINT, before)


Step: TypeAlias = tuple[str, str | Callable[[], object]]
"""A text to wait for, and what is typed or done then."""


def run_at_terminal(
    monkeypatch: pytest.MonkeyPatch, *arguments: str, typed: str = '', steps: Sequence[Step] = ()
) -> tuple[object, Terminal]:
    """The exit code of a command, and its terminal, where somebody has typed a text and does the steps."""

    def do_steps() -> None:
        for text, act in steps:
            terminal.until_new(text)
            if callable(act):
                act()
            elif act:
                terminal.type(act)

    with in_terminal(monkeypatch, typed) as terminal:
        person = threading.Thread(target=do_steps, daemon=True)
        person.start()
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        person.join(LIMIT)
    terminal.close()
    return exit_.value.code, terminal


@contextmanager
def process_in_terminal(*arguments: str) -> Generator[tuple[Terminal, subprocess.Popen[bytes]]]:
    """A command in a process whose controlling terminal it is, so that Ctrl-C reaches the process."""
    terminal = Terminal()

    command = [sys.executable, '-c', _RUN, *arguments]
    environment = {**os.environ, 'TERM': 'xterm', 'COLUMNS': '100', 'LINES': '40', 'PROMPT_TOOLKIT_NO_CPR': '1'}
    with subprocess.Popen(
        command,
        stdin=terminal.slave,
        stdout=terminal.slave,
        stderr=terminal.slave,
        start_new_session=True,
        env=environment,
    ) as process:
        try:
            yield terminal, process
        finally:
            process.kill()
