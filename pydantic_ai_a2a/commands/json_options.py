"""The options `--json` and `--jsonl` of commands that show tasks."""

from __future__ import annotations

from functools import wraps
from typing import Any, Literal, TypeAlias

from click import UsageError, option

from .async_commands import Command

Form: TypeAlias = Literal['text', 'json', 'jsonl']


def json_options(command: Command) -> Command:
    """Add `--json` and `--jsonl`. The command gets `form`: `text`, `json` or `jsonl`."""

    @option('--json', 'as_json', is_flag=True, help='Write the task as JSON, at its end.')
    @option('--jsonl', 'as_lines', is_flag=True, help='Write each event as a line of JSON.')
    @wraps(command)
    def with_form(*, as_json: bool, as_lines: bool, **options: Any) -> int:
        if as_json and as_lines:
            raise UsageError('--json and --jsonl cannot be combined: give one of them.')
        return command(form='json' if as_json else 'jsonl' if as_lines else 'text', **options)

    return with_form
