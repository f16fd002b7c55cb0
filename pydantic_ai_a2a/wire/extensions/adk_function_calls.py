"""Function calls with which agents of ADK and kagent wait, and the function responses that answer them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...json_values import as_object, dump_json

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


def function_response(call: Mapping[str, Any], decision: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part with the function response that answers a function call."""
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
