"""Answers of clients to waiting tasks, and the audit records of the answers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ..audit import Fact, audit
from ..conversion import call_answers, pending_calls, questions
from ..conversion.client_output import SCHEMA_MARK, inherited
from ..conversion.pending_calls import Kind, Pending
from ..errors import A2AError
from ..protocol import stored
from ..settings import Approvals
from ..store.ports import Answer, Pause, Submission
from ..types import Call, Caller, Message
from .approvers import Kinds, forbidden_answer
from .message_marks import with_mark


def answered(
    submission: Submission,
    call: Call,
    message: Message,
    pause: Pause,
    *,
    kinds: Kinds = None,
    rules: Approvals,
    late: bool,
    limit: int,
) -> tuple[Submission, Pending | None]:
    """Return a message as the answer to a waiting task, and the answered calls for the audit log, if any.

    The error is kept with a message that does not answer: a repeat of an accepted message must still find its task.

    Args:
        submission: The message.
        call: The call with the message.
        message: The decoded message.
        pause: The current pause of the task.
        kinds: Kinds of calls that the caller may answer; None for all kinds.
        rules: Rules for answers of clients.
        late: True if the message was accepted before the task's current pause.
        limit: Maximum number of repeated questions while the task waits.
    """
    if pause.request is not None and SCHEMA_MARK in pause.request:
        submission = replace(submission, request=inherited(submission.request, pause.request))
    if pause.pending is None:
        if late and not submission.answers_calls:
            return replace(submission, refusal=call_answers.too_late()), None
        return replace(submission, answer=Answer(pause=pause, pending=None)), None
    before = pending_calls.load(pause.pending)
    own = before if kinds is None else before.only(kinds)
    readable = before if own is before or submission.owner == call.caller.owner else own
    if rules.approvers is not None:
        rules = questions.rules_of(rules, first=pause.first)
    try:
        if kinds is not None:
            _check_allowed(call, submission.task_id, message, before, kinds)
        after = call_answers.answered(
            own, message, by=call.caller.id, rules=rules, late=late, limit=limit, readable=readable
        )
    except A2AError as error:
        return replace(submission, refusal=error), None
    after = before if after is own else replace(after, calls=before.calls)
    again = after.asked_again > before.asked_again
    rest = None
    if after.open or again:
        parts = questions.shown(after, rules, submission.task_id, again=again)
        ids = b',' + stored.ids(submission.task_id, pause.context_id)
        rest = stored.message(stored.new_id(), b'ROLE_AGENT', stored.dump_parts(parts), ids)
    answer = Answer(pause=pause, pending=pending_calls.dump(after), rest=rest, again=again)
    if again or after is before:
        return replace(submission, answer=answer), None
    by: dict[str, str] = {'id': call.caller.id} if call.caller.id else {}
    if call.caller.tenant:
        by['tenant'] = call.caller.tenant
    return replace(submission, answer=answer, body=with_mark(submission.body, answeredBy=by)), after


def _check_allowed(call: Call, task_id: str, message: Message, pending: Pending, kinds: Collection[Kind]) -> None:
    """Refuse answers to calls that the caller may not answer.

    Answers to other calls than those that wait, such as to an earlier pause, are left to `call_answers.answered`.

    Args:
        call: The call with the message.
        task_id: The waiting task.
        message: The message with the answers.
        pending: All calls of the task.
        kinds: Kinds of calls that the caller may answer.
    """
    own, ids = pending.only(kinds), call_answers.answered_ids(message)
    known = {item.shown_id for item in pending.calls}
    if kinds and ids and ids.isdisjoint(known):
        return
    foreign = known - {item.shown_id for item in own.calls}
    if (pending.open and not own.open) or not foreign.isdisjoint(ids):
        raise forbidden_answer(call, task_id)


def audit_answers(call: Call, task_id: str, owner: str, after: Pending) -> None:
    """Record the calls that a caller has decided, the calls with changed arguments, and the owner of another's task."""
    decisions: dict[str, str] = {}
    changed: list[str] = []
    for item in after.calls:
        decided = after.answers.get(item.id)
        if decided is not None and decided.by == call.caller.id:
            decisions[item.id] = decided.decision
            if decided.args not in (None, item.args):
                changed.append(item.id)
    facts: dict[str, Fact] = {'changed_arguments': changed} if changed else {}
    if owner != call.caller.owner:
        facts['owner'] = Caller.of(owner).id
    audit(
        'calls-answered',
        correlation_id=call.correlation_id,
        task=task_id,
        caller=call.caller.id,
        tenant=call.caller.tenant or None,
        decisions=decisions,
        **facts,
    )
