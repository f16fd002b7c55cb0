"""The answers of clients to the questions of a remote agent, for the run that calls the remote agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic_ai.tools import DeferredToolResults, ToolApproved

from ...wire.extensions.remote_calls import ANSWER, CONTINUE, MODEL, PRIVATE, WAITING, answers_of, open_calls
from .deferred_results import deferred_tool_results
from .forwarded_questions import waiting_remote_task
from .pending_calls import CallAnswer, Pending, PendingCall


def run_results(pending: Pending) -> DeferredToolResults:
    """Return the deferred results for the next run, once all calls have answers. Denials go to remote agents too.

    Raises:
        KeyError: A call has no answer.
    """
    deferred = deferred_tool_results(pending)
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
        answer = _answer(calls, pending.answers)
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


def _answer_model(deferred: DeferredToolResults, call: PendingCall, answer: CallAnswer | None) -> None:
    """Put an answer in the form that the call of a remote agent as a model takes."""
    if answer is None:
        del deferred.approvals[call.id]
        deferred.calls[call.id] = CONTINUE
    elif answer.args is not None:
        deferred.approvals[call.id] = ToolApproved(override_args={'args': answer.args})


def _answer(calls: Sequence[PendingCall], answers: Mapping[str, CallAnswer]) -> dict[str, Any]:
    """Return the parts for the remote task, or the reason for which the task is canceled."""
    first = calls[0]
    if (answer := answers.get(first.id)) is None:
        return {'parts': [{'text': CONTINUE}]}
    if not open_calls((first.metadata or {})[WAITING]):
        if answer.decision != 'result':
            return {'denied': answer.reason or ''}
        return {'parts': [{'text': answer.result} if isinstance(answer.result, str) else {'data': answer.result}]}
    decisions = [
        (remote, _decision(remote['id'], answers[call.id]))
        for call in calls
        for remote in open_calls(waiting_remote_task(call) or {})
    ]
    return {'parts': answers_of(decisions)}


def _decision(remote_id: str, answer: CallAnswer) -> dict[str, Any]:
    fields = {'decision': answer.decision, 'args': answer.args, 'reason': answer.reason}
    decision = {'id': remote_id, **{name: value for name, value in fields.items() if value is not None}}
    return {**decision, 'result': answer.result} if answer.decision == 'result' else decision
