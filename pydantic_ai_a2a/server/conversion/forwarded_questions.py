"""The questions of a remote agent, as the questions of the own task."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

from ...wire.extensions.remote_calls import MODEL, PRIVATE, SYSTEM, WAITING, open_calls, sign_in, wanted_schema
from .chosen_states import AuthRequired, InputRequired
from .pending_calls import PendingCall

_HIDDEN = {
    'approval': 'May I call {}?',
    'question': 'Please answer {}.',
    'external': 'Waiting for the result of {}.',
    'authorization': 'Please sign in for {}.',
}


def question_of(response: ModelResponse) -> InputRequired | AuthRequired | None:
    """Return the question of a remote agent in the response of the agent; None for no question, or one in a call."""
    details = response.provider_details or {}
    if response.provider_name != SYSTEM or response.tool_calls:
        return None
    # Text before the last part is replaced.
    text = ''.join(part.content for part in response.parts[-1:] if isinstance(part, TextPart))
    match details.get('state'):
        case 'input-required':
            return InputRequired(text, details.get('schema'))
        case 'auth-required':
            authorization = sign_in(details)
            return AuthRequired(text, authorization.get('schemes', ()), authorization.get('url'))
        case _:
            return None


def calls_for_clients(part: ToolCallPart, call: PendingCall, hidden: Collection[str]) -> list[PendingCall]:
    """Return a call as clients see the call: as the calls of the remote task for which the call waits.

    Args:
        part: The call of the model.
        call: The pending call.
        hidden: Names of the tools whose arguments are hidden from clients.
    """
    if part.provider_name == SYSTEM and part.provider_details is not None:
        remote = part.provider_details
        return [_as_remote(call, {'tool': call.tool, **remote}, hidden, {MODEL: True})]
    if (waiting := waiting_remote_task(call)) is None:
        return [call]
    calls = open_calls(waiting)
    if not calls:
        return [_as_task(call, waiting)]
    ids = [call.id] if len(calls) == 1 else [f'{call.id}.{remote["id"]}' for remote in calls]
    return [
        _as_remote(
            replace(call, id=call_id, local_id=call.id), remote, hidden, {WAITING: {**waiting, 'pending': [remote]}}
        )
        for call_id, remote in zip(ids, calls, strict=True)
    ]


def _as_remote(
    call: PendingCall, remote: Mapping[str, Any], hidden: Collection[str], private: Mapping[str, Any]
) -> PendingCall:
    """Return a call with the question of a remote call."""
    tool = remote['tool']
    is_hidden = tool in hidden
    schema = wanted_schema(remote.get('answerSchema'))
    foreign = {name: value for name, value in remote.get('metadata', {}).items() if name not in PRIVATE}
    return replace(
        call,
        kind=remote['kind'],
        tool=tool,
        text=_HIDDEN[remote['kind']].format(tool) if is_hidden else remote['text'],
        args=remote.get('args'),
        hidden=is_hidden,
        schema=schema or remote.get('schema'),
        may_change='answerSchema' not in remote or schema is not None,
        changed=None,
        metadata={**foreign, **private},
    )


def _as_task(call: PendingCall, waiting: Mapping[str, Any]) -> PendingCall:
    """Return a call with the question of a remote task that waits without calls, or for a sign-in."""
    if waiting['state'] != 'auth-required':
        return replace(
            call, kind='question', text=waiting['text'], args=None, schema=waiting.get('schema'), changed=None
        )
    metadata = {**(call.metadata or {}), **sign_in(waiting)}
    return replace(
        call, kind='authorization', text=waiting['text'], args=None, schema=None, changed=None, metadata=metadata
    )


def waiting_remote_task(call: PendingCall) -> dict[str, Any] | None:
    """Return the remote task for which a call waits; None for a call that waits for no remote task."""
    return (call.metadata or {}).get(WAITING)
