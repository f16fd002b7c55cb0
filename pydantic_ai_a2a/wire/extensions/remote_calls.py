"""Calls that wait for a remote task: their marks in the messages and metadata of Pydantic AI, and their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...json_values import as_list, as_object
from .adk_function_calls import function_response

if TYPE_CHECKING:
    from pydantic_ai.messages import BaseToolCallPart

SYSTEM = 'a2a'
"""Provider name of the responses of remote agents."""
WAITING = 'a2a_waiting'
"""Key of a remote task that waits in the metadata of a deferred call."""
ANSWER = 'a2a_answer'
"""Key of the answer to the remote task in the metadata of a deferred call."""
MODEL = 'a2a_model'
"""Key in the metadata of a call that a remote agent, as the model of the run, has made."""
PRIVATE = frozenset({WAITING, MODEL})
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


def sign_in(waiting: Mapping[str, Any]) -> dict[str, Any]:
    """Return the security schemes and the URL of a sign-in, of the task or of its first call."""
    calls = [as_object(call.get('metadata')) for call in waiting.get('pending', ())]
    fields = next(filter(None, [as_object(waiting.get('authorization')), *calls]), as_object(None))
    url = fields.get('url')
    names = [name for name in as_list(fields.get('schemes')) if isinstance(name, str)]
    return {**({'schemes': names} if names else {}), **({'url': url} if isinstance(url, str) else {})}


def wanted_schema(answer: object) -> dict[str, Any] | None:
    """Return the JSON Schema of the arguments or of the result in a remote agent's schema of an answer."""
    schema = as_object(answer)
    for choice in as_list(schema.get('oneOf')):
        properties = as_object(as_object(choice).get('properties'))
        for name in ('args', 'result'):
            if name in properties:
                return {**as_object(properties[name]), **({'$defs': schema['$defs']} if '$defs' in schema else {})}
    return None


def answers_of(decisions: Sequence[tuple[Mapping[str, Any], dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the parts that answer remote calls: function responses for function calls, else one list of answers."""
    if all(call.get('reply') for call, _ in decisions):
        return [function_response(call, decision) for call, decision in decisions]
    return [{'data': {'callAnswers': [decision for _, decision in decisions]}}]
