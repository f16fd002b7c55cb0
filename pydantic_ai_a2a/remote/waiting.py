"""Remote tasks that wait for their client: the questions, and the parts that answer them. Pure."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import takewhile
from typing import Any, Literal, NotRequired, cast
from urllib.parse import urlsplit

from pydantic_ai.exceptions import ModelRetry, UserError
from pydantic_ai.messages import BinaryContent, FileUrl, ModelMessage, ModelResponse
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDefinition, ToolDenied
from pydantic_ai.usage import RequestUsage, RunUsage
from typing_extensions import TypedDict

from ..client.agent_finder import warn
from ..conversion.asking import MEDIA_TYPE
from ..conversion.inbound import url_kind
from ..conversion.remote_calls import (
    ANSWER,
    CONTINUE,
    SYSTEM,
    WAITING,
    answers_of,
    function_call,
    open_calls,
    sign_in,
)
from ..conversion.schemas import UnusableSchema, check_schema, problem
from ..errors import RemoteProtocolError
from ..protocol.fields import RUN_METADATA_URI
from ..types import Artifact, Message, Part, Task, as_object, dump_json

_KINDS = frozenset({'approval', 'question', 'external', 'authorization'})


class PendingRemoteCall(TypedDict):
    """A call of the remote agent that waits for a decision or a result."""

    id: str
    kind: Literal['approval', 'question', 'external', 'authorization']
    tool: str
    text: str
    """The question for a person."""
    args: NotRequired[dict[str, Any]]
    """Arguments of the call. Absent if the remote agent hides the arguments."""
    answerSchema: NotRequired[dict[str, Any]]
    """JSON Schema of the answer."""
    metadata: NotRequired[dict[str, Any]]
    reply: NotRequired[dict[str, Any]]
    """Name, metadata and payload of the answer to a function call of ADK or kagent. Absent or empty for other calls."""


class WaitingTask(TypedDict):
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


def waiting_task(agent: str, task: Task) -> WaitingTask:
    """Return the questions of a task that waits. Without a usable JSON Schema, a question takes any answer.

    Raises:
        RemoteProtocolError: Two calls have the same id, so an answer to one of them would answer both.
    """
    status = task['status']
    parts = message['parts'] if (message := status.get('message')) is not None else []
    own = [*_data(parts)]
    said, calls = (text_of(parts), []) if own else (_said(task), _function_calls(task))
    waiting = WaitingTask(
        agent=agent,
        task=task['id'],
        context=task['context_id'],
        state=status['state'],
        text=_lines(said, *(call['text'] for call in calls)),
        pending=[cast('PendingRemoteCall', {**call, 'text': _lines(said, call['text'])}) for call in calls],
    )
    for data in own:
        waiting['pending'] = [call for value in _list(data.get('pending')) if (call := _call(value)) is not None]
        if schema := _usable(data.get('schema'), 'schema'):
            waiting['schema'] = schema
        if isinstance(authorization := data.get('authorization'), dict):
            waiting['authorization'] = authorization
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
    messages = (_text(parts) for message in _messages(task) if (parts := _shown(message)))
    last = next(messages, '')
    drafts = [draft for parts in artifact_parts(task) if (draft := _text(parts)) not in last]
    return _lines(*drafts, last)


def _text(parts: Sequence[Part]) -> str:
    return as_lines([[named(part) for part in parts]])


def _lines(*texts: str) -> str:
    return '\n'.join(filter(None, texts))


def _function_calls(task: Task) -> list[dict[str, Any]]:
    """Return the function calls with which a task of ADK or kagent waits."""
    for message in _messages(task):
        if calls := [call for part in message['parts'] if (call := function_call(part)) is not None]:
            return calls
    return []


def _list(value: object) -> list[Any]:
    return cast('list[Any]', value) if isinstance(value, list) else []


def _call(value: object) -> PendingRemoteCall | None:
    """Return a pending call from foreign data; None if the data is none."""
    fields = as_object(value)
    texts = {name: fields.get(name) for name in ('id', 'kind', 'tool', 'text')}
    if not all(isinstance(text, str) for text in texts.values()) or texts['kind'] not in _KINDS:
        return None
    objects = {name: fields[name] for name in ('args', 'metadata') if isinstance(fields.get(name), dict)}
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


def answer_to(waiting: WaitingTask, answer: Any) -> RemoteAnswer:
    """Return the answer to a task that waits.

    Args:
        waiting: The task.
        answer: The answer to the one pending call, or to the question of the agent itself. For several pending calls, a
            mapping of answers by the ids of the calls.

    Raises:
        UserError: The answer does not suit the pending calls.
    """
    calls = open_calls(waiting)
    if calls:
        answers = _by_call(calls, answer)
        decisions = [(call, _answer(call, answers[call['id']])) for call in calls if call['id'] in answers]
        return RemoteAnswer(parts=cast('list[Part]', answers_of(decisions)))
    if _is_denial(answer):
        return RemoteAnswer(denied=answer.message if isinstance(answer, ToolDenied) else ToolDenied().message)
    if answer is True or isinstance(answer, ToolApproved):
        return RemoteAnswer(parts=[Part(text=CONTINUE)])
    return RemoteAnswer(parts=[Part(text=answer) if isinstance(answer, str) else Part(data=answer)])


def approval_of(waiting: WaitingTask) -> RemoteAnswer:
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
        if _is_denial(answer) or isinstance(answer, ModelRetry):
            return {'id': call_id, 'decision': 'retry', 'reason': getattr(answer, 'message', 'No answer was given.')}
        return {'id': call_id, 'decision': 'result', 'result': answer}
    if answer is True:
        return {'id': call_id, 'decision': 'approve'}
    if isinstance(answer, ToolApproved):
        if answer.override_args is not None and call.get('reply'):
            raise UserError(f'The remote call {call_id!r} takes no other arguments. Deny the call with the reason.')
        changed = {} if answer.override_args is None else {'args': answer.override_args}
        return {'id': call_id, 'decision': 'approve', **changed}
    if _is_denial(answer):
        reason = {'reason': answer.message} if isinstance(answer, ToolDenied) else {}
        return {'id': call_id, 'decision': 'deny', **reason}
    raise UserError(
        f'The remote call {call_id!r} waits for an approval. Answer with True, False, ToolApproved or ToolDenied, not '
        f'{answer!r}.'
    )


# --- parts of a remote agent's answer as content of Pydantic AI -------------------------------------------------------

_UNKNOWN = 'application/octet-stream'
_TEXT = 'text/plain'


def content_of(answer: Task | Message) -> Any:
    """Return the content of an answer: the one item, or a list of several items.

    Text becomes `str`, data becomes JSON values, and files become `BinaryContent` or a URL of the media type's kind.

    Raises:
        RemoteProtocolError: A file is not base64.
    """
    items = [item for parts in answer_parts(answer) for item in items_of(parts)]
    return items[0] if len(items) == 1 else items or ''


def answer_parts(answer: Task | Message) -> list[list[Part]]:
    """Return the parts of an answer, a list for each artifact or message. Thoughts are no answer.

    Without text or data in its artifacts, a task is answered by its status message, else by the last message of the
    agent since the last message of the user; files of the artifacts stay beside the message.
    """
    if 'parts' in answer:
        return [_shown(answer)]
    parts = artifact_parts(answer)
    if any('text' in part or 'data' in part for shown in parts for part in shown):
        return parts
    for message in _messages(answer):
        if texts := [part for part in _shown(message) if not parts or 'text' in part or 'data' in part]:
            return [texts, *parts]
    return parts


def _messages(task: Task) -> Iterator[Message]:
    """Yield the status message, and the agent's messages since the last message of the user, the last one first."""
    if (message := task['status'].get('message')) is not None:
        yield message
    yield from takewhile(lambda message: message['role'] == 'agent', reversed(task.get('history', [])))


