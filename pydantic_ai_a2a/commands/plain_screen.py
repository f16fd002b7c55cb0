"""Shows a remote task as plain text: text as the agent writes, then data and files."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..client.answer_content import answer_parts, artifact_parts, content_of, partial_text, parts_text
from ..client.questions import RemoteQuestion, question_of_task
from ..client.updates import Update
from ..task_states import INTERRUPTED
from ..types.a2a_objects import Message, Part, Task
from .terminal import echo, say


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
        if update.task is not None:
            self._show_text(artifact_parts(update.task))
        if 'status_update' in update.event:
            status = update.event['status_update']['status']
            if status['state'] == 'working' and (message := status.get('message')) is not None:
                step = _step(message)
                if step.strip() not in ('', self._text.strip(), self._before.strip()):
                    self.progress(step)

    def progress(self, text: str) -> None:
        """Show a step of the agent."""
        for line in text.splitlines():
            echo(f'  {line}', err=True)

    def end(self, outcome: Task | Message, *, is_asked: bool = False) -> None:
        """Show the rest of the answer. A question of a prompt is left out."""
        if 'status' not in outcome:
            self._grow(parts_text(outcome['parts']))
            self.close()
            _show_parts(outcome['parts'])
            return
        status = outcome['status']
        answer = answer_parts(outcome) if status['state'] == 'completed' else artifact_parts(outcome)
        self._show_text(answer)
        self.close()
        _show_parts([part for parts in answer for part in parts])
        message = status.get('message')
        if status['state'] in INTERRUPTED:
            if not is_asked and (question := question_to_show(outcome)['text']) not in partial_text(outcome):
                echo(question)
        elif message is not None and message['parts'] not in answer:
            _show_status(message, failed=status['state'] in ('failed', 'rejected'))

    def close(self) -> None:
        """End the line of the text."""
        if self._text and not self._text.endswith('\n'):
            echo()
        self._text = ''

    def write(self, text: str, *, whole: str) -> None:
        """Write more text, at the end of the whole text."""
        echo(text, nl=False)

    def _show_text(self, answer: Sequence[Sequence[Part]]) -> None:
        if (text := _text(answer)) != self._before:
            self._before = ''
            self._grow(text)

    def _grow(self, text: str) -> None:
        if not text.startswith(self._text):  # the agent has replaced its text
            self.close()
        if more := text[len(self._text) :]:
            self.write(more, whole=text)
        self._text = text


def question_to_show(task: Task) -> RemoteQuestion:
    """Return the question of a task whose artifacts the screen has shown."""
    return question_of_task('', {**task, 'artifacts': []})


def _text(answer: Sequence[Sequence[Part]]) -> str:
    return '\n'.join(filter(None, map(parts_text, answer)))


def _step(message: Message) -> str:
    """Return a step of the agent: words, or the name of a called tool."""
    metadata = message.get('metadata', {})
    if metadata.get('progress') == 'tool':
        return f'calls {metadata.get("toolName")}' if metadata.get('phase') == 'call' else ''
    return parts_text(message['parts'])


def _show_parts(parts: Sequence[Part]) -> None:
    """Show the data of an answer, and the names of the files."""
    for part in parts:
        if 'data' in part:
            value = content_of(Message(role='agent', message_id='', parts=[part]))
            echo(json.dumps(value, indent=2))
        elif 'text' not in part:
            name = part.get('filename') or 'a file'
            place = part.get('url') or f'{len(part.get("raw", "").rstrip("=")) * 3 // 4} bytes'
            echo(f'[{name}: {part.get("media_type", "unknown type")}, {place}]')


def _show_status(message: Message, *, failed: bool) -> None:
    text = parts_text(message['parts'])
    correlation_id = message.get('metadata', {}).get('correlationId')
    if failed:
        say(text + (f' (correlation id {correlation_id})' if correlation_id else ''))
    elif text:
        echo(text)
