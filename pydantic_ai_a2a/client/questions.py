"""Remote tasks that wait for their client: the questions, and the parts that answer them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NotRequired, cast

from pydantic_ai.exceptions import ModelRetry, UserError
from pydantic_ai.tools import ToolApproved, ToolDenied
from typing_extensions import TypedDict

from ..conversion.adk_function_calls import function_call
from ..conversion.foreign_schemas import UnusableSchema, check_schema
from ..conversion.json_depth import MOST_LEVELS, deeper_than
from ..conversion.pending_calls_extension import MEDIA_TYPE
from ..conversion.remote_calls import CONTINUE, answers_of, open_calls, wanted_schema
from ..errors import RemoteProtocolError
from ..types import Part, Task, as_list, as_object
from .answer_content import artifact_parts, as_lines, messages_of, named, shown_parts, text_of
from .card_schemas import warn

_KINDS = frozenset({'approval', 'question', 'external', 'authorization'})


class PendingRemoteCall(TypedDict):
    """A call of the remote agent that waits for a decision or a result."""

    id: str
    kind: Literal['approval', 'question', 'external', 'authorization']
    tool: str
    text: str
    """The question for a person."""
    toolCallId: NotRequired[str]
    """Id of the tool call, as in the progress of the task. Absent if the remote agent does not send it."""
    args: NotRequired[dict[str, Any]]
    """Arguments of the call. Absent if the remote agent hides the arguments."""
    answerSchema: NotRequired[dict[str, Any]]
    """JSON Schema of the answer."""
    metadata: NotRequired[dict[str, Any]]
    reply: NotRequired[dict[str, Any]]
    """Name, metadata and payload of the answer to a function call of ADK or kagent. Absent or empty for other calls."""


class RemoteQuestion(TypedDict):
    """A remote task that waits for its client."""

    agent: str
    """Name of the remote agent."""
    task: str
    """Id of the task."""
    context: str
    """Id of the conversation."""
    state: str
    """`input-required` or `auth-required`."""
    text: str
    """The question for a person."""
    pending: list[PendingRemoteCall]
    """Calls that wait. Empty for a question of the agent itself, and for agents that do not list pending calls."""
    schema: NotRequired[dict[str, Any]]
    """JSON Schema of the answer to a question of the agent itself."""
    authorization: NotRequired[dict[str, Any]]
    """Security schemes and URL of a sign-in."""
    usage: NotRequired[dict[str, int]]
    """Usage of the task so far."""


class RemoteAnswer(TypedDict, total=False):
    """The answer to a remote task: exactly one of the two."""

    parts: list[Part]
    """Parts of the message to the task."""
    denied: str
    """Reason for which the task is canceled: the agent waits for information or a sign-in, and gets none."""


def waiting_task(agent: str, task: Task) -> RemoteQuestion:
    """Return the questions of a task that waits. Without a usable JSON Schema, a question takes any answer.

    Raises:
        RemoteProtocolError: Two calls have the same id, so an answer to one of them would answer both; or the
            question is nested more deeply than a server in between may pass it on.
    """
    status = task['status']
    parts = message['parts'] if (message := status.get('message')) is not None else []
    own = [*_data(parts)]
    said, calls = (text_of(parts), []) if own else (_said(task), _function_calls(task))
    waiting = RemoteQuestion(
        agent=agent,
        task=task['id'],
        context=task['context_id'],
        state=status['state'],
        text=_lines(said, *(call['text'] for call in calls)),
        pending=[cast('PendingRemoteCall', {**call, 'text': _lines(said, call['text'])}) for call in calls],
    )
    for data in own:
        waiting['pending'] = [call for value in as_list(data.get('pending')) if (call := _call(value)) is not None]
        if schema := _usable(data.get('schema'), 'schema'):
            waiting['schema'] = schema
        if isinstance(authorization := data.get('authorization'), dict):
            waiting['authorization'] = authorization
    if deeper_than(MOST_LEVELS, waiting):
        raise RemoteProtocolError(
            f'The remote task {task["id"][:100]} asks with values nested more than {MOST_LEVELS} deep.'
        )
    ids = [call['id'] for call in open_calls(waiting)]
    if len({*ids}) < len(ids):
        raise RemoteProtocolError(f'The remote task {task["id"][:100]} waits with two calls of the same id.')
    return waiting


def _data(parts: Sequence[Part]) -> Iterator[dict[str, Any]]:
    """Yield the data of the pending calls extension."""
    for part in parts:
        if MEDIA_TYPE in (part.get('media_type'), part.get('metadata', {}).get('type')):
            data = part.get('data')
            if isinstance(data, dict):
                yield cast('dict[str, Any]', data)


def _said(task: Task) -> str:
    """Return the text of a question: the artifacts, such as a draft, and what the agent has said last."""
    messages = (_text(parts) for message in messages_of(task) if (parts := shown_parts(message)))
    last = next(messages, '')
    drafts = [draft for parts in artifact_parts(task) if (draft := _text(parts)) not in last]
    return _lines(*drafts, last)


def _text(parts: Sequence[Part]) -> str:
    return as_lines([[named(part) for part in parts]])


def _lines(*texts: str) -> str:
    return '\n'.join(filter(None, texts))


def _function_calls(task: Task) -> list[dict[str, Any]]:
    """Return the function calls with which a task of ADK or kagent waits."""
    for message in messages_of(task):
        if calls := [call for part in message['parts'] if (call := function_call(part)) is not None]:
            return calls
    return []


def _call(value: object) -> PendingRemoteCall | None:
    """Return a pending call from foreign data; None if the data is none."""
    fields = as_object(value)
    texts = {name: fields.get(name) for name in ('id', 'kind', 'tool', 'text')}
    if not all(isinstance(text, str) for text in texts.values()) or texts['kind'] not in _KINDS:
        return None
    objects = {name: fields[name] for name in ('args', 'metadata') if isinstance(fields.get(name), dict)}
    if isinstance(tool_call_id := fields.get('toolCallId'), str):
        objects['toolCallId'] = tool_call_id
    if schema := _usable(fields.get('answerSchema'), 'answerSchema'):
        objects['answerSchema'] = schema
    return cast('PendingRemoteCall', {**texts, **objects})


def _usable(schema: object, field: str) -> dict[str, Any] | None:
    """Return the JSON Schema of an answer; None without a schema, and for one that cannot be used, which is logged."""
    try:
        return None if schema is None else check_schema(schema, field, of_object=False)
    except UnusableSchema as error:
        warn(f'A remote agent asks with a JSON Schema that cannot be used: {str(error)[:500]!r}.')
        return None


def answer_to(waiting: RemoteQuestion, answer: Any) -> RemoteAnswer:
    """Return the answer to a task that waits.

    Args:
        waiting: The task.
        answer: The answer to the one pending call, or to the question of the agent itself. For several pending calls, a
            mapping of answers by the ids of the calls. False denies, but answers a question for a boolean.

    Raises:
        UserError: The answer does not suit the pending calls.
    """
    calls = open_calls(waiting)
    if calls:
        answers = _by_call(calls, answer)
        decisions = [(call, _answer(call, answers[call['id']])) for call in calls if call['id'] in answers]
        return RemoteAnswer(parts=cast('list[Part]', answers_of(decisions)))
    if _is_denial(answer) and not _is_boolean(answer, waiting.get('schema')):
        return RemoteAnswer(denied=answer.message if isinstance(answer, ToolDenied) else ToolDenied().message)
    if answer is True or isinstance(answer, ToolApproved):
        return RemoteAnswer(parts=[Part(text=CONTINUE)])
    return RemoteAnswer(parts=[Part(text=answer) if isinstance(answer, str) else Part(data=answer)])


def approval_of(waiting: RemoteQuestion) -> RemoteAnswer:
    """Return the answer of a local call that was approved without `remote_results`.

    Raises:
        UserError: The task asks a question, which an approval does not answer.
    """
    calls = open_calls(waiting)
    if waiting['state'] == 'input-required' and not (calls and all(call['kind'] == 'approval' for call in calls)):
        raise UserError(
            f'The remote task {waiting["task"]} asks: {waiting["text"]!r}. An approval is no answer: answer with '
            '`remote_results`.'
        )
    return answer_to(waiting, True)


def _is_denial(answer: object) -> bool:
    return answer is False or isinstance(answer, ToolDenied)


def _is_boolean(answer: object, schema: object) -> bool:
    """Return True for False as the answer to a question whose answer is a boolean."""
    return answer is False and 'boolean' in (as_object(schema).get('type'), (wanted_schema(schema) or {}).get('type'))


def _by_call(pending: Sequence[PendingRemoteCall], answer: Any) -> Mapping[str, Any]:
    ids = {call['id'] for call in pending}
    answers = as_object(answer)
    if answers and answers.keys() <= ids:
        return answers
    if len(ids) == 1 or answer is True or _is_denial(answer):
        return dict.fromkeys(ids, answer)
    raise UserError(f'The remote task waits with several calls. Answer with a mapping of call ids: {sorted(ids)}.')


def _answer(call: PendingRemoteCall, answer: Any) -> dict[str, Any]:
    call_id = call['id']
    if call['kind'] != 'approval':
        if isinstance(answer, ToolApproved):
            raise UserError(f'The remote call {call_id!r} asks for a value. An approval is no answer.')
        if (_is_denial(answer) and not _is_boolean(answer, call.get('answerSchema'))) or isinstance(answer, ModelRetry):
            reason = getattr(answer, 'message', '') or 'No answer was given.'
            return {'id': call_id, 'decision': 'retry', 'reason': reason}
        return {'id': call_id, 'decision': 'result', 'result': answer}
    if answer is True:
        return {'id': call_id, 'decision': 'approve'}
    if isinstance(answer, ToolApproved):
        if answer.override_args is not None and call.get('reply'):
            raise UserError(f'The remote call {call_id!r} takes no other arguments. Deny the call with the reason.')
        changed = {} if answer.override_args is None else {'args': answer.override_args}
        return {'id': call_id, 'decision': 'approve', **changed}
    if _is_denial(answer):
        reason = {'reason': answer.message} if isinstance(answer, ToolDenied) and answer.message else {}
        return {'id': call_id, 'decision': 'deny', **reason}
    raise UserError(
        f'The remote call {call_id!r} waits for an approval. Answer with True, False, ToolApproved or ToolDenied, not '
        f'{answer!r}.'
    )
