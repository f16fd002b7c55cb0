"""Calls that wait for a remote task: clients see the question of the remote agent, which gets the answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, cast

from pydantic_ai.tools import DeferredToolResults, ToolApproved

from .pending import CallAnswer, Pending, PendingCall, results

__all__ = ('ANSWER', 'CONTINUE', 'WAITING', 'open_calls', 'run_results', 'with_remote_question')

WAITING = 'a2a_waiting'
"""Key of a remote task that waits in the metadata of a deferred call."""
ANSWER = 'a2a_answer'
"""Key of the answer to the remote task in the metadata of a deferred call."""
CONTINUE = 'Please continue.'
"""Message to an agent after a sign-in: any message continues the task."""


def open_calls(waiting: Mapping[str, Any]) -> list[Any]:
    """Return the remote calls that need an answer. A call that waits for a sign-in needs none."""
    return [call for call in waiting['pending'] if call['kind'] != 'authorization']


def with_remote_question(call: PendingCall, hidden: Collection[str]) -> PendingCall:
    """Return a call as clients see the call: with the question of the remote agent.

    Args:
        call: The local call. A call that waits for several remote calls is one approval of all.
        hidden: Names of the tools whose arguments are hidden from clients.
    """
    if (waiting := _waiting(call)) is None:
        return call
    match open_calls(waiting):
        case [remote]:
            tool = remote['tool']
            return replace(
                call,
                kind=remote['kind'],
                tool=tool,
                text=f'May I call {tool}?' if tool in hidden else remote['text'],
                args=None if tool in hidden else remote.get('args'),
                schema=_schema(remote.get('answerSchema')),
                changed=None,
            )
        case []:
            kind = 'authorization' if waiting['state'] == 'auth-required' else 'question'
            return replace(call, kind=kind, text=waiting['text'], args=None, schema=None, changed=None)
        case _:
            return call


def run_results(pending: Pending) -> DeferredToolResults:
    """Return the deferred results for the next run, once all calls have answers. Denials go to remote agents too.

    Raises:
        KeyError: A call has no answer.
    """
    deferred = results(pending)
    for call in pending.calls:
        if (waiting := _waiting(call)) is not None:
            deferred.calls.pop(call.id, None)
            # Pydantic AI executes approved calls only. The tool sends the answer.
            deferred.approvals[call.id] = ToolApproved()
            answer = _answer(waiting, pending.answers.get(call.id))
            deferred.metadata[call.id] = {**(call.metadata or {}), ANSWER: answer}
    return deferred


def _waiting(call: PendingCall) -> dict[str, Any] | None:
    return (call.metadata or {}).get(WAITING)


def _answer(waiting: Mapping[str, Any], answer: CallAnswer | None) -> dict[str, Any]:
    """Return the parts for the remote task, or the reason for which the task is canceled."""
    if answer is None:
        return {'parts': [{'text': CONTINUE}]}
    if not (calls := open_calls(waiting)):
        if answer.decision != 'result':
            return {'denied': answer.reason or ''}
        return {'parts': [{'text': answer.result} if isinstance(answer.result, str) else {'data': answer.result}]}
    fields = {'decision': answer.decision, 'args': answer.args, 'reason': answer.reason}
    decision = {name: value for name, value in fields.items() if value is not None}
    if answer.decision == 'result':
        decision['result'] = answer.result
    return {'parts': [{'data': {'callAnswers': [{'id': remote['id'], **decision} for remote in calls]}}]}


def _schema(answer: object) -> dict[str, Any] | None:
    """Return the JSON Schema of the arguments or of the result in a remote agent's schema of an answer."""
    schema = _object(answer)
    choices = schema.get('oneOf')
    for choice in cast('list[object]', choices) if isinstance(choices, list) else ():
        properties = _object(_object(choice).get('properties'))
        for name in ('args', 'result'):
            if name in properties:
                return {**_object(properties[name]), **({'$defs': schema['$defs']} if '$defs' in schema else {})}
    return None


def _object(value: object) -> dict[str, Any]:
    return cast('dict[str, Any]', value) if isinstance(value, dict) else {}
