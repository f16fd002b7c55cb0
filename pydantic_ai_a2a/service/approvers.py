"""Callers that decide about the approvals of other owners' tasks, and see nothing else of the tasks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from ..audit import audit
from ..auth.operator_functions import allows
from ..conversion import pending_calls, questions
from ..conversion.edited_arguments import as_run
from ..conversion.pending_calls import Kind, Pending, PendingCall
from ..errors import InvalidParamsError, PermissionDeniedError, TaskNotFoundError, UnsupportedOperationError
from ..protocol import stored
from ..settings import Approvals, Approvers
from ..store.ports import Pause, Submission, TaskReader
from ..types import (
    Call,
    Caller,
    Message,
    SendParams,
    StoredTask,
    TaskHeader,
    WaitingCall,
    WaitingTask,
    load_caller,
    sender_of,
)

Kinds: TypeAlias = Collection[Kind] | None
"""The kinds of calls that a caller may answer; None for all kinds."""

Changed: TypeAlias = Mapping[str, dict[str, Any]]
"""Arguments of approvals in place of the model's, by the id of the call."""

_APPROVAL: frozenset[Kind] = frozenset[Kind]({'approval'})
_OTHERS: frozenset[Kind] = frozenset[Kind]({'question', 'external', 'authorization'})
_DECIDED = (
    'No call of the task waits for an approval: another caller has decided, or the task has gone on without the call.'
)


