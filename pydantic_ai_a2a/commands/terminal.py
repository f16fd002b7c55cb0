"""Text on a terminal. Agents and callers may have written any part of a text, so all text goes through `safe`."""

from __future__ import annotations

import io
import logging
import os
import re
import sys
from contextlib import suppress
from typing import Any, TextIO

import click

_CONTROL = re.compile(r'[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f]')
"""Control characters except tab and line break. They could move the cursor of a terminal or hide text."""


def safe(text: str) -> str:
    """Return text with control characters as escapes of JSON, so that JSON keeps its value."""
    return _CONTROL.sub(lambda match: f'\\u{ord(match[0]):04x}', text)


def prepare_output() -> None:
    """Let the standard streams escape characters that the encoding of the terminal lacks, and replace unknown bytes."""
    # The last resort writes the warnings of commands that configure no logging.
    (logging.lastResort or logging.NullHandler()).setFormatter(SafeLog())
    for stream, errors in ((sys.stdin, 'replace'), (sys.stdout, 'backslashreplace'), (sys.stderr, 'backslashreplace')):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ('strict', 'surrogateescape'):
            with suppress(OSError):  # its file was exchanged, and is no longer of the same kind
                stream.reconfigure(errors=errors)


def echo(text: str = '', *, err: bool = False, nl: bool = True) -> None:
    """Write text to standard output, or to standard error. Text for a standard error that is full is dropped."""
    try:
        click.echo(safe(text), err=err, nl=nl)
    except OSError:
        if not err:
            raise
        drop_rest(sys.stderr)


def echo_json(line: str) -> None:
    """Write a line of JSON to standard output: in UTF-8, whatever the encoding of the terminal."""
    click.echo(safe(line).encode(), file=getattr(sys.stdout, 'buffer', None))


def drop_rest(stream: TextIO) -> None:
    """Drop the text that a stream could not write. Python would try again at the end of the process."""
    with suppress(OSError), open(os.devnull, 'wb') as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def ask(text: str, **options: Any) -> Any:
    """Ask at the prompt, on standard error. The options are those of click."""
    return click.prompt(safe(text), err=True, **options)


def say(text: str) -> None:
    """Write a message about the command's progress to standard error."""
    echo(f'pydantic-ai-a2a: {text}', err=True)


class SafeLog(logging.Formatter):
    """Formats log records for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        return safe(super().format(record))
