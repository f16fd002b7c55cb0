"""Callers that decide about the approvals of other owners' tasks, and see nothing else of the tasks.

Who approves is asked again at each read and at each decision, about the pause that the task has then: `answers` says
how a decision enters the task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from ...base_exceptions import ends_task
from ...errors import ClientGone, TaskNotFoundError
from ...settings.approvals import Approvals, Approvers
from ...types.callers import Caller, load_caller, sender_of
from ...types.service_calls import Call
from ...types.stored_events import TaskEvent
from ...types.stored_tasks import StoredTask, TaskHeader
from ...types.waiting_approvals import WaitingCall, WaitingTask
from ...wire.protocol import stored, stored_values
from ..auth.operator_functions import allows, verdict_of
from ..conversion import answers_in_words, pending_calls, status_parts
from ..conversion.edited_arguments import as_run
from ..conversion.pending_calls import Kind, Pending, PendingCall
from ..conversion.status_parts import DecidedBy, event_with_decider, message_with_decider
from ..store.ports import Pause, TaskReader

logger = logging.getLogger('pydantic_ai_a2a')

Kinds: TypeAlias = Collection[Kind] | None
"""The kinds of calls that a caller may answer; None for all kinds."""

Changed: TypeAlias = Mapping[str, dict[str, Any]]
"""Arguments of approvals in place of the model's, by the id of the call."""

RULE = 'Approvals.approvers'
"""The option with the rule, for the log."""
_BRIEFLY = 5.0
"""Seconds for a function about a task that the caller reads whatever the function says."""
_APPROVAL: frozenset[Kind] = frozenset[Kind]({'approval'})
_OTHERS: frozenset[Kind] = frozenset[Kind]({'question', 'external', 'authorization'})


class ApproverAccess:
    """Applies `Approvals.approvers` to callers and tasks.

    Args:
        rule: The value of `Approvals.approvers`.
        reader: Reads tasks of all owners.
        approvals: Rules for answers of clients.
    """

    def __init__(self, rule: Approvers, reader: TaskReader, approvals: Approvals) -> None:
        self._rule = rule
        self.by_scope = isinstance(rule, str)
        """True if the rule is a scope, which names the approvers of all tasks of a tenant."""
        self.rule_name = rule if isinstance(rule, str) else getattr(rule, '__qualname__', type(rule).__qualname__)
        self._reader = reader
        self._approvals = approvals

    async def find(self, call: Call, task_id: str) -> tuple[TaskHeader, Pause | None] | None:
        """Return a task of another owner with its pause, if the caller is an approver of the task."""
        task = await self._reader.load(task_id, None, history_length=0, artifacts=False)
        if task is None or task.header.owner == call.caller.owner:
            return None
        pause = await self._pause(task.header)
        allowed = await self.may_approve(call, task.header.owner, task_id, pause)
        return (task.header, pause) if allowed else None

    async def view(self, call: Call, task_id: str) -> StoredTask:
        """Return the state and the waiting approvals of a task of another owner, without all else of the task.

        Raises:
            TaskNotFoundError: The task does not exist, or the caller is no approver.
        """
        found = await self.find(call, task_id)
        if found is None:
            raise TaskNotFoundError
        return self.shown(*found, decided_by='caller')

    async def view_of(self, call: Call, header: TaskHeader, earlier: Pause | None) -> StoredTask:
        """Return the view of an approver who has decided: the state, and the approvals that still wait.

        Calls of a later pause than the earlier one are left out: the rule may not name the approver for them.
        """
        pause = await self._pause(header)
        if not _shown_ids(pause) <= _shown_ids(earlier):
            return self.shown(header, None)
        return self.shown(
            header, pause, decided_by='caller' if await self._may_give(call, header, pause) else 'approver'
        )

    async def kinds(self, call: Call, owner: str, task_id: str, pause: Pause) -> Kinds:
        """Return the kinds of calls that a caller may answer in a waiting task of an owner."""
        approves = await self.may_approve(call, owner, task_id, pause)
        if owner != call.caller.owner:
            return _APPROVAL if approves else ()
        return None if approves else _OTHERS

    async def may_approve(
        self, call: Call, owner: str, task_id: str, pause: Pause | None, changed: Changed | None = None
    ) -> bool:
        """Return whether the rule names the caller for the waiting approvals of a task, with changed arguments."""
        caller, task_owner = call.caller, Caller.of(owner)
        if caller.tenant != task_owner.tenant:
            return False
        if isinstance(self._rule, str):
            return self._rule in caller.scopes
        task = _waiting_task(owner, task_id, pause, changed or {})
        return await call.request.ask(RULE, allows(RULE, self._rule, caller, task))

    def may_list(self, caller: Caller) -> bool:
        """Return whether the rule may name the caller for tasks of others."""
        return not isinstance(self._rule, str) or self._rule in caller.scopes

    async def own_view(self, call: Call, task: StoredTask) -> StoredTask:
        """Return an own task, which says who decides about its open approvals. A function is asked."""
        if self.by_scope or task.header.state != 'input-required':
            return self.by_scope_view(call, task)
        pause = await self._pause(task.header)
        allowed = await self._may_give(call, task.header, pause)
        is_current = pause is not None and pause.number == task.header.last_event
        return marked(task, 'caller' if allowed else 'approver') if is_current else task

    def by_scope_view(self, call: Call, task: StoredTask) -> StoredTask:
        """Return an own task, which says who decides if a scope tells. A function is not asked."""
        is_known = self.by_scope and task.header.state == 'input-required'
        return marked(task, self._decider(call)) if is_known else task

    def by_scope_event(self, call: Call, event: TaskEvent) -> TaskEvent:
        """Return an event of an own task, like `by_scope_view`."""
        if not self.by_scope or event.state != 'input-required':
            return event
        return event._replace(payload=event_with_decider(event.payload, self._decider(call)))

    def _decider(self, call: Call) -> DecidedBy:
        return 'caller' if self._rule in call.caller.scopes else 'approver'

    async def _may_give(self, call: Call, header: TaskHeader, pause: Pause | None) -> bool:
        """Return whether the rule names the caller for waiting approvals; False if it fails, which keeps no answer."""
        if pause is None or waiting_approvals(pause) is None:
            return False
        current = asyncio.current_task()
        try:
            return await self.verdict(call, header, pause, within=_BRIEFLY)
        except BaseException as error:
            if isinstance(error, ClientGone) or ends_task(error, current):
                raise
            text = '%s has failed for a reader of a task (correlation id %s).'
            logger.error(text, RULE, call.correlation_id, exc_info=error)
            return False

    async def verdict(self, call: Call, header: TaskHeader, pause: Pause, *, within: float | None = None) -> bool:
        """Return whether the rule names the caller for the waiting approvals of a task of the caller's tenant.

        Args:
            call: The call of the caller.
            header: The task.
            pause: The pause of the task.
            within: The seconds for a function; None for as many as for each function of the operator.

        Raises:
            OverloadedError: The function has not returned in time.
            Exception: The function raises, or returns no bool.
        """
        if isinstance(self._rule, str):
            return self._rule in call.caller.scopes
        task = _waiting_task(header.owner, header.id, pause, {})
        return await call.request.ask(RULE, verdict_of(RULE, self._rule, call.caller, task), within=within)

    def shown(self, header: TaskHeader, pause: Pause | None, *, decided_by: DecidedBy = 'approver') -> StoredTask:
        """Return what an approver sees of a task with its pause: the state, and the approvals that wait."""
        message = None
        if waiting := waiting_approvals(pause):
            assert pause is not None, 'its calls wait'
            rules = answers_in_words.rules_of(self._approvals, first=pause.first)
            asked_by = _asking(header.owner, pause).id if self._approvals.show_caller else ''
            parts = status_parts.shown(waiting, rules, header.id, decided_by=decided_by, asked_by=asked_by)
            ids = b',' + stored.ids(header.id, header.id)
            message = stored.message(approver_question_id(header), b'ROLE_AGENT', stored_values.dump_parts(parts), ids)
        # The name of the context is the owner's text.
        header = replace(header, context_id=header.id, status_message=message, metadata=None)
        return StoredTask(header, None, None)

    async def _pause(self, header: TaskHeader) -> Pause | None:
        return await self._reader.pause(header.id, header.owner)


