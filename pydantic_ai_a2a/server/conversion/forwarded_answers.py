"""The answers of clients to the questions of a remote agent, for the run that calls the remote agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...wire.extensions.remote_calls import CONTINUE, WAITING, answers_of, open_calls
from .forwarded_questions import waiting_remote_task
from .pending_calls import CallAnswer, PendingCall


def remote_answer(calls: Sequence[PendingCall], answers: Mapping[str, CallAnswer]) -> dict[str, Any]:
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
