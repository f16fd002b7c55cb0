"""Output of a remote task in a command: text as the agent writes, then data and files; or JSON."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import click
from fasta2a.schema import Message, Part, Task

from ..client.following import WAITING, Update
from ..protocol.stored import event_json, task_json
from ..remote.waiting import content_of, text_of
from .target import say

__all__ = ('Form', 'Screen', 'artifact_text', 'as_json', 'safe', 'screen_for')

Form: TypeAlias = Literal['text', 'json', 'jsonl']

_CONTROL = re.compile(r'[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]')
"""Control characters except tab and line break. They could move the cursor of a terminal or hide text."""


def safe(text: str) -> str:
    """Return foreign text with control characters written as escapes."""
    return _CONTROL.sub(lambda match: f'\\x{ord(match[0]):02x}', text)


def as_json(value: Any) -> str:
    """Return a value as a line of JSON, without control characters."""
    return json.dumps(value)


class Screen:
    """Shows the answer to a message as plain text.

    Args:
        before: Text of the task that an earlier screen has shown.
    """

    def __init__(self, before: str = '') -> None:
        self._before = before
        self._text = ''
        """The text on the screen."""

    def show(self, update: Update) -> None:
        """Show the news of an event."""
        if update.task is not None and (text := artifact_text(update.task)) != self._before:
            self._before = ''
            self._grow(text)
        if 'status_update' in update.event:
            status = update.event['status_update']['status']
            if status['state'] == 'working' and (message := status.get('message')) is not None:
                step = _step(message)
                if step.strip() not in ('', self._text.strip(), self._before.strip()):
                    self.progress(step)

    def progress(self, text: str) -> None:
        """Show a step of the agent."""
        for line in text.splitlines():
            click.echo(f'  {safe(line)}', err=True)

    def end(self, outcome: Task | Message, *, is_asked: bool = False) -> None:
        """Show the rest of the answer. A question of a prompt is left out."""
        if 'status' not in outcome:
            self._grow(text_of(outcome['parts']))
            self.close()
            _show_parts(outcome['parts'])
            return
        self.close()
        _show_parts([part for artifact in outcome.get('artifacts', ()) for part in artifact['parts']])
        status = outcome['status']
        if (message := status.get('message')) is not None and not (is_asked and status['state'] in WAITING):
            _show_status(message, failed=status['state'] in ('failed', 'rejected'))

    def close(self) -> None:
        """End the line of the text."""
        if self._text and not self._text.endswith('\n'):
            click.echo()
        self._text = ''

    def write(self, text: str, *, whole: str) -> None:
        """Write more text, at the end of the whole text."""
        click.echo(safe(text), nl=False)

    def _grow(self, text: str) -> None:
        if not text.startswith(self._text):  # the agent has replaced its text
            self.close()
        if more := text[len(self._text) :]:
            self.write(more, whole=text)
        self._text = text


class _JsonScreen(Screen):
    """Writes the task as JSON, at the end."""

    def show(self, update: Update) -> None:
        pass

    def end(self, outcome: Task | Message, *, is_asked: bool = False) -> None:
        click.echo(as_json(task_json(outcome) if 'status' in outcome else event_json({'message': outcome})['message']))


class _JsonLinesScreen(Screen):
    """Writes each event as a line of JSON."""

    def show(self, update: Update) -> None:
        click.echo(as_json(event_json(update.event)))

    def end(self, outcome: Task | Message, *, is_asked: bool = False) -> None:
        pass


def screen_for(form: Form, before: str = '') -> Screen:
    """Return the screen of a form: with colours and Markdown if the extra `cli` is installed, and in a terminal."""
    if form != 'text':
        return _JsonScreen() if form == 'json' else _JsonLinesScreen()
    if sys.stdout.isatty():
        try:
            from .rich_screen import RichScreen  # noqa: PLC0415 - of an extra
        except ImportError:
            return Screen(before)
        return RichScreen(before)
    return Screen(before)


def artifact_text(task: Task) -> str:
    """Return the text of all artifacts of a task."""
    return text_of(part for artifact in task.get('artifacts', ()) for part in artifact['parts'])


def _step(message: Message) -> str:
    """Return a step of the agent: words, or the name of a called tool."""
    metadata = message.get('metadata', {})
    if metadata.get('progress') == 'tool':
        return f'calls {metadata.get("toolName")}' if metadata.get('phase') == 'call' else ''
    return text_of(message['parts'])


def _show_parts(parts: Sequence[Part]) -> None:
    """Show the data of an answer, and the names of the files."""
    for part in parts:
        if 'data' in part:
            value = content_of(Message(role='agent', message_id='', parts=[part]))
            click.echo(json.dumps(value, indent=2))
        elif 'text' not in part:
            name = part.get('filename') or 'a file'
            place = part.get('url') or f'{len(part.get("raw", "")) * 3 // 4} bytes'
            click.echo(safe(f'[{name}: {part.get("media_type", "unknown type")}, {place}]'))


def _show_status(message: Message, *, failed: bool) -> None:
    text = text_of(message['parts'])
    correlation_id = message.get('metadata', {}).get('correlationId')
    if failed:
        say(safe(text + (f' (correlation id {correlation_id})' if correlation_id else '')))
    elif text:
        click.echo(safe(text))