def artifact_parts(task: Task) -> list[list[Part]]:
    """Return the parts of each artifact that has more than thoughts."""
    return [*filter(None, map(_shown, task.get('artifacts', ())))]


def _shown(holder: Message | Artifact) -> list[Part]:
    if _is_thought(holder.get('metadata', {})):
        return []
    return [part for part in holder['parts'] if part.get('text') != '' and not _is_thought(part.get('metadata', {}))]


def _is_thought(metadata: Mapping[str, Any]) -> bool:
    """Return True for the metadata of a thought or a step: of this package, ADK, kagent, Agno and others."""
    if metadata.get('progress') in ('thinking', 'tool') or metadata.get('agno_content_category') == 'reasoning':
        return True
    return any(
        (name.endswith('thought') and value in (True, 'true'))
        or (name.endswith('_type') and value in ('function_call', 'function_response'))
        for name, value in metadata.items()
    )


def output_problem(answer: Task | Message, schema: Mapping[str, Any] | None) -> str | None:
    """Return the fault of the data in an answer by the JSON Schema on the card; None if the data is valid."""
    if schema is None:
        return None
    if 'parts' in answer:
        parts = answer['parts']
    else:
        results = (artifact for artifact in answer.get('artifacts', ()) if artifact.get('name') == 'result')
        parts = [part for artifact in results for part in artifact['parts']]
    for part in parts:
        if 'json_schema' in part.get('metadata', {}) and 'data' in part:
            fault = problem(_result(part), schema, 'result')
            if fault is not None:
                return ' '.join(fault)
    return None


