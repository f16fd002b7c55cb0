"""Shows a person what a remote task waits for, and asks for the answers: the form of `send`, `chat` and `inbox`.

A person sees a call as it will run: all its arguments, with all digits of numbers, and with characters that a terminal
does not show as escapes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast
from unicodedata import category

import click

from ..client.questions import PendingRemoteCall, RemoteQuestion
from ..json_values import dump_json
from ..wire.extensions.remote_calls import open_calls, wanted_schema
from .terminal import ask, echo

if TYPE_CHECKING:
    from ..client.question_answers import RemoteAnswer

_LINE = 80
"""The most characters of arguments in the line of a question."""
_UNSEEN = frozenset({'Cc', 'Cf', 'Cs', 'Zl', 'Zp'})
"""Categories of characters that a terminal does not show, or shows in another place."""
_SEEN = frozenset('\n\u200c\u200d')
"""Characters of these categories that JSON with line breaks, many languages and emoji need."""


def prompt_for_answer(waiting: RemoteQuestion) -> RemoteAnswer:
    """Ask for the answer to each pending call, or to the question of the agent itself.

    Raises:
        Abort: The person has pressed Ctrl-C or Ctrl-D.
    """
    from ..client.question_answers import answer_to  # noqa: PLC0415 - loads Pydantic AI, only for whoever is asked

    calls: list[PendingRemoteCall] = open_calls(waiting)
    if calls:
        return answer_to(waiting, {call['id']: _answer(call) for call in calls})
    echo(waiting['text'], err=True)
    if waiting['state'] == 'auth-required':
        _show_sign_in(waiting)
        return answer_to(waiting, click.confirm('Have you signed in?', default=None, err=True))
    return answer_to(waiting, _value('Answer', waiting.get('schema', {'type': 'string'})))


def show_calls(waiting: RemoteQuestion) -> None:
    """Show the calls of a waiting task about which this person does not decide."""
    for call in open_approvals(waiting):
        _show_approval(call)


def open_approvals(waiting: RemoteQuestion) -> list[PendingRemoteCall]:
    """Return the calls of a waiting task that wait for an approval."""
    return [call for call in open_calls(waiting) if call['kind'] == 'approval']


def _show_sign_in(waiting: RemoteQuestion) -> None:
    authorizations = [waiting.get('authorization', {}), *(call.get('metadata', {}) for call in waiting['pending'])]
    for authorization in authorizations:
        if url := authorization.get('url'):
            echo(f'Sign in at {url}', err=True)


def _answer(call: PendingRemoteCall) -> Any:
    from pydantic_ai.tools import ToolApproved, ToolDenied  # noqa: PLC0415 - as above

    schema = wanted_schema(call.get('answerSchema'))
    if call['kind'] != 'approval':
        echo(call['text'], err=True)
        return _value('Answer', schema or {})
    _show_approval(call)
    may_change = schema is not None and 'args' in call
    keys = ['y', 'n', 'e'] if may_change else ['y', 'n']
    text = 'Approve? [y]es, [n]o, [e]dit the arguments' if may_change else 'Approve? [y]es, [n]o'
    match ask(text, type=click.Choice(keys, case_sensitive=False), show_choices=False):
        case 'y':
            return True
        case 'e':
            echo(f'Arguments: {_json(call.get("args"))}', err=True)
            return ToolApproved(override_args=_value('New arguments', {'type': 'object'}))
        case _:
            reason = ask('Reason', default='', show_default=False)
            return ToolDenied(reason) if reason else False


def _show_approval(call: PendingRemoteCall) -> None:
    """Show the question for an approval, the description of the tool, and the arguments."""
    tool, args = call['tool'], call.get('args')
    line = '' if args is None else dump_json(args).decode()
    tells_only_call = call['text'] == f'May I call {tool} {line}?'
    is_short = tells_only_call and len(line) <= _LINE and _is_seen(line)
    echo(f'May I call {tool}?' if tells_only_call and not is_short else call['text'], err=True)
    if description := call.get('description'):
        echo(f'{tool}: {description}', err=True)
    if args is None:
        echo(f'The agent hides the arguments of {tool}.', err=True)
    elif not is_short:
        echo(f'{tool} {_json(args, indent=2)}', err=True)


def _json(value: Any, indent: int | None = None) -> str:
    """Return JSON for a person, with escapes for all but ASCII if it has a character that a terminal does not show."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return text if _is_seen(text) else json.dumps(value, indent=indent)


def _is_seen(text: str) -> bool:
    return all(character in _SEEN or category(character) not in _UNSEEN for character in text)


def _value(text: str, schema: Mapping[str, Any]) -> Any:
    """Ask for a value. Text stays unchanged; other values are JSON."""
    if isinstance(options := schema.get('enum'), list):
        echo(f'One of: {json.dumps(options)}', err=True)
    if schema.get('type') == 'string':
        return ask(text)
    hint = f' as JSON ({schema["type"]})' if isinstance(schema.get('type'), str) else ''
    while True:
        answer: str = ask(f'{text}{hint}')
        try:
            value: Any = json.loads(answer)
        except ValueError:
            if 'type' not in schema:  # any value: words are a value too
                return answer
            echo('This is not JSON. Write text in double quotes.', err=True)
            continue
        if schema.get('type') == 'object' and not isinstance(value, dict):
            echo('This is no object. Write {"name": value}.', err=True)
            continue
        return cast('Any', value)
