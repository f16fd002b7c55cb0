"""The calls of a paused run, as they are stored, and the results that the next run gets for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter
from pydantic_ai import ModelRetry
from pydantic_ai.tools import (
    DeferredToolApprovalResult,
    DeferredToolResults,
    ToolApproved,
    ToolDenied,
)

__all__ = (
    'CallAnswer',
    'Kind',
    'Pending',
    'PendingCall',
    'changed_arguments',
    'dump',
    'load',
    'results',
    'still_shown',
)

Kind: TypeAlias = Literal['approval', 'question', 'external', 'authorization']
"""What a pending call waits for."""


@dataclass(frozen=True, kw_only=True)
class PendingCall:
    """A call of a tool that waits for somebody outside."""

    id: str
    kind: Kind
    tool: str
    text: str
    """What a person reads."""
    args: dict[str, Any] | None = None
    """Its arguments; None where clients may not see them."""
    metadata: dict[str, Any] | None = None
    """What the tool says about the call: shown to clients, and given to the tool with the answer."""
    schema: dict[str, Any] | None = None
    """JSON Schema of the arguments that an approval may give instead, or of the answer to a question; None: any."""
    changed: dict[str, Any] | None = None
    """The arguments that an earlier approval of the call gave instead of the model's."""


@dataclass(frozen=True, kw_only=True)
class CallAnswer:
    """What was decided about one call."""

    decision: Literal['approve', 'deny', 'result', 'retry']
    args: dict[str, Any] | None = None
    """Approved with these instead of those that the call had before."""
    reason: str | None = None
    """Why it was denied, or what has to be different."""
    result: Any = None
    by: str = ''
    """Id of the caller who decided it; empty for an anonymous one."""


@dataclass(frozen=True, kw_only=True)
class Pending:
    """What a task waits for, and what of it is answered."""

    calls: Sequence[PendingCall] = ()
    answers: Mapping[str, CallAnswer] = field(default_factory=dict[str, CallAnswer])
    """By the id of the call."""
    schema: dict[str, Any] | None = None
    """JSON Schema of the answer to a question of the agent itself, which no call waits with."""
    question: str = ''
    """That question."""
    asked_again: int = 0
    """Number of times that the client was asked again, because its words were no clear answer."""
    shown_calls: Sequence[str] = ()
    """Ids of the calls that clients have been shown as progress: their tools were called, and deferred them."""

    @property
    def open(self) -> list[PendingCall]:
        """The calls that somebody has to decide about; those that wait for credentials are just tried again."""
        return [call for call in self.calls if call.id not in self.answers and call.kind != 'authorization']


@cache
def _pending_ta() -> TypeAdapter[Pending]:
    return TypeAdapter(Pending)


def changed_arguments(pending: Pending) -> dict[str, dict[str, Any]]:
    """Return the arguments that approvals gave instead of the model's, by the id of the call."""
    changed = {call.id: call.changed for call in pending.calls} | {
        call_id: answer.args for call_id, answer in pending.answers.items() if answer.args is not None
    }
    return {call_id: args for call_id, args in changed.items() if args is not None}


def still_shown(pending: Pending) -> set[str]:
    """Return the ids of the calls that clients have been shown as progress, with the arguments that they still have."""
    calls = {call.id: call for call in pending.calls if call.id in pending.shown_calls}
    for call_id, answer in pending.answers.items():
        call = calls.get(call_id)
        if call is not None and answer.args is not None and call.args is not None and answer.args != call.args:
            del calls[call_id]
    return {*calls}


def dump(pending: Pending) -> bytes:
    """Write what a task waits for."""
    return _pending_ta().dump_json(pending, exclude_none=False)


def load(body: bytes) -> Pending:
    """Read what `dump` wrote."""
    return _pending_ta().validate_json(body)


def results(pending: Pending) -> DeferredToolResults:
    """What the run goes on with, once all of it is answered.

    Raises:
        KeyError: Something is not.
    """
    approvals: dict[str, bool | DeferredToolApprovalResult] = {}
    calls: dict[str, Any] = {}
    for call in pending.calls:
        answer = CallAnswer(decision='approve') if call.kind == 'authorization' else pending.answers[call.id]
        if answer.decision == 'approve':
            approvals[call.id] = ToolApproved(override_args=call.changed if answer.args is None else answer.args)
        elif answer.decision == 'deny':
            approvals[call.id] = ToolDenied(answer.reason) if answer.reason else ToolDenied()
        else:
            calls[call.id] = answer.result if answer.decision == 'result' else ModelRetry(answer.reason or '')
    return DeferredToolResults(
        calls=calls,
        approvals=approvals,
        metadata={call.id: call.metadata for call in pending.calls if call.metadata},
        answered_by={call_id: answer.by for call_id, answer in pending.answers.items() if answer.by},
    )