def text_of(parts: Iterable[Part]) -> str:
    """Return the text of parts, without data and files."""
    return ''.join(part['text'] for part in parts if 'text' in part)


def as_lines(content: Sequence[Sequence[Part]]) -> str:
    """Return content as text. Artifacts, data and URLs are on lines of their own. Files without a URL are left out."""
    items = (item for parts in content for item in items_of(parts))
    values = (item.url if isinstance(item, FileUrl) else item for item in items)
    return '\n'.join(as_text(value) for value in values if not isinstance(value, BinaryContent))


def named(part: Part) -> Part:
    """Return a part; for a file with content, its name as text."""
    if 'raw' not in part:
        return part
    return Part(data=f'[{part.get("filename", "a file")}: {part.get("media_type", _UNKNOWN)}]')


def digest_id(*values: Any) -> str:
    """Return an id for a message, made from JSON values: equal values make equal ids."""
    return sha256(dump_json(values)).hexdigest()[:32]


def items_of(parts: Sequence[Part]) -> list[Any]:
    """Return the content of each part. Neighbouring texts are one item."""
    items: list[Any] = []
    for part in parts:
        item = _item(part)
        if isinstance(item, str) and items and isinstance(items[-1], str) and 'text' in part:
            items[-1] += item
        else:
            items.append(item)
    return items


def _item(part: Part) -> Any:
    if 'text' in part:
        return part['text']
    if 'data' in part:
        return _result(part)
    name = part.get('filename')
    if 'raw' in part:
        file = BinaryContent(_bytes(part['raw']), media_type=part.get('media_type', _UNKNOWN), identifier=name)
        return BinaryContent.narrow_type(file)
    url = part.get('url', '')
    if not _is_http(url):
        return {'url': url}  # a file that only the remote agent can read
    media_type = part.get('media_type', _TEXT)
    return url_kind(media_type)(url=url, media_type=media_type, identifier=name)


def _is_http(url: str) -> bool:
    try:
        return urlsplit(url).scheme in ('http', 'https')
    except ValueError:
        return False


def _bytes(raw: str) -> bytes:
    try:
        return b64decode(raw, validate=True)
    except ValueError:
        raise RemoteProtocolError('A file of the answer is not base64.') from None


def _result(part: Part) -> Any:
    """Return data without the object in which FastA2A and this package wrap a typed result."""
    data: Any = part.get('data')
    if isinstance(data, dict) and 'json_schema' in part.get('metadata', {}):
        fields = cast('dict[str, Any]', data)
        return fields['result'] if fields.keys() == {'result'} else fields
    return cast('Any', data)


# --- the state of a remote conversation, as the messages of a run keep it ---------------------------------------------

APPROVAL = 'remote_approval'
"""Name of the tool whose calls are the remote calls that wait for an approval."""
QUESTION = 'remote_question'
"""Name of the tool whose calls are the remote questions, and the remote calls that wait for a result."""

_WAITING = ('input-required', 'auth-required')


@dataclass(frozen=True, kw_only=True)
class Remote:
    """A remote agent, as its responses name it."""

    name: str
    url: str | None


@dataclass(frozen=True, kw_only=True)
class RemoteTurn:
    """The last response of a remote agent in a history, and the messages after it."""

    new: Sequence[ModelMessage]
    """The messages that the agent has not seen."""
    response: ModelResponse | None = None
    """The agent's last response; None for a new conversation."""
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def context_id(self) -> str | None:
        """The conversation; None for a new conversation."""
        return self.details.get('contextId')

    @property
    def waiting_task(self) -> str | None:
        """The task that waits for its client; None for no task."""
        return self.details.get('taskId') if self.details.get('state') in _WAITING else None


