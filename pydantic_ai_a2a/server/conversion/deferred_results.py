"""The results that the next run gets for the calls of a paused run."""

from __future__ import annotations

from pydantic_ai import ModelRetry
from pydantic_ai.tools import DeferredToolResults, ToolApproved, ToolDenied

from .pending_calls import CallAnswer, Pending

_GRANTED = CallAnswer(decision='approve')


def deferred_tool_results(pending: Pending) -> DeferredToolResults:
    """Return the deferred results for the next run, once all calls have answers.

    Raises:
        KeyError: A call has no answer.
    """
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
