"""The calls of a paused run, with the answers to them, as they are stored."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter

from ...json_values import dump_json
from ...types.frozen_values import frozen

Kind: TypeAlias = Literal['approval', 'question', 'external', 'authorization']
"""Kind of answer that a pending call needs."""


@frozen
class PendingCall:
    """A tool call that waits for an answer from outside."""

    id: str
    kind: Kind
    tool: str
    text: str
    """Question for a person."""
    args: dict[str, Any] | None = None
    """Arguments of the call; None if a remote agent does not show them."""
    hidden: bool = False
    """True if clients do not see the arguments."""
    metadata: dict[str, Any] | None = None
    """Metadata from the tool: shown to clients, and returned to the tool with the answer."""
    schema: dict[str, Any] | None = None
    """JSON Schema of the arguments, which an approval may change, or of the answer to a question; None: any."""
    changed: dict[str, Any] | None = None
    """Arguments of an earlier approval of the call, in place of the model's."""
    may_change: bool = True
    """True if an approval may change the arguments. The server of a remote call may refuse changes."""
    local_id: str = ''
    """For a call of a remote agent: id of the local call that waits for it. One local call may wait for several."""
    answer_id: str = ''
    """Id in the answers of clients, new in each pause: models and remote agents repeat ids of calls. Empty for a pause
    of an earlier version of the package, whose clients answer with `id`."""

    @property
    def shown_id(self) -> str:
        """The id that clients see, and answer with."""
        return self.answer_id or self.id


@frozen
class CallAnswer:
    """The answer to one call."""

    decision: Literal['approve', 'deny', 'result', 'retry']
    args: dict[str, Any] | None = None
    """Arguments of the approval, in place of the call's."""
    reason: str | None = None
    """Reason of a denial, or instruction for a retry."""
    result: Any = None
    by: str = ''
    """Id of the deciding caller; empty for an anonymous one."""


@frozen
class Pending:
    """The pending calls or question of a task, and the answers so far."""

    calls: Sequence[PendingCall] = ()
    answers: Mapping[str, CallAnswer] = field(default_factory=dict[str, CallAnswer])
    """By the id of the call."""
    schema: dict[str, Any] | None = None
    """JSON Schema of the answer to a question of the agent itself, without a call."""
    question: str = ''
    """The agent's own question."""
    asked_again: int = 0
    """Number of times that the client was asked again, because its words were no clear answer."""
    shown_calls: Sequence[str] = ()
    """Ids of the calls that clients have been shown as progress: their tools were called, and deferred them."""
    tried: bool = False
    """True if a run had the answers, and stopped before the calls, such as for credentials. The next message of the
    client is then a prompt, and no answer."""
    caller: dict[str, Any] | None = None
    """The sender of the message whose run made the calls, as `dump_caller` writes; None without a stored sender."""
    unprompted: Sequence[str] = ()
    """Ids of messages of the client that no run has brought to the model: a prompt follows the results of calls."""

    def only(self, kinds: Collection[Kind]) -> Pending:
        """Return only the calls of some kinds."""
        return replace(self, calls=[call for call in self.calls if call.kind in kinds])

    @property
    def takes_prompt(self) -> bool:
        """True if the next message of the client is a prompt, because no call needs an answer."""
        return not self.answers or self.tried

    @property
    def open(self) -> list[PendingCall]:
        """The calls without a decision. Calls that wait for credentials need none and are tried again."""
        return [call for call in self.calls if call.id not in self.answers and call.kind != 'authorization']


@cache
def _pending_ta() -> TypeAdapter[Pending]:
    return TypeAdapter(Pending)


def changed_arguments(pending: Pending) -> dict[str, dict[str, Any]]:
    """Return the arguments from approvals, in place of the model's, by the id of the call."""
    changed = {call.id: call.changed for call in pending.calls} | {
        call_id: answer.args for call_id, answer in pending.answers.items() if answer.args is not None
    }
    return {call_id: args for call_id, args in changed.items() if args is not None}


def still_shown(pending: Pending) -> set[str]:
    """Return the ids of the calls that clients have been shown as progress, with unchanged arguments."""
    if not pending.shown_calls:
        return set()
    # The answer to a call of a remote agent does not change the local call, which waits.
    seen = (call for call in pending.calls if not call.local_id and not call.hidden)
    calls = {call.id: call.args for call in seen if call.args is not None}
    answers = {call_id: answer.args for call_id, answer in pending.answers.items() if answer.args is not None}
    return {*pending.shown_calls} - {name for name in calls.keys() & answers.keys() if answers[name] != calls[name]}


def dump(pending: Pending) -> bytes:
    """Write pending calls. Infinite numbers and NaN stay what they are: people decide about what runs."""
    return dump_json(_pending_ta().dump_python(pending))


def load(body: bytes) -> Pending:
    """Read the JSON of `dump`."""
    return _pending_ta().validate_json(body)
