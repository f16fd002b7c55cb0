"""The answer of a remote agent as the parts of a model response."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, cast

from fasta2a.schema import Message, Part, Task
from pydantic_ai.exceptions import ModelAPIError, UserError
from pydantic_ai.messages import BinaryContent, FilePart, FileUrl, ModelResponsePart, TextPart, ToolCallPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_core import from_json

from ..conversion.remote_calls import SYSTEM
from ..conversion.schemas import problem
from .content import content_of, text_of
from .details import APPROVAL, QUESTION, as_text, local_tools
from .waiting import PendingRemoteCall, waiting_task

__all__ = ('partial_text', 'response_parts')

_ENDED = ('failed', 'rejected', 'canceled')


def response_parts(
    answer: Task | Message, parameters: ModelRequestParameters, *, agent: str
) -> list[ModelResponsePart]:
    """Return the parts of a response.

    Args:
        answer: The remote task at its end or pause, or the message without a task.
        parameters: Parameters of the request, with the types of the output.
        agent: Name of the remote agent.

    Raises:
        ModelAPIError: The task has failed, or was rejected or canceled.
        UserError: The task waits for an answer, and the run has no tools for answers.
    """
    if 'status' in answer:
        state = answer['status']['state']
        if state in _ENDED:
            raise ModelAPIError(agent, _failure(answer))
        if state in ('input-required', 'auth-required'):
            return _waiting(answer, parameters, agent)
    parts = _answer_parts(answer)
    files = [FilePart(item) for item in _items(parts) if isinstance(item, BinaryContent)]
    return [*_typed_output(parts, parameters), *files]


def partial_text(task: Task) -> str:
    """Return the text in the artifacts of a task; empty for no text."""
    parts = [part for artifact in task.get('artifacts', ()) for part in artifact['parts']]
    return _text([part for part in parts if 'text' in part])


def _answer_parts(answer: Task | Message) -> list[Part]:
    """Return the parts of an answer: those of the artifacts, else those of the status message."""
    if 'parts' in answer:
        return [*answer['parts']]
    parts = [part for artifact in answer.get('artifacts', ()) for part in artifact['parts']]
    message = answer['status'].get('message')
    return parts if parts or message is None else [*message['parts']]


def _items(parts: Sequence[Part]) -> list[Any]:
    """Return the content of parts. Neighbouring texts are one item."""
    content = content_of(Message(role='agent', message_id='', parts=[*parts]))
    return cast('list[Any]', content) if isinstance(content, list) and len(parts) > 1 else [content]


def _failure(task: Task) -> str:
    message = task['status'].get('message')
    text = '' if message is None else text_of(message['parts'])
    name = None if message is None else message.get('metadata', {}).get('correlationId')
    shown = '' if name is None else f' Correlation id: {name}.'
    return f'The remote task {task["id"]} is {task["status"]["state"]}. {text}'.rstrip() + shown


# --- a waiting task -------------------------------------------------------------------------------------------------


_ALONE = (
    'The remote task {} waits for an answer: {}. An agent with A2AModel cannot pass the answer on. Use '
    'RemoteAgent(client, [..., DeferredToolRequests]).'
)


def _waiting(task: Task, parameters: ModelRequestParameters, agent: str) -> list[ModelResponsePart]:
    """Return the pending calls as tool calls. A question without a call is text, or a call if text is no output.

    Calls of tools of the local agent are calls of these tools.
    """
    waiting = waiting_task(agent, task)
    calls = [call for call in waiting['pending'] if call['kind'] != 'authorization']
    tools = {tool.name for tool in parameters.function_tools}
    local = local_tools(parameters).keys()
    foreign = {call['tool'] for call in calls if not _is_local(call, local)}
    if foreign and not {APPROVAL, QUESTION} <= tools:
        raise UserError(_ALONE.format(task['id'], ', '.join(sorted(foreign))))
    if calls:
        return [_tool_call(call, local) for call in calls]
    text = waiting['text'] or 'The remote agent waits for an answer.'
    if parameters.allow_text_output and parameters.output_object is None:
        return [TextPart(text, provider_name=SYSTEM, provider_details={'state': waiting['state']})]
    if QUESTION not in tools:
        raise UserError(_ALONE.format(task['id'], text))
    kind = 'question' if waiting['state'] == 'input-required' else 'authorization'
    details = {'kind': kind, 'text': text, **({'schema': waiting['schema']} if 'schema' in waiting else {})}
    call_id = f'{waiting["task"]}-question'
    return [ToolCallPart(QUESTION, {'text': text}, call_id, provider_name=SYSTEM, provider_details=details)]


def _is_local(call: PendingRemoteCall, local: Collection[str]) -> bool:
    """Return True if a remote call is a call of a tool of the local agent."""
    return call['kind'] == 'external' and call['tool'] in local


def _tool_call(call: PendingRemoteCall, local: Collection[str]) -> ToolCallPart:
    if _is_local(call, local):
        return ToolCallPart(call['tool'], call.get('args', {}), call['id'], provider_name=SYSTEM)
    return ToolCallPart(
        APPROVAL if call['kind'] == 'approval' else QUESTION,
        {'tool': call['tool'], 'args': call.get('args'), 'text': call['text']},
        call['id'],
        provider_name=SYSTEM,
        provider_details={**call},
    )


# --- the output -----------------------------------------------------------------------------------------------------


def _typed_output(parts: Sequence[Part], parameters: ModelRequestParameters) -> list[ModelResponsePart]:
    """Return the output, in the form of its declared type. Values that do not fit stay as they are."""
    if parameters.output_object is not None:
        fitting = (_fitting(part, parameters.output_object.json_schema) for part in parts)
        found = next((value for values in fitting for value in values), None)
        return _as_text(parts) if found is None else [TextPart(as_text(found))]
    for part in parts:
        if 'text' in part and parameters.allow_text_output:
            continue
        for tool in parameters.output_tools:
            for value in _fitting(part, tool.parameters_json_schema):
                return [ToolCallPart(tool.name, value)]
    return _as_text(parts)


def _as_text(parts: Sequence[Part]) -> list[ModelResponsePart]:
    text = _text(parts)
    return [TextPart(text)] if text else []


def _text(parts: Sequence[Part]) -> str:
    values = (item.url if isinstance(item, FileUrl) else item for item in _items(parts))
    return '\n'.join(as_text(value) for value in values if not isinstance(value, BinaryContent))


def _fitting(part: Part, schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the value of a part in the forms that fit a schema."""
    if 'text' in part:
        try:
            value: Any = from_json(part['text'])
        except ValueError:
            return
    else:
        [value] = _items([part])
    for candidate in _candidates(value, schema, part.get('metadata', {}).get('python_type')):
        if isinstance(candidate, dict) and problem(candidate, schema, 'output') is None:
            yield cast('dict[str, Any]', candidate)


def _candidates(value: Any, schema: Mapping[str, Any], type_name: Any) -> Iterator[Any]:
    """Yield a value in the forms in which Pydantic AI expects objects, other values, and members of unions."""
    yield value
    properties: Mapping[str, Any] = schema.get('properties', {})
    if len(properties) != 1:
        return
    [(name, only)] = properties.items()
    yield {name: value}
    kinds = [member.get('properties', {}).get('kind', {}).get('const') for member in only.get('anyOf', ())]
    for kind in sorted(kinds, key=lambda kind: kind != type_name):
        yield {name: {'kind': kind, 'data': value}}
