"""Calls that wait for a remote task: clients see the questions of the remote agent, which gets the answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from pydantic_ai.messages import BaseToolCallPart, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.tools import DeferredToolResults, ToolApproved

from ..types import as_list, as_object, dump_json
from .pending import AuthRequired, CallAnswer, InputRequired, Pending, PendingCall, results

SYSTEM = 'a2a'
"""Provider name of the responses of remote agents."""
WAITING = 'a2a_waiting'
"""Key of a remote task that waits in the metadata of a deferred call."""
ANSWER = 'a2a_answer'
"""Key of the answer to the remote task in the metadata of a deferred call."""
_MODEL = 'a2a_model'
"""Key in the metadata of a call that a remote agent, as the model of the run, has made."""
PRIVATE = frozenset({WAITING, _MODEL})
"""Keys of metadata that clients must not see: the remote task may have arguments that are hidden from clients."""
CONTINUE = 'Please continue.'
"""Message to an agent after a sign-in: any message continues the task."""


class CallsRemoteAgent:
    """Base of toolsets that call a remote agent in the code of the run, which an engine may run in a workflow."""


def open_calls(waiting: Mapping[str, Any]) -> list[Any]:
    """Return the remote calls that need an answer. A call that waits for a sign-in needs none."""
    return [call for call in waiting['pending'] if call['kind'] != 'authorization']


def remote_tool(part: BaseToolCallPart) -> str | None:
    """Return the tool of a call that a remote agent, as the model of the run, has made; None for other calls."""
    return None if part.provider_name != SYSTEM else (part.provider_details or {}).get('tool')


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


# --- questions ------------------------------------------------------------------------------------------------------


def calls_for_clients(part: ToolCallPart, call: PendingCall, hidden: Collection[str]) -> list[PendingCall]:
    """Return a call as clients see the call: as the calls of the remote task for which the call waits.

    Args:
        part: The call of the model.
        call: The pending call.
        hidden: Names of the tools whose arguments are hidden from clients.
    """
    if part.provider_name == SYSTEM and part.provider_details is not None:
        remote = part.provider_details
        return [_as_remote(call, {'tool': call.tool, **remote}, hidden, {_MODEL: True})]
    if (waiting := _waiting(call)) is None:
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


_HIDDEN = {
    'approval': 'May I call {}?',
    'question': 'Please answer {}.',
    'external': 'Waiting for the result of {}.',
    'authorization': 'Please sign in for {}.',
}


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


def sign_in(waiting: Mapping[str, Any]) -> dict[str, Any]:
    """Return the security schemes and the URL of a sign-in, of the task or of its first call."""
    calls = [as_object(call.get('metadata')) for call in waiting.get('pending', ())]
    fields = next(filter(None, [as_object(waiting.get('authorization')), *calls]), as_object(None))
    url = fields.get('url')
    names = [name for name in as_list(fields.get('schemes')) if isinstance(name, str)]
    return {**({'schemes': names} if names else {}), **({'url': url} if isinstance(url, str) else {})}


# --- answers --------------------------------------------------------------------------------------------------------


def run_results(pending: Pending) -> DeferredToolResults:
    """Return the deferred results for the next run, once all calls have answers. Denials go to remote agents too.

    Raises:
        KeyError: A call has no answer.
    """
    deferred = results(pending)
    of_tools: dict[str, list[PendingCall]] = {}
    for call in pending.calls:
        if WAITING in (call.metadata or {}):
            of_tools.setdefault(call.local_id or call.id, []).append(call)
        elif _MODEL in (call.metadata or {}):
            _answer_model(deferred, call, pending.answers.get(call.id))
    for call_id, calls in of_tools.items():
        for call in calls:
            for members in (deferred.calls, deferred.approvals, deferred.metadata):
                cast('dict[str, Any]', members).pop(call.id, None)
            if (by := deferred.answered_by.pop(call.id, None)) is not None:
                deferred.answered_by[call_id] = by
        # Pydantic AI executes approved calls only. The tool sends the answer.
        deferred.approvals[call_id] = ToolApproved()
        answer = _answer(calls, pending.answers)
        deferred.metadata[call_id] = {**(calls[0].metadata or {}), ANSWER: answer}
    return deferred


def approved_schemas(pending: Pending) -> dict[str, dict[str, Any]]:
    """Return the tools of this agent that a client has approved, or has signed in for: their JSON Schemas, by call."""
    schemas: dict[str, dict[str, Any]] = {}
    for call in pending.calls:
        # Nobody answers a call that waits for a sign-in. It may have been approved before.
        of_tool = call.kind in ('approval', 'authorization') and not PRIVATE & (call.metadata or {}).keys()
        if of_tool and call.schema is not None:
            schemas[call.id] = call.schema
    return schemas


def _answer_model(deferred: DeferredToolResults, call: PendingCall, answer: CallAnswer | None) -> None:
    """Put an answer in the form that the call of a remote agent as a model takes."""
    if answer is None:
        del deferred.approvals[call.id]
        deferred.calls[call.id] = CONTINUE
    elif answer.args is not None:
        deferred.approvals[call.id] = ToolApproved(override_args={'args': answer.args})


def _waiting(call: PendingCall) -> dict[str, Any] | None:
    return (call.metadata or {}).get(WAITING)


def _answer(calls: Sequence[PendingCall], answers: Mapping[str, CallAnswer]) -> dict[str, Any]:
    """Return the parts for the remote task, or the reason for which the task is canceled."""
    first = calls[0]
    if (answer := answers.get(first.id)) is None:
        return {'parts': [{'text': CONTINUE}]}
    if not open_calls((first.metadata or {})[WAITING]):
        if answer.decision != 'result':
            return {'denied': answer.reason or ''}
        return {'parts': [{'text': answer.result} if isinstance(answer.result, str) else {'data': answer.result}]}
    decisions = [
        (remote, _decision(remote['id'], answers[call.id]))
        for call in calls
        for remote in open_calls(_waiting(call) or {})
    ]
    return {'parts': answers_of(decisions)}


def _decision(remote_id: str, answer: CallAnswer) -> dict[str, Any]:
    fields = {'decision': answer.decision, 'args': answer.args, 'reason': answer.reason}
    decision = {'id': remote_id, **{name: value for name, value in fields.items() if value is not None}}
    return {**decision, 'result': answer.result} if answer.decision == 'result' else decision


def wanted_schema(answer: object) -> dict[str, Any] | None:
    """Return the JSON Schema of the arguments or of the result in a remote agent's schema of an answer."""
    schema = as_object(answer)
    for choice in as_list(schema.get('oneOf')):
        properties = as_object(as_object(choice).get('properties'))
        for name in ('args', 'result'):
            if name in properties:
                return {**as_object(properties[name]), **({'$defs': schema['$defs']} if '$defs' in schema else {})}
    return None


