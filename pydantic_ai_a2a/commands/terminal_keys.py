"""The keys of a terminal, each as soon as it is pressed."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import tty
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Literal, Self, TypeAlias

Key: TypeAlias = Literal['up', 'down', 'open', 'quit']

_SEQUENCE = re.compile(rb'\x1b[\[O].|.', re.DOTALL)
"""A key: a character, or an escape sequence of an arrow."""
_KEYS: dict[bytes, Key] = {
    b'\x1b[A': 'up',
    b'\x1bOA': 'up',
    b'k': 'up',
    b'\x1b[B': 'down',
    b'\x1bOB': 'down',
    b'j': 'down',
    b'\r': 'open',
    b'\n': 'open',
    b'q': 'quit',
    b'\x04': 'quit',
}


class Keys:
    """Reads keys, and wakes the reader for news."""

    def __init__(self) -> None:
        self._stdin = sys.stdin.fileno()
        self._news, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the pipe of the news, once no thread can call `wake`."""
        os.close(self._news)
        os.close(self._wake)

    def wake(self) -> None:
        """Let a reader return without keys, also from another thread."""
        with suppress(BlockingIOError):  # the reader has much to wake up for already
            os.write(self._wake, b'.')

    def read(self) -> list[Key]:
        """Wait for keys or for news, and return the keys. The end of the input is `quit`."""
        ready, _, _ = select.select([self._stdin, self._news], [], [])
        if self._news in ready:
            os.read(self._news, 4096)
        if self._stdin not in ready:
            return []
        data = os.read(self._stdin, 4096)
        return [_KEYS[key] for key in _SEQUENCE.findall(data) if key in _KEYS] if data else ['quit']

    @contextmanager
    def single(self) -> Generator[None]:
        """Get each key as soon as it is pressed, without showing it. Ctrl-C stays an interrupt."""
        before = termios.tcgetattr(self._stdin)
        tty.setcbreak(self._stdin)
        try:
            yield
        finally:
            # Keys that were pressed before a person sees the next question are no answer to it.
            termios.tcsetattr(self._stdin, termios.TCSAFLUSH, before)
