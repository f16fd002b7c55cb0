"""Approvers: callers that decide about the approvals of other owners' tasks, and see nothing else of the tasks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from inspect import isawaitable
from typing import TypeAlias

from ..conversion import asking, pending
from ..conversion.pending import Kind
from ..errors import InvalidParamsError, TaskNotFoundError, UnsupportedOperationError
from ..ports import Pause, Submission, TaskReader
from ..protocol import stored
from ..settings import Approvals, Approvers
from ..types import Caller, Message, SendParams, StoredTask, TaskHeader, WaitingCall, WaitingTask

__all__ = ('ApproverAccess', 'Kinds')

Kinds: TypeAlias = Collection[Kind] | None
"""The kinds of calls that a caller may answer; None for all kinds."""

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

    async def kinds(self, caller: Caller, owner: str, task_id: str, pause: Pause) -> Kinds:
        """Return the kinds of calls that a caller may answer in a waiting task of an owner."""
        approves = await self._may_approve(caller, owner, task_id, pause)
        if owner != caller.owner:
            return _APPROVAL if approves else ()
        return None if approves else _OTHERS

    async def find(self, caller: Caller, task_id: str) -> tuple[TaskHeader, Pause | None] | None:
        """Return a task of another owner with its pause, if the caller is an approver of the task."""
        task = await self._reader.load(task_id, None, history_length=0, artifacts=False)
        if task is None or task.header.owner == caller.owner:
            return None
        pause = await self._pause(task.header)
        allowed = await self._may_approve(caller, task.header.owner, task_id, pause)
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
        return SendParams(message=decision, dialect=params.dialect)

    def submission(self, submission: Submission, header: TaskHeader, pause: Pause | None) -> Submission:
        """Return the message of an approver as a message to the owner's task. The run keeps the request of the owner.

        If no call waits for an approval, the message gets the error as its refusal, because a repeated message still
        gets its task.
        """
        submission = replace(submission, owner=header.owner, anonymous=False)
        if pause is None or _waiting(pause) is None:
            return replace(submission, refusal=UnsupportedOperationError(_DECIDED))
        return replace(submission, request=pause.request, pause=pause.number)

    async def view(self, caller: Caller, task_id: str) -> StoredTask:
        """Return the state and the waiting approvals of a task of another owner, without all else of the task.

        Raises:
            TaskNotFoundError: The task does not exist, or the caller is no approver.
        """
        found = await self.find(caller, task_id)
        if found is None:
            raise TaskNotFoundError
        return self._shown(*found)

    async def after(self, header: TaskHeader) -> StoredTask:
        """Return the approver's view of a task after a decision: the state, and the approvals that still wait."""
        return self._shown(header, await self._pause(header))

    def _shown(self, header: TaskHeader, pause: Pause | None) -> StoredTask:
        message = None
        if waiting := _waiting(pause):
            parts = asking.shown(waiting, self._approvals, header.id)
            name = f'{header.id}-{header.last_event}'
            ids = b',' + stored.ids(header.id, header.id)
            message = stored.message(name, b'ROLE_AGENT', stored.dump_parts(parts), ids)
        # The name of the context is the owner's text.
        header = replace(header, context_id=header.id, status_message=message, metadata=None)
        return StoredTask(header, None, None)

    async def _pause(self, header: TaskHeader) -> Pause | None:
        return await self._reader.pause(header.id, header.owner)

    async def _may_approve(self, caller: Caller, owner: str, task_id: str, pause: Pause | None) -> bool:
        task_owner = Caller.of(owner)
        if caller.tenant != task_owner.tenant:
            return False
        if isinstance(self._rule, str):
            return self._rule in caller.scopes
        waiting = _waiting(pause)
        calls = [WaitingCall(call.id, call.tool, call.args) for call in waiting.open] if waiting else []
        allowed = self._rule(caller, WaitingTask(id=task_id, owner=task_owner, calls=calls))
        return await allowed if isawaitable(allowed) else allowed


def _waiting(pause: Pause | None) -> pending.Pending | None:
    """Return the approvals that wait for a decision; None without such an approval."""
    if pause is None or pause.pending is None:
        return None
    waiting = pending.load(pause.pending).only(_APPROVAL)
    return waiting if waiting.open else None
