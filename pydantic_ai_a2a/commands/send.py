"""The command `send`."""

from __future__ import annotations

import json
import mimetypes
import sys
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from fasta2a.schema import Part

from .calling import Remote, agent_options, json_options
from .screen import Form
from .talk import Talk

__all__ = ('send',)


@click.command()
@agent_options
@click.argument('text', required=False)
@click.option(
    '--file',
    'files',
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar='FILE',
    help='Attach a file. Can be repeated.',
)
@click.option('--data', metavar='JSON', help='Attach a JSON value.')
@click.option('--context', default='', metavar='ID', help='Conversation that the message continues.')
@click.option('--task', default='', metavar='ID', help='Task that the message answers or continues.')
@json_options
def send(
    *,
    remote: Remote,
    text: str | None,
    files: Sequence[Path],
    data: str | None,
    context: str,
    task: str,
    form: Form,
) -> int:
    """Send a message to an agent, and show the answer.

    URL is the agent or its card. The answer is shown as it comes.

    TEXT is the message, or - for standard input. In a terminal, the command asks for approvals and answers.

    Exit codes: 0 completed, 1 failed or refused, 3 the task waits for an answer, 130 after Ctrl-C, which cancels
    the task.
    """
    parts = [*_text(text), *_data(data), *map(_file, files)]
    if not parts:
        raise click.UsageError('There is nothing to send: give TEXT, --file or --data.')
    with Talk(remote, form) as talk:
        return talk.send(parts, task_id=task, context_id=context)


def _text(text: str | None) -> list[Part]:
    words = sys.stdin.read() if text == '-' else text
    return [Part(text=words)] if words else []


def _data(data: str | None) -> list[Part]:
    if data is None:
        return []
    try:
        value: Any = json.loads(data)
    except ValueError as error:
        raise click.UsageError(f'--data is not JSON: {error}.') from None
    return [Part(data=value, media_type='application/json')]


def _file(path: Path) -> Part:
    media_type = mimetypes.guess_type(path.name)[0] or 'application/octet-stream'
    return Part(raw=b64encode(path.read_bytes()).decode(), media_type=media_type, filename=path.name)
