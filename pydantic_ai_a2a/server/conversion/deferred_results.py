"""The results that the next run gets for the calls of a paused run."""

from __future__ import annotations

from typing import Any, cast

from pydantic_ai import ModelRetry
from pydantic_ai.tools import DeferredToolResults, ToolApproved, ToolDenied

from ...wire.extensions.remote_calls import ANSWER, CONTINUE, MODEL, PRIVATE, WAITING
from .forwarded_answers import remote_answer
from .pending_calls import CallAnswer, Pending, PendingCall

_GRANTED = CallAnswer(decision='approve')


def run_results(pending: Pending) -> DeferredToolResults:
    """Return the deferred results for the next run, once all calls have answers. Denials go to remote agents too.

    Raises:
        KeyError: A call has no answer.
    """
    deferred = _of_calls(pending)
    of_tools: dict[str, list[PendingCall]] = {}
    for call in pending.calls:
        if WAITING in (call.metadata or {}):
            of_tools.setdefault(call.local_id or call.id, []).append(call)
        elif MODEL in (call.metadata or {}):
            _answer_model(deferred, call, pending.answers.get(call.id))
    for call_id, calls in of_tools.items():
        for call in calls:
            for members in (deferred.calls, deferred.approvals, deferred.metadata):
                cast('dict[str, Any]', members).pop(call.id, None)
            if (by := deferred.answered_by.pop(call.id, None)) is not None:
                deferred.answered_by[call_id] = by
        # Pydantic AI executes approved calls only. The tool sends the answer.
        deferred.approvals[call_id] = ToolApproved()
        answer = remote_answer(calls, pending.answers)
        deferred.metadata[call_id] = {**(calls[0].metadata or {}), ANSWER: answer}
    return deferred


def approved_schemas(pending: Pending) -> dict[str, dict[str, Any]]:
    """Return the tools of this agent that a client has approved, or has signed in for: their JSON Schemas, by call."""
    schemas: dict[str, dict[str, Any]] = {}
    for call in pending.calls:
        # Nobody answers a call that waits for a sign-in. It may have been approved before.
        of_tool = call.kind in ('approval', 'authorization') and not PRIVATE & (call.metadata or {}).keys()
        if of_tool and call.schema is not None:
            schemas[call.id] = call.schema
    return schemas


def _of_calls(pending: Pending) -> DeferredToolResults:
    """Return the results of the calls as if all were calls of tools of this agent."""
    deferred = DeferredToolResults()
    for call in pending.calls:
        answer = _GRANTED if call.kind == 'authorization' else pending.answers[call.id]
        if answer.decision == 'approve':
            args = call.changed if answer.args is None else answer.args
            deferred.approvals[call.id] = ToolApproved(override_args=args)
        elif answer.decision == 'deny':
            deferred.approvals[call.id] = ToolDenied(answer.reason) if answer.reason else ToolDenied()
        else:
            deferred.calls[call.id] = answer.result if answer.decision == 'result' else ModelRetry(answer.reason or '')
        if call.metadata:
            deferred.metadata[call.id] = call.metadata
        if answer.by:
            deferred.answered_by[call.id] = answer.by
    return deferred


def _answer_model(deferred: DeferredToolResults, call: PendingCall, answer: CallAnswer | None) -> None:
    """Put an answer in the form that the call of a remote agent as a model takes."""
    if answer is None:
        del deferred.approvals[call.id]
        deferred.calls[call.id] = CONTINUE
    elif answer.args is not None:
        deferred.approvals[call.id] = ToolApproved(override_args={'args': answer.args})
