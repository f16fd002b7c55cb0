"""Tasks and tool calls that wait for an approval, as the function in `Approvals.approvers` gets them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .callers import Caller


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingTask:
    """A task for the function in `Approvals.approvers`."""

    id: str
    owner: Caller
    """The owner of the task, with tenant and id. With `Access.owner`, several callers may be one owner."""
    caller: Caller
    """The sender of the message whose run made the calls."""
    calls: Sequence[WaitingCall]
    """The calls that wait for an approval. Empty once all calls have a decision."""


class WaitingCall(NamedTuple):
    """A tool call that waits for an approval."""

    id: str
    tool: str
    args: dict[str, Any] | None
    """Arguments with which the tool would run, also those that `Approvals.hide_arguments` hides from clients. None if
    the server does not know them: a remote agent hides the arguments, or they do not fit their JSON Schema, have a
    member that the schema does not name, or one that only `additionalProperties` names while an argument is left out.
    """
