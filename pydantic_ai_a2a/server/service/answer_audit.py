"""The line of the audit log about the calls that a message has decided."""

from __future__ import annotations

from collections.abc import Sequence

from ...types.callers import Caller
from ...types.service_calls import Call
from ..audit import Fact, audit
from ..conversion.pending_calls import CallAnswer, PendingCall


def audit_answers(call: Call, task_id: str, owner: str, decisions: Sequence[tuple[PendingCall, CallAnswer]]) -> None:
    """Record the calls that a caller has decided, the calls with changed arguments, and the owner of another's task."""
    decided: dict[str, str] = {}
    changed: list[str] = []
    for item, answer in decisions:
        decided[item.id] = answer.decision
        if answer.args not in (None, item.args):
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
        decisions=decided,
        **facts,
    )
