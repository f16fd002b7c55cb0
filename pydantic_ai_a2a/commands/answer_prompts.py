"""Asks a person for the answers to a waiting remote task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import click
from pydantic_ai.tools import ToolApproved, ToolDenied

from ..client.question_answers import RemoteAnswer, answer_to
from ..client.questions import PendingRemoteCall, RemoteQuestion
from ..wire.extensions.remote_calls import open_calls, wanted_schema
from .terminal import ask, echo


def prompt_for_answer(waiting: RemoteQuestion) -> RemoteAnswer:
    """Ask for the answer to each pending call, or to the question of the agent itself.

    Raises:
        Abort: The person has pressed Ctrl-C or Ctrl-D.
    """
    calls: list[PendingRemoteCall] = open_calls(waiting)
    if calls:
        return answer_to(waiting, {call['id']: _answer(call) for call in calls})
    echo(waiting['text'], err=True)
    if waiting['state'] == 'auth-required':
        _show_sign_in(waiting)
        return answer_to(waiting, click.confirm('Have you signed in?', default=True, err=True))
    return answer_to(waiting, _value('Answer', waiting.get('schema', {'type': 'string'})))


def open_approvals(waiting: RemoteQuestion) -> list[PendingRemoteCall]:
    """Return the calls of a waiting task that wait for an approval."""
    return [call for call in open_calls(waiting) if call['kind'] == 'approval']


def _show_sign_in(waiting: RemoteQuestion) -> None:
    authorizations = [waiting.get('authorization', {}), *(call.get('metadata', {}) for call in waiting['pending'])]
    for authorization in authorizations:
        if url := authorization.get('url'):
            echo(f'Sign in at {url}', err=True)


def _answer(call: PendingRemoteCall) -> Any:
    echo(call['text'], err=True)
    schema = wanted_schema(call.get('answerSchema'))
    if call['kind'] != 'approval':
        return _value('Answer', schema or {})
    may_change = schema is not None and 'args' in call
    keys = ['y', 'n', 'e'] if may_change else ['y', 'n']
    text = 'Approve? [y]es, [n]o, [e]dit the arguments' if may_change else 'Approve? [y]es, [n]o'
    match ask(text, type=click.Choice(keys, case_sensitive=False), show_choices=False):
        case 'y':
            return True
        case 'e':
            echo(f'Arguments: {json.dumps(call.get("args"))}', err=True)
            return ToolApproved(override_args=_value('New arguments', {'type': 'object'}))
        case _:
            reason = ask('Reason', default='', show_default=False)
            return ToolDenied(reason) if reason else False


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