# --- function calls with which agents of ADK and kagent wait --------------------------------------------------------

_CONFIRMATION = 'adk_request_confirmation'
_INPUT = 'adk_request_input'


def function_call(part: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the function call in a part as a pending call; None for a part without a call that waits."""
    metadata, data = as_object(part.get('metadata')), as_object(part.get('data'))
    key = next((key for key, value in metadata.items() if key.endswith('_type') and value == 'function_call'), '')
    call_id, name, args = data.get('id'), data.get('name'), as_object(data.get('args'))
    waits = name == _CONFIRMATION or metadata.get(f'{key.removesuffix("type")}is_long_running')
    if not (key and waits and isinstance(call_id, str) and isinstance(name, str)):
        return None
    reply = {'name': name, 'type': key}
    if name != _CONFIRMATION:
        text = args.get('message') if name == _INPUT else f'Waiting for the result of {_called(name, args)}.'
        return {'id': call_id, 'kind': 'external', 'tool': name, 'args': args, 'text': str(text), 'reply': reply}
    called, confirmation = as_object(args.get('originalFunctionCall')), as_object(args.get('toolConfirmation'))
    tool, args, payload = str(called.get('name', 'a tool')), as_object(called.get('args')), confirmation.get('payload')
    # The payload of an agent in between has the calls of its own remote agent.
    told = [str(confirmation.get('hint', '')), '' if payload is None else dump_json(payload).decode()]
    return {
        'id': call_id,
        'kind': 'approval',
        'tool': tool,
        'args': args,
        'text': '\n'.join(filter(None, [f'May I call {_called(tool, args)}?', *told])),
        'answerSchema': {},  # no other arguments
        'reply': reply | {'payload': payload},
    }


def _called(tool: str, args: Mapping[str, Any]) -> str:
    return f'{tool} {dump_json(args).decode()}'


def answers_of(decisions: Sequence[tuple[Mapping[str, Any], dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the parts that answer remote calls: function responses for function calls, else one list of answers."""
    if all(call.get('reply') for call, _ in decisions):
        return [_response(call, decision) for call, decision in decisions]
    return [{'data': {'callAnswers': [decision for _, decision in decisions]}}]


def _response(call: Mapping[str, Any], decision: Mapping[str, Any]) -> dict[str, Any]:
    reply, reason = call['reply'], decision.get('reason')
    match decision['decision']:
        case 'result':
            response = as_object(decision['result']) or {'result': decision['result']}
        case 'retry':
            response = {'error': reason}
        case decided:
            payload = reply.get('payload')
            if reason:  # where kagent reads the reason
                payload = {**as_object(payload), 'rejection_reason': reason}
            response = {'confirmed': decided == 'approve', **({} if payload is None else {'payload': payload})}
    data = {'id': call['id'], 'name': reply['name'], 'response': response}
    return {'data': data, 'metadata': {reply['type']: 'function_response'}}
