"""The message to a remote agent, made from the messages of a run: prompts, and answers to waiting tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast
from uuid import uuid4

from pydantic_ai import ModelRetry
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    CachePoint,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    ToolCallPart,
    ToolReturnPart,
    UploadedFile,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolApproved, ToolDefinition, ToolDenied
from pydantic_core import to_json, to_jsonable_python

from ...types.a2a_objects import Part
from ...wire.extensions.client_schema import usable_schema
from ...wire.extensions.remote_calls import CONTINUE, SYSTEM
from ..answer_content import as_text
from ..message_content import digest_id, part_of
from ..question_answers import answer_to
from ..questions import PendingRemoteCall, RemoteQuestion
from .local_tools import APPROVAL, QUESTION, local_tools
from .remote_turns import RemoteTurn

_DENIED = ToolDenied().message
_DATA = ('application/json', 'text/plain')
"""Accepted media types of a run whose output is data: also text, for agents that write JSON."""
_SCHEMA = 'Answer with JSON, without other text, that fits this JSON Schema: '


@dataclass(frozen=True, kw_only=True)
class Outgoing:
    """A message to a remote agent."""

    parts: list[Part]
    task_id: str | None
    """The waiting task that the message answers; None for a new task."""
    accepted_output_modes: Sequence[str] = ()
    tools: Sequence[ToolDefinition] = ()
    """Tools of the local agent that the remote agent may call."""
    schema: dict[str, Any] | None = None
    """JSON Schema of the answer for an agent that takes schemas; None to ask in words, or for text."""


def outgoing(turn: RemoteTurn, parameters: ModelRequestParameters, *, takes_schemas: bool) -> Outgoing:
    """Return the message to a remote agent.

    Args:
        turn: The last response of the agent, and the messages after it.
        parameters: Parameters of the request, with the types of the output.
        takes_schemas: True if the message may have a JSON Schema for its answer.

    Raises:
        UserError: The messages cannot be sent: a prompt for a task that waits for answers to its calls, or content
            that A2A has no form for.
    """
    calls = [] if turn.waiting_task is None else _calls(turn)
    signs_in = any((call.provider_details or {}).get('kind') == 'authorization' for call in calls)
    tools = [*local_tools(parameters).values()]
    if calls and not signs_in:
        return Outgoing(parts=_answers(calls, turn), task_id=turn.waiting_task, tools=tools)
    parts = [part for message in turn.new for part in _parts(message)]
    if signs_in and not parts:
        parts = [Part(text=CONTINUE)]
    if not parts:
        raise UserError('There is nothing to send to the remote agent. Give the run a prompt.')
    instructions = [part.content for part in parameters.instruction_parts or () if part.content]
    schema = _schema(parameters)
    by_extension = usable_schema(schema) if takes_schemas else None
    if schema is not None and by_extension is None:
        instructions.append(_SCHEMA + to_json(schema).decode())
    return Outgoing(
        parts=[*parts, *(Part(text=text) for text in instructions)],
        task_id=turn.waiting_task,
        accepted_output_modes=() if schema is None or parameters.allow_image_output else _DATA,
        tools=tools,
        schema=by_extension,
    )


def message_id(messages: Sequence[ModelMessage], message: Outgoing) -> str:
    """Return the id of a request's message: the same for a repeated request of a run, another for any other request."""
    run_id = messages[-1].run_id or uuid4().hex
    return digest_id(run_id, len(messages), message.task_id, message.parts)


def _schema(parameters: ModelRequestParameters) -> dict[str, Any] | None:
    """Return the JSON Schema of the output; None for output that is text."""
    if parameters.output_object is not None:
        return parameters.output_object.json_schema
    if parameters.allow_text_output or not parameters.output_tools:
        return None
    schemas = [tool.parameters_json_schema for tool in parameters.output_tools]
    return schemas[0] if len(schemas) == 1 else {'anyOf': schemas}


def _parts(message: ModelRequest | ModelResponse) -> Iterator[Part]:
    """Yield the parts of a message that the agent has not seen. Answers of other models are told as text."""
    if isinstance(message, ModelResponse):
        if message.text:
            yield Part(text=f'An assistant has answered: {message.text}')
        return
    for part in message.parts:
        if isinstance(part, UserPromptPart):
            yield from _prompt(part.content)
        elif isinstance(part, SystemPromptPart):
            yield Part(text=part.content)
        elif isinstance(part, ToolReturnPart) and part.outcome == 'retried':
            yield Part(text=part.model_response_str())


def _prompt(content: str | Sequence[UserContent]) -> Iterator[Part]:
    for item in (content,) if isinstance(content, str) else content:
        if isinstance(item, UploadedFile):
            raise UserError(f'{type(item).__name__} cannot be sent to a remote agent. Send the bytes or a URL.')
        if not isinstance(item, CachePoint):
            yield part_of(item)


def _calls(turn: RemoteTurn) -> list[ToolCallPart]:
    parts = () if turn.response is None else turn.response.parts
    # The calls of output tools are without the name of the provider.
    return [part for part in parts if isinstance(part, ToolCallPart) and part.provider_name == SYSTEM]


def _answers(calls: Sequence[ToolCallPart], turn: RemoteTurn) -> list[Part]:
    """Return the parts that answer the pending calls of a task."""
    parts = [part for message in turn.new if isinstance(message, ModelRequest) for part in message.parts]
    returns = {part.tool_call_id: part for part in parts if isinstance(part, ToolReturnPart)}
    answered = {call_id for call_id, result in returns.items() if result.outcome != 'interrupted'}
    open_calls = [call.tool_call_id for call in calls if call.tool_call_id not in answered]
    if open_calls or any(isinstance(part, UserPromptPart) for part in parts):
        raise UserError(
            f'The remote task {turn.waiting_task} waits for answers to its calls, so no prompt is sent to it. Run the '
            'agent with `deferred_tool_results`, without a prompt. Calls without an answer: '
            f'{", ".join(open_calls) or "none"}.'
        )
    first = calls[0]
    if first.tool_name == QUESTION and 'id' not in (first.provider_details or {}):
        # A question of the remote agent itself.
        content: Any = returns[first.tool_call_id].content
        if isinstance(content, str):
            return [Part(text=content)]
        return [Part(data=to_jsonable_python(content), media_type='application/json')]
    waiting = RemoteQuestion(
        agent='', task='', context='', state='', text='', pending=[_pending(call) for call in calls]
    )
    answers = {call.tool_call_id: _answer(call, returns[call.tool_call_id]) for call in calls}
    return answer_to(waiting, answers).get('parts', [])


def _pending(call: ToolCallPart) -> PendingRemoteCall:
    """Return a call of the remote agent. Calls of tools of the local agent are without details."""
    details = call.provider_details or {'id': call.tool_call_id, 'kind': 'external', 'tool': call.tool_name}
    return cast('PendingRemoteCall', details)


def _answer(call: ToolCallPart, result: ToolReturnPart) -> Any:
    """Return the result of a call in the form that `answer_to` takes."""
    if call.tool_name != APPROVAL:
        retry = result.outcome in ('retried', 'failed')
        return ModelRetry(as_text(result.content)) if retry else to_jsonable_python(result.content)
    if result.outcome != 'success':
        reason = as_text(result.content)
        return False if reason == _DENIED else ToolDenied(reason)
    args = cast('dict[str, Any]', result.content).get('args')
    return ToolApproved(override_args=None if args == call.args_as_dict().get('args') else args)
