"""The parts that answer the questions of remote tasks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic_ai.exceptions import ModelRetry, UserError
from pydantic_ai.tools import ToolApproved, ToolDenied
from typing_extensions import TypedDict

from ..json_values import as_object
from ..types.a2a_objects import Message, Part
from ..wire.extensions.pending_calls_extension import with_question
from ..wire.extensions.remote_calls import CONTINUE, answers_of, open_calls, wanted_schema
from .message_content import message_of
from .questions import PendingRemoteCall, RemoteQuestion


class RemoteAnswer(TypedDict, total=False):
    """The answer to a remote task: exactly one of the two."""

    parts: list[Part]
    """Parts of the message to the task."""
    denied: str
    """Reason for which the task is canceled: the agent waits for information or a sign-in, and gets none."""


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


def answer_message(waiting: RemoteQuestion, answer: RemoteAnswer) -> Message:
    """Return the message with the parts of an answer, which names the question."""
    return with_question(message_of(answer.get('parts', [])), waiting.get('question'))


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
