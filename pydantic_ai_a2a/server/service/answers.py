"""How a message of a client enters its task: four cases, and what may come between.

What a message means depends on its task, and other processes change tasks. So a message is judged against the *pause*
of its task, which the number of the newest event names, and stored only if the task still has this pause.

- *New task.* The store takes the message with the task, and queues or starts it. There is nothing to judge.
- *Follow-up.* The task is queued or runs: it has no pause. The message waits for the next run, or enters the run.
- *Answer of the owner.* The task waits. The message is stored with the pending calls and its decisions about them. Once
  all calls are decided, the run goes on. Until then, the task asks for the rest, or asks again after an unclear answer.
- *Answer of an approver.* The same for a task of another owner, and for approvals alone. The run keeps the request of
  the owner, and the approver sees nothing of the task but the approvals.

`resume` is the answer of an operator to a task that waits for credentials. It decides no call, so no rule is asked.

Between the read of the pause and the write, there may come:

- *A repeat.* The store looks first for an earlier message with the same id, and returns its task, whatever has become
  of the task. So an error about the answer is not raised here, but goes to the store as `Submission.refusal`.
- *An answer to an earlier question.* Words and bare data have no id of a call. So the message may name its question,
  the status message of the task, in its metadata. It is bound to the pause of the question, or refused if that is over.
- *A race.* Another message answers, or the run pauses or goes on. Then the store raises `AnswerNeeded`, the pause is
  read again, and the message as it came is judged again. It is `late` for a pause that began after its arrival: words
  and bare data are about an earlier question, and decide nothing. A decision with the id of a call counts while the
  call waits: a run that pauses gives its calls new ids.
- *Two approvers, or two calls of `resume`.* Their messages are also bound to one pause (`Submission.pause`), and judged
  against no other. The store refuses the second one.
- *The end of the wait.* The task expires or is canceled. It has no pause then, and the store refuses the message.

What a person approves is what runs: a decision is about a call of the pause that the task still has at the write. The
call runs with the arguments of the pause, or with those of the message, if the rules allow the change.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TypeAlias

from pydantic_core import from_json

from ...errors import (
    A2AError,
    AnswerNeeded,
    InvalidParamsError,
    PermissionDeniedError,
    QuotaExceededError,
    UnsupportedOperationError,
)
from ...settings.app_settings import Settings
from ...settings.approvals import Approvals
from ...task_states import INTERRUPTED
from ...telemetry.metrics import metrics
from ...types.a2a_objects import Message, Part
from ...types.operation_params import SendParams
from ...types.service_calls import Call
from ...types.stored_tasks import StoredTask, TaskHeader
from ...wire.protocol import new_ids, stored, stored_values
from ..audit import audit
from ..conversion import answers_in_words, call_answers, pending_calls, status_parts
from ..conversion.client_output import SCHEMA_MARK, inherited
from ..conversion.pending_calls import CallAnswer, Kind, Pending, PendingCall
from ..quotas import Metering
from ..store.ports import Accepted, Answer, Backend, Pause, Submission
from .answer_audit import audit_answers
from .approvers import ApproverAccess, approver_question_id, sender_of_run, waiting_approvals
from .cancellation import loaded
from .message_marks import with_mark
from .slot_offers import Offers
from .submissions import Submissions

logger = logging.getLogger('pydantic_ai_a2a')

_DECIDED = (
    'No call of the task waits for an approval: another caller has decided, or the task has gone on without the call.'
)

Decisions: TypeAlias = Sequence[tuple[PendingCall, CallAnswer]]
"""The calls that a message decides."""


class IncomingMessages:
    """Puts the messages of clients into tasks.

    Args:
        backend: Stores the tasks.
        settings: Settings of the app.
        submissions: Checks the messages of clients.
        approvers: The callers that decide about calls of other owners' tasks; None without `Approvals.approvers`.
        metering: Checks the quotas of callers; None without quotas.
        offers: Offers a free slot for the task of a new message.
    """

    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        submissions: Submissions,
        *,
        approvers: ApproverAccess | None,
        metering: Metering | None,
        offers: Offers,
    ) -> None:
        self._backend = backend
        self._limits = settings.limits
        self._rules = settings.approvals
        self._idempotency_window = -(-settings.retention.idempotency_window // timedelta(milliseconds=1))
        self._submissions = submissions
        self._approvers = approvers
        self._metering = metering
        self._offers = offers

    async def submit(
        self, submission: Submission, call: Call, message: Message, *, from_operator: bool = False
    ) -> Accepted:
        """Store a message.

        Args:
            submission: The message after the checks without storage.
            call: The call with the message.
            message: The decoded message.
            from_operator: True for `resume`, which the rule of approvers does not concern.
        """
        if self._metering is not None:
            submission = replace(submission, task_limit=self._metering.task_limit)
            try:
                await self._metering.check_budgets(submission.owner)
            except QuotaExceededError as error:  # a repeated message still gets its task
                submission = replace(submission, refusal=error)
        reader, approvers = self._backend.reader, None if from_operator else self._approvers
        if not submission.new and (question := call_answers.named_question(message)) is not None:
            task = await reader.load(submission.task_id, submission.owner, history_length=0, artifacts=False)
            submission = submission if task is None else _bound(submission, task.header, question)
        pause = at_arrival = None if submission.new else await reader.pause(submission.task_id, submission.owner)
        while True:
            # A new task or a follow-up goes to the store as it came.
            judged: Submission = submission
            decisions: Decisions = ()
            # A message that is bound to an earlier pause is not judged against this one: the store refuses the message,
            # and the refusal must not show the calls of this pause.
            if pause is not None and submission.pause in (None, pause.number) and submission.refusal is None:
                late = at_arrival is None or pause.number != at_arrival.number
                judged, decisions = await self._answer(submission, call, message, pause, approvers, late=late)
            try:
                accepted = await self._store(judged)
                break
            except AnswerNeeded:  # the task has paused or gone on since the read
                pause = await reader.pause(submission.task_id, submission.owner)
        logger.info('Task %s accepted a message (correlation id %s).', accepted.header.id, call.correlation_id)
        if metrics.instruments is not None and submission.new and not accepted.replayed:
            metrics.instruments.enter('submitted')
        if decisions and not accepted.replayed:
            audit_answers(call, accepted.header.id, submission.owner, decisions)
        return accepted

    async def decide(self, approvers: ApproverAccess, call: Call, params: SendParams) -> StoredTask | None:
        """Store an approver's decision about a task of another owner. Return None for any other message.

        Raises:
            InvalidParamsError: The message has a webhook, which would get the events of the task.
        """
        task_id = params.message.get('task_id')
        if task_id is None or (found := await approvers.find(call, task_id)) is None:
            return None
        header, pause = found
        if params.push_config is not None:
            raise InvalidParamsError.of(params.push_field, 'only the owner of a task can add a webhook: leave it out')
        # The parts are the decision. Nothing else of the approver's message concerns the run of the owner.
        parts, message_id = params.message['parts'], params.message['message_id']
        message = Message(role='user', parts=parts, message_id=message_id, task_id=task_id)
        submission = await self._submissions.check(call, SendParams(message=message))
        submission = replace(submission, owner=header.owner, anonymous=False)
        if pause is None or waiting_approvals(pause) is None:
            submission = replace(submission, refusal=UnsupportedOperationError(_DECIDED))
        else:
            submission = replace(submission, request=pause.request, pause=pause.number)
        if (question := call_answers.named_question(params.message)) is not None:
            submission = _bound(submission, header, question)
        accepted = await self.submit(submission, call, message)
        return await approvers.view_of(call, accepted.header, pause)

    async def resume(self, call: Call, task_id: str, text: str) -> StoredTask:
        """Continue a task that waits for credentials. The task may have any owner.

        Raises:
            TaskNotFoundError: The task does not exist.
            UnsupportedOperationError: The task does not wait for credentials, or no longer for these.
        """
        header = (await loaded(self._backend, task_id, None, 0)).header
        if header.state != 'auth-required':
            raise UnsupportedOperationError(
                f'The task is {header.state}, but only a task in auth-required can be resumed.'
            )
        message = Message(role='user', parts=[Part(text=text)], message_id=new_ids.new_id(), task_id=task_id)
        submission = await self._submissions.check(call, SendParams(message=message))
        body = with_mark(submission.body, resumed=True)
        submission = replace(submission, body=body, owner=header.owner, anonymous=False, pause=header.last_event)
        pause = await self._backend.reader.pause(task_id, header.owner)
        # The run keeps its caller. A task that has gone on meanwhile refuses the message.
        submission = replace(submission, request=None if pause is None else pause.request)
        await self.submit(submission, call, message, from_operator=True)
        return await loaded(self._backend, task_id, None, None)

    async def _answer(
        self,
        submission: Submission,
        call: Call,
        message: Message,
        pause: Pause,
        approvers: ApproverAccess | None,
        *,
        late: bool,
    ) -> tuple[Submission, Decisions]:
        """Return a message as the answer to a pause, or with its refusal; and what it decides.

        Args:
            submission: The message as it came.
            call: The call with the message.
            message: The decoded message.
            pause: The current pause of the task.
            approvers: Applies the rule of approvers; None without a rule for the message.
            late: True if the pause began after the message had arrived.
        """
        if pause.request is not None and SCHEMA_MARK in pause.request:
            submission = replace(submission, request=inherited(submission.request, pause.request))
        if pause.pending is None:  # the task waits without calls: the message is the next prompt
            if late and not submission.answers_calls:
                return replace(submission, refusal=call_answers.too_late()), ()
            return replace(submission, answer=Answer(pause=pause, pending=None)), ()
        rules, pending, kinds = self._rules, pending_calls.load(pause.pending), None
        answerable = readable = pending
        if approvers is not None:
            kinds = await approvers.kinds(call, submission.owner, submission.task_id, pause)
            rules = answers_in_words.rules_of(rules, first=pause.first)
        if kinds is not None:
            answerable = pending.only(kinds)
            readable = pending if submission.owner == call.caller.owner else answerable
        try:
            if kinds is not None:
                _check_allowed(call, submission.task_id, message, pending, kinds)
            decided = call_answers.answered(
                answerable,
                message,
                by=call.caller.id,
                rules=rules,
                late=late,
                limit=self._limits.messages,
                readable=readable,
            )
        except A2AError as error:
            return replace(submission, refusal=error), ()
        decided = replace(decided, calls=pending.calls)  # also the calls that others answer
        new = decided.answers.keys() - pending.answers.keys()
        decisions = [(item, decided.answers[item.id]) for item in pending.calls if item.id in new]
        answering = _with_answer(submission, call, pause, pending, decided, rules=rules)
        if approvers is not None and decisions:
            answering = await _as_approved(answering, call, pause, approvers, decisions)
        return answering, decisions

    async def _store(self, submission: Submission) -> Accepted:
        """Store a message, and begin the run of the task at once if a slot is free and no other task comes first."""
        offer, claim = self._offers(), None
        try:
            accepted = await self._backend.queue.submit(
                submission,
                queue_limit=self._limits.queue,
                idempotency_window=self._idempotency_window,
                slot=None if offer is None else offer.slot,
            )
            claim = accepted.claim
        finally:
            if offer is not None:
                offer.settle(claim)
        return accepted


def _bound(submission: Submission, task: TaskHeader, question: str) -> Submission:
    """Return a message that names its question as bound to the current pause, or refused if that asks another one."""
    asked = None if task.status_message is None else from_json(task.status_message)['messageId']
    if task.state in INTERRUPTED and question in (asked, approver_question_id(task)):
        return replace(submission, pause=task.last_event)
    error = UnsupportedOperationError(
        f'The task is {task.state}, and no longer asks the question {question[:200]!r}: read the task.'
    )
    return replace(submission, refusal=error)


def _with_answer(
    submission: Submission, call: Call, pause: Pause, before: Pending, decided: Pending, *, rules: Approvals
) -> Submission:
    """Return a message with what becomes of the pending calls, and with the next question while calls are open."""
    unclear = decided.asked_again > before.asked_again
    question = None
    if decided.open or unclear:
        parts = status_parts.shown(decided, rules, submission.task_id, again=unclear)
        ids = b',' + stored.ids(submission.task_id, pause.context_id)
        question = stored.message(new_ids.new_id(), b'ROLE_AGENT', stored_values.dump_parts(parts), ids)
    answer = Answer(pause=pause, pending=pending_calls.dump(decided), rest=question, again=unclear)
    if len(decided.answers) == len(before.answers):
        return replace(submission, answer=answer)
    by: dict[str, str] = {'id': call.caller.id} if call.caller.id else {}
    if call.caller.tenant:
        by['tenant'] = call.caller.tenant
    return replace(submission, answer=answer, body=with_mark(submission.body, answeredBy=by))


async def _as_approved(
    submission: Submission, call: Call, pause: Pause, approvers: ApproverAccess, decisions: Decisions
) -> Submission:
    """Return an answer as far as the rule of approvers allows it: with its refusal, or with the request of the run."""
    changed = {item.id: answer.args for item, answer in decisions if answer.args is not None}
    if changed and not await approvers.may_approve(call, submission.owner, submission.task_id, pause, changed):
        return replace(submission, answer=None, refusal=_forbidden(call, submission.task_id))
    sender = sender_of_run(pause)
    if sender in (None, call.caller) or any(answer.decision not in ('approve', 'deny') for _, answer in decisions):
        return submission
    # Decisions alone do not change who has sent the message of the run: the run keeps its request.
    return replace(submission, request=pause.request, credential=None)


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
    answerable, ids = pending.only(kinds), call_answers.answered_ids(message)
    known = {item.shown_id for item in pending.calls}
    if kinds and ids and ids.isdisjoint(known):
        return
    foreign = known - {item.shown_id for item in answerable.calls}
    if (pending.open and not answerable.open) or not foreign.isdisjoint(ids):
        raise _forbidden(call, task_id)


def _forbidden(call: Call, task_id: str) -> PermissionDeniedError:
    """Return the refusal of an answer to calls that the caller may not answer, after a line in the audit log."""
    caller = call.caller
    tenant = caller.tenant or None
    audit('forbidden', correlation_id=call.correlation_id, task=task_id, caller=caller.id, tenant=tenant)
    return PermissionDeniedError(
        'The caller may not answer this call. An approver decides about approvals, and the owner of the task'
        ' answers questions.'
    )
