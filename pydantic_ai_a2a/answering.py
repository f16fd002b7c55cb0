"""Messages to tasks that wait: what each comes to as an answer, and the audit record of it. Knows no queue."""

from __future__ import annotations

from dataclasses import replace

from pydantic_core import from_json, to_json

from .audit import audit
from .conversion import answers, pending
from .conversion.answers import PlainText
from .errors import AnswerNeeded
from .ports import Answer, Submission
from .protocol import stored
from .types import Call, Message

__all__ = ('answered', 'audit_answers')


def answered(
    submission: Submission, call: Call, message: Message, needed: AnswerNeeded, *, plain_text: PlainText
) -> Submission:
    """The message as an answer to what its task waits with; as it was if it waits with nothing by now.

    Raises:
        InvalidParamsError: It is none.
    """
    if needed.pending is None:
        return submission
    before = pending.load(needed.pending)
    after = answers.answered(before, message, by=call.caller.id, plain_text=plain_text)
    rest = None
    if after.open:
        body = stored.message(stored.new_id(), b'ROLE_AGENT', stored.dump_parts(pending.shown(after)))
        rest = stored.with_ids(body, needed.task_id, needed.context_id)
    answer = Answer(pause=needed.pause, pending=pending.dump(after), rest=rest)
    if after is before:
        return replace(submission, answer=answer)
    by = {name: value for name, value in (('id', call.caller.id), ('tenant', call.caller.tenant)) if value}
    metadata = {**message.get('metadata', {}), 'answeredBy': by}
    body = to_json({**from_json(submission.body), 'metadata': metadata})
    return replace(submission, answer=answer, body=body)


def audit_answers(call: Call, task_id: str, answer: Answer) -> None:
    """Record which of the calls a caller has decided about, by now."""
    known = pending.load(answer.pending).answers
    decisions = {call_id: each.decision for call_id, each in known.items() if each.by == call.caller.id}
    if decisions:
        audit(
            'calls-answered',
            correlation_id=call.correlation_id,
            task=task_id,
            caller=call.caller.id,
            tenant=call.caller.tenant or None,
            decisions=decisions,
        )
