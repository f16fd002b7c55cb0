"""The answers to calls in the data part of a message, each with the id of its call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ...errors import InvalidParamsError
from ...settings.approvals import Approvals
from ...types.a2a_objects import Part
from ...wire.extensions.pending_calls_extension import KEY
from .answer_checks import check_value, check_words, refuse
from .answers_in_words import typed
from .call_decisions import DECISIONS, REASON, may_change_arguments
from .edited_arguments import fault_of
from .pending_calls import CallAnswer, Pending, PendingCall

_LONGEST = 1_000
"""Most characters about the waiting calls in a refusal."""


def data_answers(
    pending: Pending, parts: Sequence[Part], at: int, rules: Approvals, readable: Pending
) -> dict[str, CallAnswer]:
    """Return the answers of a data part with `callAnswers`. Words decide nothing, and must not contradict the data."""
    data = cast('dict[str, Any]', parts[at].get('data'))
    words = [part['text'] for part in parts if 'text' in part]
    if len(words) < len(parts) - 1 or len(data) > 1:
        raise InvalidParamsError.of(
            'message.parts', f'must be one data part with only the key {KEY}, and optional text parts'
        )
    field = f'message.parts[{at}].data.{KEY}'
    items: Any = data[KEY]
    if not isinstance(items, list) or not items:
        raise InvalidParamsError.of(field, 'must be a list of answers')
    calls: list[PendingCall] = []
    new: dict[str, CallAnswer] = {}
    for n, item in enumerate(cast('list[Any]', items)):
        where = f'{field}[{n}]'
        call = _call_of(item, pending, where, readable)
        if call.id in pending.answers:
            raise InvalidParamsError.of(f'{where}.id', f'is of a call that was decided before. {_now(readable)}')
        if call.id in new:
            raise InvalidParamsError.of(f'{where}.id', 'already has an answer in this message: answer each call once')
        new[call.id] = _answer(call, item, where, rules)
        calls.append(call)
    if words:
        for call in calls:
            check_words(words, call, new[call.id])
    return new


def _call_of(item: Any, pending: Pending, where: str, readable: Pending) -> PendingCall:
    """Return the call that an answer names."""
    if not isinstance(item, dict):
        raise InvalidParamsError.of(where, 'must be an object')
    call_id = cast('dict[str, Any]', item).get('id')
    if not isinstance(call_id, str):
        raise InvalidParamsError.of(f'{where}.id', 'must be the id of a pending call')
    for call in pending.calls:
        if call.shown_id == call_id and call.kind != 'authorization':
            return call
    raise InvalidParamsError.of(f'{where}.id', f'is not the id of a call that waits for an answer. {_now(readable)}')


def _now(pending: Pending) -> str:
    """Return the sentence about what waits, for a client that has answered something else."""
    waiting = pending.open or [call for call in pending.calls if call.kind == 'authorization']
    text = '; '.join(f'{call.text} (id {call.shown_id})' for call in waiting) or pending.question
    return f'Now the task waits with: {text[:_LONGEST]}' if text else 'Read the task for what waits now.'


def _answer(call: PendingCall, item: dict[str, Any], where: str, rules: Approvals) -> CallAnswer:
    decisions = DECISIONS[call.kind]
    decision: Any = item.get('decision')
    if not isinstance(decision, str) or decision not in decisions:
        raise InvalidParamsError.of(f'{where}.decision', f'must be {" or ".join(decisions)}')
    name, required = decisions[decision]
    if unknown := item.keys() - {'id', 'decision', name}:
        raise InvalidParamsError.of(
            f'{where}.{min(unknown)}', f'is not a field of an answer with the decision {decision}'
        )
    if name in item:
        if name == 'args' and not may_change_arguments(call, rules):
            raise InvalidParamsError.of(
                f'{where}.args', 'the arguments of this tool may not be changed: leave args out'
            )
        if name == 'args':
            refuse(fault_of(item[name], _schema(call, name), call.args, f'{where}.{name}'))
        else:
            check_value(item[name], _schema(call, name), f'{where}.{name}')
    elif required:
        raise InvalidParamsError.of(f'{where}.{name}', 'is required')
    content: dict[str, Any] = {name: item.get(name)}
    if name == 'result':
        content[name] = typed(item[name], call.schema or {})
    return CallAnswer(decision=cast('Any', decision), **content)


def _schema(call: PendingCall, name: str) -> Mapping[str, Any]:
    if name == 'reason':
        return REASON
    if name == 'args':
        return {**(call.schema or {}), 'type': 'object'}
    return call.schema or {}
