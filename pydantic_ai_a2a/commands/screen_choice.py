"""The choice of a command's screen for the answers of a remote task: text, with colours if possible, or JSON."""

from __future__ import annotations

import json
import sys

from ..client.updates import Update
from ..types.a2a_objects import Message, Task
from ..wire.protocol.stored_values import json_of
from .json_options import Form
from .plain_screen import Screen
from .terminal import echo_json


def screen_for(form: Form, before: str = '') -> Screen:
    """Return the screen of a form: with colours and Markdown if the extra `cli` is installed, in a UTF-8 terminal."""
    if form != 'text':
        return _JsonScreen() if form == 'json' else _JsonLinesScreen()
    if sys.stdout.isatty() and sys.stdout.encoding.lower().startswith('utf'):  # else rich would draw with escapes
        try:
            from .rich_screen import RichScreen  # noqa: PLC0415 - of an extra
        except ImportError:
            return Screen(before)
        return RichScreen(before)
    return Screen(before)


class _JsonScreen(Screen):
    """Writes the task as JSON, at the end."""

    def show(self, update: Update) -> None:
        pass

    def end(self, outcome: Task | Message, *, is_asked: bool = False) -> None:
        echo_json(json.dumps(json_of(outcome)))


class _JsonLinesScreen(Screen):
    """Writes each event as a line of JSON."""

    def show(self, update: Update) -> None:
        echo_json(json.dumps(json_of(update.event)))

    def end(self, outcome: Task | Message, *, is_asked: bool = False) -> None:
        pass
