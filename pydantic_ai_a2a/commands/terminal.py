"""Finds the app or the agent that a command line names."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, Literal, TypeAlias, cast

import click
from click import UsageError, option
from pydantic_ai.agent import AbstractAgent
from starlette.types import ASGIApp

from ..app.app import A2AApp
from ..app.build import served, telling_name, to_a2a
from ..auth.callers import Authenticator
from ..client.content import answer_parts, artifact_parts, content_of, text_of
from ..client.following import WAITING, Update
from ..client.waiting import WaitingTask, waiting_task
from ..protocol.stored import event_json, task_json
from ..types import Message, Part, Task

Command: TypeAlias = Callable[..., int]

_SHARED = "to_a2a(agent, backend='sqlite:///agent.db')"


def place_options(command: Command) -> Command:
    """Add the options for the directory of the module and for the URL of the store."""
    url = option('--backend', metavar='URL', help='URL of the store, such as sqlite:///agent.db.')
    directory = option('--app-dir', default='', metavar='DIR', help='Directory of MODULE. Default: the current one.')
    return directory(url(command))


def find(target: str, app_dir: str, backend: str | None, auth: str | None = None) -> ASGIApp:
    """Import the app that `target` names. An agent is made into an app with the given store and callers."""
    sys.path.insert(0, app_dir)
    value = _named(target)
    if isinstance(value, AbstractAgent):
        return _served_agent(cast('AbstractAgent[Any, Any]', value), target, backend, auth)
    if not callable(value):
        raise UsageError(f'{target} is neither an app nor an agent, but of the type {type(value).__name__}.')
    if backend is not None:
        raise UsageError(f'--backend can only be given with an agent: {target} is an app, which has its own backend.')
    if auth is not None:
        raise UsageError(
            f'--auth can only be given with an agent: {target} is an app. Pass auth= to to_a2a() in its module.'
        )
    return cast('ASGIApp', value)


def _named(target: str) -> Any:
    module_name, _, name = target.partition(':')
    name = name or 'app'
    if not module_name:
        raise UsageError(f'{target!r} does not name an app: write MODULE:NAME, such as joker:app.')
    value: Any = _import(module_name)
    for attribute in name.split('.'):
        if not hasattr(value, attribute):
            raise UsageError(f'The module {module_name!r} has no {name!r}.{_suggestion(module_name)}')
        value = getattr(value, attribute)
    return value


def _import(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f'{name}.'.startswith(f'{error.name}.'):
            raise  # the module exists, but a module that it imports does not
        raise UsageError(f'There is no module {error.name!r}, in the directory or on the Python path.') from None


def _suggestion(module_name: str) -> str:
    values = vars(sys.modules[module_name])
    names = [repr(name) for name, value in values.items() if isinstance(value, A2AApp | AbstractAgent)]
    return f' It has {", ".join(names)}.' if names else ''


def _served_agent(agent: AbstractAgent[Any, Any], target: str, backend: str | None, auth: str | None) -> A2AApp:
    name = agent.name or telling_name(*reversed(re.split('[.:]', target)))
    authenticators = None if auth is None else _authenticators(auth)
    try:
        return to_a2a(agent, name=name, backend=backend or 'memory', auth=authenticators)
    except ValueError as error:  # only the values of --backend and --auth can be wrong here
        raise UsageError(str(error)) from None


def _authenticators(target: str) -> list[Authenticator]:
    value = _named(target)
    values = cast('list[object]', value if isinstance(value, list) else [value])
    authenticators = [item for item in values if isinstance(item, Authenticator)]
    if len(authenticators) < len(values):
        raise UsageError(f'{target} is not an Authenticator, such as a BearerAuth, and not a list of Authenticators.')
    return authenticators


def apart(app: ASGIApp, target: str) -> list[A2AApp]:
    """Return the A2A apps in an app, if worker processes can run the tasks of these apps.

    Raises:
        UsageError: The app has no A2A app, or keeps its tasks in memory.
    """
    apps = list(served(app))
    if not apps:
        raise UsageError(f'{target} is not an app of to_a2a(), and has no mounted app of to_a2a().')
    if not all(app.hosting.durable for app in apps):
        raise UsageError(
            f'{target} keeps its tasks in the memory of one process, which has to serve and run them.'
            f' Give it a backend that processes can share, such as {_SHARED}.'
        )
    return apps


# --- text on a terminal -----------------------------------------------------------------------------------------------
# Agents, callers and stores may have written any part of a text. All text of the commands goes through `safe`.

_CONTROL = re.compile(r'[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f]')
"""Control characters except tab and line break. They could move the cursor of a terminal or hide text."""


def safe(text: str) -> str:
    """Return text with control characters as escapes of JSON, so that JSON keeps its value."""
    return _CONTROL.sub(lambda match: f'\\u{ord(match[0]):04x}', text)


def echo(text: str = '', *, err: bool = False, nl: bool = True) -> None:
    """Write text to standard output, or to standard error."""
    click.echo(safe(text), err=err, nl=nl)


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


def write_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write rows below the names of their columns."""
    table = [[column.upper() for column in columns], *([safe(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        echo('  '.join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip())


# --- output of a remote task in a command -----------------------------------------------------------------------------
# Text as the agent writes, then data and files; or JSON.

Form: TypeAlias = Literal['text', 'json', 'jsonl']


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
            self._grow(text_of(outcome['parts']))
            self.close()
            _show_parts(outcome['parts'])
            return
        status = outcome['status']
        answer = answer_parts(outcome) if status['state'] == 'completed' else artifact_parts(outcome)
        self._show_text(answer)
        self.close()
        _show_parts([part for parts in answer for part in parts])
        message = status.get('message')
        if status['state'] in WAITING:
            if not is_asked and (question := question_of(outcome)['text']) not in artifact_text(outcome):
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


class _JsonScreen(Screen):
    """Writes the task as JSON, at the end."""

    def show(self, update: Update) -> None:
        pass

    def end(self, outcome: Task | Message, *, is_asked: bool = False) -> None:
        echo(as_json(task_json(outcome) if 'status' in outcome else event_json({'message': outcome})['message']))


class _JsonLinesScreen(Screen):
    """Writes each event as a line of JSON."""

    def show(self, update: Update) -> None:
        echo(as_json(event_json(update.event)))

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


def question_of(task: Task) -> WaitingTask:
    """Return the question of a task whose artifacts the screen has shown."""
    return waiting_task('', {**task, 'artifacts': []})


def artifact_text(task: Task) -> str:
    """Return the text of all artifacts of a task."""
    return _text(artifact_parts(task))


def _text(answer: Sequence[Sequence[Part]]) -> str:
    return '\n'.join(filter(None, map(text_of, answer)))


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
            echo(json.dumps(value, indent=2))
        elif 'text' not in part:
            name = part.get('filename') or 'a file'
            place = part.get('url') or f'{len(part.get("raw", "")) * 3 // 4} bytes'
            echo(f'[{name}: {part.get("media_type", "unknown type")}, {place}]')


def _show_status(message: Message, *, failed: bool) -> None:
    text = text_of(message['parts'])
    correlation_id = message.get('metadata', {}).get('correlationId')
    if failed:
        say(text + (f' (correlation id {correlation_id})' if correlation_id else ''))
    elif text:
        echo(text)
