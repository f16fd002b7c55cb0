"""Remote tasks that wait for their client: the questions, and the parts that answer them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NotRequired, cast

from fasta2a.schema import Part, Task
from pydantic_ai.exceptions import ModelRetry, UserError
from pydantic_ai.tools import ToolApproved, ToolDenied
from typing_extensions import TypedDict

from ..conversion.asking import MEDIA_TYPE
from ..conversion.remote_calls import CONTINUE, open_calls
from .content import text_of

__all__ = ('PendingRemoteCall', 'RemoteAnswer', 'WaitingTask', 'answer_to', 'approval_of', 'waiting_task')

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
    """Return the questions of a task that waits."""
    status = task['status']
    parts = message['parts'] if (message := status.get('message')) is not None else []
    waiting = WaitingTask(
        agent=agent,
        task=task['id'],
        context=task['context_id'],
        state=status['state'],
        text=text_of(parts),
        pending=[],
    )
    for data in _data(parts):
        waiting['pending'] = [call for value in _list(data.get('pending')) if (call := _call(value)) is not None]
        if schema := _object(data.get('schema')):
            waiting['schema'] = schema
        if isinstance(authorization := data.get('authorization'), dict):
            waiting['authorization'] = authorization
    return waiting


def _data(parts: Sequence[Part]) -> Iterator[dict[str, Any]]:
    """Yield the data of the pending calls extension."""
    for part in parts:
        if MEDIA_TYPE in (part.get('media_type'), part.get('metadata', {}).get('type')):
            data = part.get('data')
            if isinstance(data, dict):
                yield cast('dict[str, Any]', data)


def _list(value: object) -> list[Any]:
    return cast('list[Any]', value) if isinstance(value, list) else []


def _object(value: object) -> dict[str, Any]:
    return cast('dict[str, Any]', value) if isinstance(value, dict) else {}


def _call(value: object) -> PendingRemoteCall | None:
    """Return a pending call from foreign data; None if the data is none."""
    fields = _object(value)
    texts = {name: fields.get(name) for name in ('id', 'kind', 'tool', 'text')}
    if not all(isinstance(text, str) for text in texts.values()) or texts['kind'] not in _KINDS:
        return None
    names = ('args', 'answerSchema', 'metadata')
    objects = {name: fields[name] for name in names if isinstance(fields.get(name), dict)}
    return cast('PendingRemoteCall', {**texts, **objects})


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
        decisions = [_answer(call, answers[call['id']]) for call in calls if call['id'] in answers]
        return RemoteAnswer(parts=[Part(data={'callAnswers': decisions})])
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
    answers = _object(answer)
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
        changed = {} if answer.override_args is None else {'args': answer.override_args}
        return {'id': call_id, 'decision': 'approve', **changed}
    if _is_denial(answer):
        reason = {'reason': answer.message} if isinstance(answer, ToolDenied) else {}
        return {'id': call_id, 'decision': 'deny', **reason}
    raise UserError(
        f'The remote call {call_id!r} waits for an approval. Answer with True, False, ToolApproved or ToolDenied, not '
        f'{answer!r}.'
    )
