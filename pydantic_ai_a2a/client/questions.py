"""The questions of remote tasks that wait for their client. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NotRequired, cast

from typing_extensions import TypedDict

from ..errors import RemoteProtocolError
from ..json_values import as_list, as_object
from ..task_states import INTERRUPTED
from ..types.a2a_objects import Message, Part, Task
from ..wire.extensions.adk_function_calls import function_call
from ..wire.extensions.pending_calls_extension import MEDIA_TYPE
from ..wire.extensions.remote_calls import open_calls
from ..wire.schemas.foreign_schemas import UnusableSchema, check_schema, warn_ignored
from ..wire.schemas.json_depth import MOST_LEVELS, deeper_than
from .answer_content import artifact_parts, as_lines, messages_of, named, parts_text, shown_parts

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
    description: NotRequired[str]
    """Description of the tool of an approval. Absent if the remote agent does not send it."""
    decidedBy: NotRequired[Literal['caller', 'approver']]
    """Who decides about an approval, if the remote agent has approvers: the caller, or only other callers."""
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
    question: NotRequired[str]
    """Id of the status message. An answer without the id of a call names it, and so answers no later question."""
    usage: NotRequired[dict[str, int]]
    """Usage of the task so far."""


def question_of_task(agent: str, task: Task) -> RemoteQuestion:
    """Return the questions of a task that waits. Without a usable JSON Schema, a question takes any answer.

    Raises:
        RemoteProtocolError: Two calls have the same id, so an answer to one of them would answer both; or the
            question is nested more deeply than a server in between may pass it on.
    """
    status = task['status']
    parts = [] if (message := status.get('message')) is None else message['parts']
    own = [*_data(parts)]
    said, calls = (parts_text(parts), []) if own else (_said(task), _function_calls(task))
    waiting = RemoteQuestion(
        agent=agent,
        task=task['id'],
        context=task['context_id'],
        state=status['state'],
        text=_lines(said, *(call['text'] for call in calls)),
        pending=[cast('PendingRemoteCall', {**call, 'text': _lines(said, call['text'])}) for call in calls],
    )
    if (question := question_id(task)) is not None:
        waiting['question'] = question
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


def question_id(answer: Task | Message) -> str | None:
    """Return the id of the status message of a task that waits; None without an id, and for another answer."""
    if 'status' not in answer or answer['status']['state'] not in INTERRUPTED:
        return None
    message = answer['status'].get('message')
    return None if message is None else message['message_id'] or None


def for_caller(waiting: RemoteQuestion) -> RemoteQuestion | None:
    """Return a question without the approvals that only an approver can give; None if nothing else waits."""
    pending = [call for call in waiting['pending'] if call.get('decidedBy') != 'approver']
    return {**waiting, 'pending': pending} if pending or not waiting['pending'] else None


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
    objects: dict[str, Any] = {
        name: fields[name] for name in ('args', 'metadata') if isinstance(fields.get(name), dict)
    }
    for name in ('toolCallId', 'description'):
        if isinstance(text := fields.get(name), str):
            objects[name] = text
    if (decided_by := fields.get('decidedBy')) in ('caller', 'approver'):
        objects['decidedBy'] = decided_by
    if schema := _usable(fields.get('answerSchema'), 'answerSchema'):
        objects['answerSchema'] = schema
    return cast('PendingRemoteCall', {**texts, **objects})


def _usable(schema: object, field: str) -> dict[str, Any] | None:
    """Return the JSON Schema of an answer; None without a schema, and for one that cannot be used, which is logged."""
    try:
        return None if schema is None else check_schema(schema, field, of_object=False)
    except UnusableSchema as error:
        warn_ignored(f'A remote agent asks with a JSON Schema that cannot be used: {str(error)[:500]!r}.')
        return None