def last_turn(messages: Sequence[ModelMessage], agent: Remote) -> RemoteTurn:
    """Return the agent's last response in a history, and the messages after it."""
    for n, message in reversed([*enumerate(messages)]):
        if isinstance(message, ModelResponse) and message.provider_name == SYSTEM:
            known = message.provider_details or {}
            if known.get('agent') == agent.name and message.provider_url == agent.url:
                return RemoteTurn(new=messages[n + 1 :], response=message, details=known)
    return RemoteTurn(new=messages)


def details(agent: Remote, answer: Task | Message) -> dict[str, Any]:
    """Return the provider details of a response."""
    found: dict[str, Any] = {'agent': agent.name}
    if context_id := answer.get('context_id'):
        found['contextId'] = context_id
    if 'status' in answer:
        found |= {'taskId': answer['id'], 'state': answer['status']['state']}
        if counts := totals(answer):
            found['usage'] = counts
        if found['state'] in _WAITING:
            waiting = waiting_task(agent.name, answer)
            values = {'schema': waiting.get('schema'), 'authorization': sign_in(waiting)}
            found |= {name: value for name, value in values.items() if value}
    return found


def used(turn: RemoteTurn, answer: Task | Message) -> RequestUsage:
    """Return the usage of a response: the remote task's totals, without those of the task's earlier response."""
    if 'status' not in answer:
        return RequestUsage()
    before: Mapping[str, int] = turn.details.get('usage', {}) if turn.details.get('taskId') == answer['id'] else {}
    usage = difference(totals(answer), before)
    return RequestUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )


def local_tools(parameters: ModelRequestParameters) -> dict[str, ToolDefinition]:
    """Return the tools of the local agent, by name, without the tools for pending calls."""
    return {tool.name: tool for tool in parameters.function_tools if tool.name not in (APPROVAL, QUESTION)}


def as_text(value: Any) -> str:
    """Return a value as text: text as it is, other values as JSON."""
    return value if isinstance(value, str) else dump_json(value).decode()


# --- answers to remote tasks that wait, as results of deferred tool calls ---------------------------------------------


def remote_results(requests: DeferredToolRequests, answers: Mapping[str, Any]) -> DeferredToolResults:
    """Return the results with which a run continues whose remote tasks wait.

    ```python
    from pydantic_ai import Agent, DeferredToolRequests

    from pydantic_ai_a2a import remote_results


    async def answer_all(agent: Agent, requests: DeferredToolRequests, history: list) -> None:
        results = remote_results(requests, {call.tool_call_id: True for call in requests.approvals})
        await agent.run(message_history=history, deferred_tool_results=results)
    ```

    Args:
        requests: The pending calls of the run.
        answers: The answer to each remote task, by the id of the local call. `requests.metadata[id]['a2a_waiting']` has
            the remote calls that wait. An approval is answered by True, False, `ToolApproved` (with other arguments) or
            `ToolDenied` (with a reason for the remote model). A question is answered by text or data. Several remote
            calls are answered by a mapping of answers by the ids of the remote calls.

    Raises:
        UserError: A call is unknown or waits for no remote task, or an answer does not suit the pending calls.
    """
    results, waiting_calls = DeferredToolResults(), requests.metadata
    for call_id, answer in answers.items():
        metadata = waiting_calls.get(call_id, {})
        if WAITING not in metadata:
            raise UserError(
                f'The tool call {call_id!r} waits for no remote task. Answer calls with the metadata "a2a_waiting".'
            )
        # Pydantic AI executes approved calls only. The tool tells a denial to the remote agent.
        results.approvals[call_id] = ToolApproved()
        results.metadata[call_id] = {**metadata, ANSWER: answer_to(metadata[WAITING], answer)}
    return results


# --- usage of remote tasks, from the run metadata extension -----------------------------------------------------------


def totals(task: Task) -> dict[str, int]:
    """Return the usage of all runs of a task, by the names of the extension; empty if unknown."""
    data = task.get('metadata', {}).get(RUN_METADATA_URI)
    usage = cast('dict[str, Any]', data).get('usage') if isinstance(data, dict) else None
    counts = cast('dict[str, Any]', usage) if isinstance(usage, dict) else {}
    return {name: count for name, count in counts.items() if type(count) is int and count >= 0}


def difference(used: Mapping[str, int], before: Mapping[str, int]) -> RunUsage:
    """Return the usage since an earlier state of the same task."""
    usage = RunUsage()
    for name, count in used.items():
        field = re.sub('[A-Z]', lambda letter: f'_{letter[0].lower()}', name)
        if isinstance(getattr(usage, field, None), int):
            setattr(usage, field, max(0, count - before.get(name, 0)))
    return usage
