"""The end of a run with deferred calls, about which the server asks the client."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests
from pydantic_core import from_json

from ...json_values import dump_json
from ...settings.approvals import Approvals
from ...types.a2a_objects import Part, TaskState
from ...types.frozen_values import frozen
from .chosen_states import MARK
from .forwarded_questions import calls_for_clients
from .pending_calls import Kind, Pending, PendingCall
from .status_parts import is_json, shown


@frozen
class Asked:
    """The end of a run with pending calls, or of a declining run."""

    state: TaskState
    parts: Sequence[Part]
    """Parts of the status message."""
    pending: Pending | None = None


def ask(
    deferred: DeferredToolRequests,
    schemas: Mapping[str, dict[str, Any]],
    *,
    order: Sequence[str],
    changed: Mapping[str, dict[str, Any]],
    shown_calls: Collection[str] = (),
    rules: Approvals,
    task_id: str,
    caller: dict[str, Any] | None = None,
) -> Asked:
    """Return the end of a run with deferred calls.

    Args:
        deferred: The calls.
        schemas: JSON Schemas of the called tools' parameters, by name.
        order: Ids of the calls in the order of the model.
        changed: Arguments from earlier approvals in place of the model's arguments, by the id of the call.
        shown_calls: Ids of the calls in earlier progress events.
        rules: Rules for the answers of clients.
        task_id: The task.
        caller: The sender of the message whose run made the calls; None without a stored sender.

    Raises:
        UnexpectedModelBehavior: Two calls have the same id, so an answer to one of them would answer both; or a call is
            nested too deeply.
    """
    places = {call_id: place for place, call_id in enumerate(order)}
    calls = [
        call
        for part in sorted((*deferred.approvals, *deferred.calls), key=lambda part: places[part.tool_call_id])
        for call in calls_for_clients(
            part,
            _call(
                part,
                deferred,
                schemas.get(part.tool_name),
                changed=changed.get(part.tool_call_id),
                is_hidden=part.tool_name in rules.hide_arguments,
            ),
            rules.hide_arguments,
        )
    ]
    if len({call.id for call in calls}) < len(calls):  # the model may have given a call the id of a remote call
        raise UnexpectedModelBehavior('Two waiting calls have the same id.')
    waiting = dict.fromkeys(call.local_id or call.id for call in calls)
    shown_before = [call_id for call_id in waiting if call_id in shown_calls]
    new = [replace(call, answer_id=uuid4().hex) for call in calls]
    pending = Pending(calls=new, shown_calls=shown_before, caller=caller)
    state: TaskState = 'input-required' if pending.open else 'auth-required'
    return Asked(state=state, parts=shown(pending, rules, task_id), pending=pending)


def _call(
    call: ToolCallPart,
    deferred: DeferredToolRequests,
    schema: dict[str, Any] | None,
    *,
    changed: dict[str, Any] | None,
    is_hidden: bool,
) -> PendingCall:
    args = _stored_args(call) if changed is None else changed
    kind: Kind = deferred.kind(call.tool_call_id)
    metadata = {**deferred.metadata.get(call.tool_call_id, {})}
    marked: dict[str, Any] = metadata.pop(MARK, {})
    called = call.tool_name if is_hidden else f'{call.tool_name} {dump_json(args).decode()}'
    match kind:
        case 'approval' if 'message' in marked:
            kind, text = 'authorization', marked['message']
            metadata |= {name: marked[name] for name in ('schemes', 'url') if marked[name]}
        case 'approval':
            text = f'May I call {called}?'
        case 'question':
            text, schema = marked.get('question') or f'Please answer {called}.', marked.get('schema')
        case _:
            text, schema = f'Waiting for the result of {called}.', None
    return PendingCall(
        id=call.tool_call_id,
        kind=kind,
        tool=call.tool_name,
        text=text,
        args=args,
        hidden=is_hidden,
        metadata=metadata,
        schema=schema,
        may_change=is_json(args),
        changed=changed,
    )


def _stored_args(call: ToolCallPart) -> dict[str, Any]:
    """Return the arguments with which the call runs after the pause.

    The store keeps the text of a model. Other arguments become JSON, in which infinite numbers and NaN are null.
    """
    args = call.args_as_dict()
    return from_json(dump_json(args, inf_nan_mode='null')) if isinstance(call.args, dict) else args