def marked(task: StoredTask, decided_by: DecidedBy) -> StoredTask:
    """Return a waiting task, which says who decides about its open approvals."""
    message = task.header.status_message
    message = message and message_with_decider(message, decided_by)
    return task._replace(header=replace(task.header, status_message=message))


def approver_question_id(task: TaskHeader) -> str:
    """Return the id of the status message of a waiting task as its approvers see it."""
    return f'{task.id}-{task.last_event}'


def _waiting_task(owner: str, task_id: str, pause: Pause | None, changed: Changed) -> WaitingTask:
    """Return a task as the rule gets it."""
    waiting = waiting_approvals(pause)
    calls = [_call(item, changed) for item in waiting.open] if waiting else []
    return WaitingTask(id=task_id, owner=Caller.of(owner), caller=_asking(owner, pause), calls=calls)


def _asking(owner: str, pause: Pause | None) -> Caller:
    """Return the sender of the message whose run has paused, or the owner of the task if no sender is stored."""
    return sender_of_run(pause) or Caller.of(owner)


def _call(call: PendingCall, changed: Changed) -> WaitingCall:
    """Return a call as it would run: with changed arguments, and with the defaults of the tool."""
    args = changed.get(call.id, call.args)
    return WaitingCall(call.id, call.tool, None if args is None else as_run(args, call.schema or {}))


def sender_of_run(pause: Pause | None) -> Caller | None:
    """Return the sender of the message whose run has paused; None if none is stored."""
    if pause is None:
        return None
    fields = None if pause.pending is None else pending_calls.load(pause.pending).caller
    fields = sender_of(pause.request) if fields is None else fields
    return None if fields is None else load_caller(fields)


def _shown_ids(pause: Pause | None) -> set[str]:
    """Return the ids of the approvals that wait. Each pause has new ids."""
    waiting = waiting_approvals(pause)
    return {call.shown_id for call in waiting.open} if waiting else set()


def waiting_approvals(pause: Pause | None) -> Pending | None:
    """Return the approvals that wait for a decision; None without such an approval."""
    if pause is None or pause.pending is None:
        return None
    waiting = pending_calls.load(pause.pending).only(_APPROVAL)
    return waiting if waiting.open else None
