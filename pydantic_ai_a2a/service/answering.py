"""Messages to tasks that wait for their client: the answer that each of them is, and the audit record of it."""

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
"""Names in the metadata of messages under which the server says who has answered, and that `resume_task` was called."""


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
    """The message as an answer to what its task waits with; as it was if it waits with nothing by now.

    Args:
        submission: The message.
        call: Who sent it.
        message: The same message, as it was read.
        needed: What the task waits with.
        rules: What clients may answer.
        late: Whether the message was accepted before the task waited with this.
        limit: How often the client may be asked again while the task waits.

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
    """Return a client's message without the metadata that only the server writes."""
    if _MARKS.isdisjoint(metadata):
        return message
    return {**message, 'metadata': {name: value for name, value in metadata.items() if name not in _MARKS}}


def with_mark(body: bytes, **mark: Any) -> bytes:
    """A stored message with something that the server says of it in its metadata, by one of the names in `_MARKS`."""
    message = from_json(body)
    return to_json({**message, 'metadata': {**message.get('metadata', {}), **mark}})


def audit_answers(call: Call, task_id: str, answer: Answer) -> None:
    """Record which of the calls a caller has decided about, by now, and whose arguments the caller has changed."""
    if answer.again:
        return
    after = pending.load(answer.pending)
    own = {call_id: decided for call_id, decided in after.answers.items() if decided.by == call.caller.id}
    changed = [each.id for each in after.calls if each.id in own and own[each.id].args not in (None, each.args)]
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
