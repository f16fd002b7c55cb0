"""Asks a person for the answers to a waiting remote task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import click
from pydantic_ai.tools import ToolApproved, ToolDenied

from ..conversion.remote_calls import open_calls
from ..remote.waiting import PendingRemoteCall, RemoteAnswer, WaitingTask, answer_to
from .screen import safe

__all__ = ('decide',)


def decide(waiting: WaitingTask) -> RemoteAnswer:
    """Ask for the answer to each pending call, or to the question of the agent itself.

    Raises:
        Abort: The person has pressed Ctrl-C or Ctrl-D.
    """
    calls: list[PendingRemoteCall] = open_calls(waiting)
    if calls:
        return answer_to(waiting, {call['id']: _answer(call) for call in calls})
    click.echo(safe(waiting['text']), err=True)
    if waiting['state'] == 'auth-required':
        _show_sign_in(waiting)
        return answer_to(waiting, click.confirm('Have you signed in?', default=True, err=True))
    return answer_to(waiting, _value('Answer', waiting.get('schema', {'type': 'string'})))


def _show_sign_in(waiting: WaitingTask) -> None:
    authorizations = [waiting.get('authorization', {}), *(call.get('metadata', {}) for call in waiting['pending'])]
    for authorization in authorizations:
        if url := authorization.get('url'):
            click.echo(safe(f'Sign in at {url}'), err=True)


def _answer(call: PendingRemoteCall) -> Any:
    click.echo(safe(call['text']), err=True)
    choices = {choice.get('properties', {}).get('decision', {}).get('const'): choice for choice in _choices(call)}
    if call['kind'] != 'approval':
        return _value('Answer', choices.get('result', {}).get('properties', {}).get('result', {}))
    may_change = 'args' in choices.get('approve', {}).get('properties', {}) and 'args' in call
    keys = ['y', 'n', 'e'] if may_change else ['y', 'n']
    text = 'Approve? [y]es, [n]o, [e]dit the arguments' if may_change else 'Approve? [y]es, [n]o'
    match click.prompt(text, type=click.Choice(keys, case_sensitive=False), show_choices=False, err=True):
        case 'y':
            return True
        case 'e':
            click.echo(f'Arguments: {json.dumps(call.get("args"))}', err=True)
            return ToolApproved(override_args=_value('New arguments', {'type': 'object'}))
        case _:
            reason = click.prompt('Reason', default='', show_default=False, err=True)
            return ToolDenied(reason) if reason else False


def _choices(call: PendingRemoteCall) -> list[dict[str, Any]]:
    choices = call.get('answerSchema', {}).get('oneOf')
    return [choice for choice in cast('list[Any]', choices) if isinstance(choice, dict)] if choices else []


def _value(text: str, schema: Mapping[str, Any]) -> Any:
    """Ask for a value. Text stays unchanged; other values are JSON."""
    if isinstance(options := schema.get('enum'), list):
        click.echo(safe(f'One of: {json.dumps(options)}'), err=True)
    if schema.get('type') == 'string':
        return click.prompt(text, err=True)
    hint = f' as JSON ({schema["type"]})' if isinstance(schema.get('type'), str) else ''
    while True:
        answer: str = click.prompt(f'{text}{hint}', err=True)
        try:
            value: Any = json.loads(answer)
        except ValueError:
            if 'type' not in schema:  # any value: words are a value too
                return answer
            click.echo('This is not JSON. Write text in double quotes.', err=True)
            continue
        if schema.get('type') == 'object' and not isinstance(value, dict):
            click.echo('This is no object. Write {"name": value}.', err=True)
            continue
        return cast('Any', value)
