"""The answer of a remote agent as the parts of a model response."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, cast

from pydantic_ai.exceptions import ModelAPIError, UserError
from pydantic_ai.messages import BinaryContent, BinaryImage, FilePart, ModelResponsePart, TextPart, ToolCallPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_core import from_json

from ...task_states import INTERRUPTED
from ...types.a2a_objects import Message, Part, Task
from ...wire.extensions.remote_calls import SYSTEM
from ...wire.schemas.value_validation import problem
from ..answer_content import FAILED, answer_parts, as_lines, as_text, content_items, ending_of, named
from ..questions import PendingRemoteCall, question_of_task
from .local_tools import APPROVAL, QUESTION, local_tools

_ALONE = (
    'The remote task {} waits for an answer: {}. An agent with A2AModel cannot pass the answer on. Use '
    'RemoteAgent(client, [..., DeferredToolRequests]).'
)


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
        if state in FAILED:
            raise ModelAPIError(agent, ending_of(answer))
        if state in INTERRUPTED:
            return _waiting(answer, parameters, agent)
    parts = answer_parts(answer)
    items = [item for shown in parts for item in content_items(shown)]
    files = [FilePart(item) for item in items if isinstance(item, BinaryContent)]
    output = _typed_output(parts, parameters)
    is_image = parameters.allow_image_output and any(isinstance(file.content, BinaryImage) for file in files)
    if not output and not is_image and parameters.allow_text_output and parameters.output_object is None:
        output = _as_text([[named(part) for part in shown] for shown in parts])
    return [*output, *files]


def _waiting(task: Task, parameters: ModelRequestParameters, agent: str) -> list[ModelResponsePart]:
    """Return the pending calls as tool calls. A question without a call is text, or a call if text is no output.

    Calls of tools of the local agent are calls of these tools.
    """
    waiting = question_of_task(agent, task)
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


def _typed_output(answer: Sequence[Sequence[Part]], parameters: ModelRequestParameters) -> list[ModelResponsePart]:
    """Return the output, in the form of its declared type. Values that do not fit stay as they are."""
    parts = [part for shown in answer for part in shown]
    if parameters.output_object is not None:
        fitting = (_fitting(part, parameters.output_object.json_schema) for part in parts)
        found = next((value for values in fitting for value in values), None)
        return _as_text(answer) if found is None else [TextPart(as_text(found))]
    for part in parts:
        if 'text' in part and parameters.allow_text_output:
            continue
        for tool in parameters.output_tools:
            for value in _fitting(part, tool.parameters_json_schema):
                return [ToolCallPart(tool.name, value)]
    return _as_text(answer)


def _as_text(answer: Sequence[Sequence[Part]]) -> list[ModelResponsePart]:
    text = as_lines(answer)
    return [TextPart(text)] if text else []


def _fitting(part: Part, schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the value of a part in the forms that fit a schema."""
    if 'text' in part:
        try:
            value: Any = from_json(part['text'])
        except ValueError:
            return
    else:
        [value] = content_items([part])
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
