"""The command `send`: sends a message to a remote agent, and shows the answer."""

from __future__ import annotations

import json
import mimetypes
import sys
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import click

from ..types.a2a_objects import Part
from .json_options import Form, json_options
from .remote_agent import Remote, agent_options
from .remote_conversation import Talk


@click.command()
@agent_options
@click.argument('words', nargs=-1, metavar='[TEXT]')
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
@click.option('--approve', is_flag=True, help='Approve the calls of --task. --data changes the arguments of one call.')
@click.option('--deny', metavar='REASON', help='Deny the calls of --task. "" gives no reason.')
@click.option(
    '--save',
    type=click.Path(file_okay=False, writable=True, path_type=Path),
    metavar='DIR',
    help='Save the files of the answer in this directory, under new names.',
)
@json_options
def send(
    *,
    remote: Remote,
    words: Sequence[str],
    files: Sequence[Path],
    data: str | None,
    context: str,
    task: str,
    approve: bool,
    deny: str | None,
    save: Path | None,
    form: Form,
) -> int:
    """Send a message to an agent, and show the answer.

    URL is the agent or its card. The answer is shown as it comes.

    TEXT is the message, or - for standard input. In a terminal, the command asks for approvals and answers.

    Exit codes: 0 completed, 1 failed or refused, 3 the task waits for an answer, 130 after Ctrl-C, which cancels
    the task.
    """
    if len(words) > 1:
        raise click.UsageError('TEXT is one argument: write it in quotes.')
    text = ''.join(words)
    if approve or deny is not None:
        if not task or text or files or (deny is not None and (approve or data is not None)):
            raise click.UsageError('Give --task with either --approve, and --data if you like, or --deny alone.')
        arguments = None if data is None else _json(data)
        if not isinstance(arguments, dict | None):
            raise click.UsageError('--data takes a JSON object: the arguments of the call.')
        with Talk(remote, form, save=save) as talk:
            return talk.decide(task, arguments=cast('Any', arguments), denial=deny)
    text = sys.stdin.read() if text == '-' else text
    parts = [Part(text=text)] if text else []
    if data is not None:
        parts.append(Part(data=_json(data), media_type='application/json'))
    parts += map(_file, files)
    if not parts:
        raise click.UsageError('There is nothing to send: give TEXT, --file or --data.')
    with Talk(remote, form, save=save) as talk:
        return talk.send(parts, task_id=task, context_id=context)


def _json(data: str) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise click.UsageError(f'--data is not JSON: {error}.') from None


def _file(path: Path) -> Part:
    media_type = mimetypes.guess_type(path.name)[0] or 'application/octet-stream'
    return Part(raw=b64encode(path.read_bytes()).decode(), media_type=media_type, filename=path.name)