class ApproverAccess:
    """Applies `Approvals.approvers` to callers and tasks.

    Args:
        rule: The value of `Approvals.approvers`.
        reader: Reads tasks of all owners.
        approvals: Rules for answers of clients.
    """

    def __init__(self, rule: Approvers, reader: TaskReader, approvals: Approvals) -> None:
        self._rule = rule
        self._reader = reader
        self._approvals = approvals

    async def kinds(self, call: Call, owner: str, task_id: str, pause: Pause) -> Kinds:
        """Return the kinds of calls that a caller may answer in a waiting task of an owner."""
        approves = await self._may_approve(call, owner, task_id, pause)
        if owner != call.caller.owner:
            return _APPROVAL if approves else ()
        return None if approves else _OTHERS

    async def find(self, call: Call, task_id: str) -> tuple[TaskHeader, Pause | None] | None:
        """Return a task of another owner with its pause, if the caller is an approver of the task."""
        task = await self._reader.load(task_id, None, history_length=0, artifacts=False)
        if task is None or task.header.owner == call.caller.owner:
            return None
        pause = await self._pause(task.header)
        allowed = await self._may_approve(call, task.header.owner, task_id, pause)
        return (task.header, pause) if allowed else None

    def message(self, task_id: str, params: SendParams) -> SendParams:
        """Return the message of an approver without everything but the decision.

        Raises:
            InvalidParamsError: The message has a webhook, which would get the events of the task.
        """
        if params.push_config is not None:
            raise InvalidParamsError.of(params.push_field, 'only the owner of a task can add a webhook: leave it out')
        message = params.message
        decision = Message(role='user', parts=message['parts'], message_id=message['message_id'], task_id=task_id)
        return SendParams(message=decision)

    def submission(self, submission: Submission, header: TaskHeader, pause: Pause | None) -> Submission:
        """Return the message of an approver as a message to the owner's task. The run keeps the request of the owner.

        If no call waits for an approval, the message gets the error as its refusal, because a repeated message still
        gets its task.
        """
        submission = replace(submission, owner=header.owner, anonymous=False)
        if pause is None or _waiting(pause) is None:
            return replace(submission, refusal=UnsupportedOperationError(_DECIDED))
        return replace(submission, request=pause.request, pause=pause.number)

    async def view(self, call: Call, task_id: str) -> StoredTask:
        """Return the state and the waiting approvals of a task of another owner, without all else of the task.

        Raises:
            TaskNotFoundError: The task does not exist, or the caller is no approver.
        """
        found = await self.find(call, task_id)
        if found is None:
            raise TaskNotFoundError
        return self._shown(*found)

    async def after(self, header: TaskHeader) -> StoredTask:
        """Return the approver's view of a task after a decision: the state, and the approvals that still wait."""
        return self._shown(header, await self._pause(header))

    def _shown(self, header: TaskHeader, pause: Pause | None) -> StoredTask:
        message = None
        if waiting := _waiting(pause):
            assert pause is not None, 'its calls wait'
            parts = questions.shown(waiting, questions.rules_of(self._approvals, first=pause.first), header.id)
            name = f'{header.id}-{header.last_event}'
            ids = b',' + stored.ids(header.id, header.id)
            message = stored.message(name, b'ROLE_AGENT', stored.dump_parts(parts), ids)
        # The name of the context is the owner's text.
        header = replace(header, context_id=header.id, status_message=message, metadata=None)
        return StoredTask(header, None, None)

    async def _pause(self, header: TaskHeader) -> Pause | None:
        return await self._reader.pause(header.id, header.owner)

    async def decided(self, submission: Submission, call: Call, pause: Pause, answered: Pending) -> Submission:
        """Return a message with decisions, or its refusal if the rule forbids the arguments that the message changes.

        Decisions alone do not change who has sent the message of the run: the run keeps its request.

        Args:
            submission: The message.
            call: The call with the message.
            pause: The pause before the message.
            answered: The calls of the pause with the answers of the message.
        """
        assert pause.pending is not None
        before = pending_calls.load(pause.pending)
        new = {call_id: answer for call_id, answer in answered.answers.items() if call_id not in before.answers}
        changed = {call_id: answer.args for call_id, answer in new.items() if answer.args is not None}
        owner, task_id = submission.owner, submission.task_id
        if changed and not await self._may_approve(call, owner, task_id, pause, changed):
            return replace(submission, answer=None, refusal=forbidden_answer(call, task_id))
        sender = _sender(pause, before)
        if sender in (None, call.caller) or any(answer.decision not in ('approve', 'deny') for answer in new.values()):
            return submission
        return replace(submission, request=pause.request, credential=None)

    async def _may_approve(
        self, call: Call, owner: str, task_id: str, pause: Pause | None, changed: Changed | None = None
    ) -> bool:
        caller, task_owner = call.caller, Caller.of(owner)
        if caller.tenant != task_owner.tenant:
            return False
        if isinstance(self._rule, str):
            return self._rule in caller.scopes
        waiting = _waiting(pause)
        sender = _sender(pause, waiting) or task_owner
        calls = [_call(item, changed or {}) for item in waiting.open] if waiting else []
        task = WaitingTask(id=task_id, owner=task_owner, caller=sender, calls=calls)
        name = 'Approvals.approvers'
        return await call.request.ask(name, allows(name, self._rule, caller, task))


def forbidden_answer(call: Call, task_id: str) -> PermissionDeniedError:
    """Return the refusal of an answer to calls that the caller may not answer, after a line in the audit log."""
    caller = call.caller
    tenant = caller.tenant or None
    audit('forbidden', correlation_id=call.correlation_id, task=task_id, caller=caller.id, tenant=tenant)
    return PermissionDeniedError(
        'The caller may not answer this call. An approver decides about approvals, and the owner of the task'
        ' answers questions.'
    )


def _call(call: PendingCall, changed: Changed) -> WaitingCall:
    """Return a call as it would run: with changed arguments, and with the defaults of the tool."""
    args = changed.get(call.id, call.args)
    return WaitingCall(call.id, call.tool, None if args is None else as_run(args, call.schema or {}))


def _sender(pause: Pause | None, waiting: Pending | None) -> Caller | None:
    """Return the sender of the message whose run has paused; None if none is stored."""
    fields = None if waiting is None else waiting.caller
    if fields is None and pause is not None:
        fields = sender_of(pause.request)
    return None if fields is None else load_caller(fields)


def _waiting(pause: Pause | None) -> Pending | None:
    """Return the approvals that wait for a decision; None without such an approval."""
    if pause is None or pause.pending is None:
        return None
    waiting = pending_calls.load(pause.pending).only(_APPROVAL)
    return waiting if waiting.open else None
