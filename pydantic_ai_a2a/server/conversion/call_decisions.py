"""The decisions of clients about waiting calls, and what comes with each: for the check of answers and their schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...settings.approvals import Approvals
from .pending_calls import PendingCall


class Content(NamedTuple):
    """What comes with a decision."""

    member: str
    """Member of the answer."""
    required: bool


_OF_VALUE = {'result': Content('result', required=True), 'retry': Content('reason', required=True)}
DECISIONS: Mapping[str, Mapping[str, Content]] = {
    'approval': {'approve': Content('args', required=False), 'deny': Content('reason', required=False)},
    'question': _OF_VALUE,
    'external': _OF_VALUE,
}
"""By the kind of the call. No client decides about a call that waits for a sign-in."""

REASON: Mapping[str, Any] = {'type': 'string', 'minLength': 1}
"""JSON Schema of a reason. A denial may leave it out; a retry may not, because the model gets nothing else."""


def may_change_arguments(call: PendingCall, rules: Approvals) -> bool:
    """Return whether an approval of a call may bring other arguments."""
    return call.may_change and rules.may_change(call.tool)
