"""Answers of clients to waiting tasks, and the audit records of the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic_core import from_json, to_json

from ..audit import Fact, audit
from ..conversion import answers, asking, pending
from ..errors import AnswerNeeded
from ..ports import Answer, Submission
from ..protocol import stored
from ..settings import Approvals
from ..types import Call, Message

__all__ = ('answered', 'audit_answers', 'with_mark', 'without_marks')

_MARKS = frozenset({'answeredBy', 'resumed'})
"""Names in message metadata for the server's own marks: the sender of an answer, and a call of `resume_task`."""


def answered(
    submission: Submission,
    call: Call,
    message: Message,
    needed: AnswerNeeded,
    *,
    rules: Approvals,
    late: bool,
    limit: int,
) -> Submission:
    """Return the message as an answer to the calls of its waiting task, or unchanged if no call is pending any more.

    Args:
        submission: The message.
        call: The call with the message.
        message: The decoded message.
        needed: The pending calls of the task.
        rules: Rules for answers of clients.
        late: True if the message was accepted before the task's current pause.
        limit: Maximum number of repeated questions while the task waits.

    Raises:
        InvalidParamsError: The message is no answer.
    """
    if needed.pending is None:
        return submission
    before = pending.load(needed.pending)
    after = answers.answered(before, message, by=call.caller.id, rules=rules, late=late, limit=limit)
    again = after.asked_again > before.asked_again
    rest = None
    if after.open or again:
        parts = asking.shown(after, rules, needed.task_id, again=again)
        body = stored.message(stored.new_id(), b'ROLE_AGENT', stored.dump_parts(parts))
        rest = stored.with_ids(body, needed.task_id, needed.context_id)
    answer = Answer(pause=needed.pause, pending=pending.dump(after), rest=rest, again=again)
    if again or after is before:
        return replace(submission, answer=answer)
    by = {name: value for name, value in (('id', call.caller.id), ('tenant', call.caller.tenant)) if value}
    return replace(submission, answer=answer, body=with_mark(submission.body, answeredBy=by))


def without_marks(message: Message, metadata: Mapping[str, Any]) -> Message:
    """Return a client's message without the metadata reserved for the server."""
    if _MARKS.isdisjoint(metadata):
        return message
    return {**message, 'metadata': {name: value for name, value in metadata.items() if name not in _MARKS}}


def with_mark(body: bytes, **mark: Any) -> bytes:
    """Return a stored message with a mark of the server in its metadata, under a name of `_MARKS`."""
    message = from_json(body)
    return to_json({**message, 'metadata': {**message.get('metadata', {}), **mark}})


def audit_answers(call: Call, task_id: str, answer: Answer) -> None:
    """Record the calls that a caller has decided, and the calls whose arguments the caller has changed."""
    if answer.again:
        return
    after = pending.load(answer.pending)
    own = {call_id: decided for call_id, decided in after.answers.items() if decided.by == call.caller.id}
    changed = [item.id for item in after.calls if item.id in own and own[item.id].args not in (None, item.args)]
    if own:
        facts: dict[str, Fact] = {'changed_arguments': changed} if changed else {}
        audit(
            'calls-answered',
            correlation_id=call.correlation_id,
            task=task_id,
            caller=call.caller.id,
            tenant=call.caller.tenant or None,
            decisions={call_id: decided.decision for call_id, decided in own.items()},
            **facts,
        )
