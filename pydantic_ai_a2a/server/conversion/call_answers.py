"""The answers in a client's message to the calls that a task waits with, checked against what the server stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from ...errors import InvalidParamsError
from ...settings import Approvals
from ...types import Message, Part
from ...wire.extensions.pending_calls_extension import KEY
from ...wire.schemas.json_schema import Problem, problem
from .answers_in_words import from_words, is_closed, takes_words, typed, verdict
from .call_decisions import DECISIONS, REASON, may_change_arguments
from .edited_arguments import fault_of
from .pending_calls import CallAnswer, Pending, PendingCall
from .status_parts import to_write

_LONGEST = 1_000
"""Most characters about the waiting calls in a refusal."""


class _Unclear(Exception):
    """Words of the client are no clear answer, so the client is asked again."""


def place_of_answers(message: Message) -> int | None:
    """Return the index of the part with answers to calls, even if no call waits for an answer; None for no part."""
    for n, part in enumerate(message['parts']):
        if 'data' in part and isinstance(part['data'], dict) and KEY in part['data']:
            return n
    return None


def answered_ids(message: Message) -> set[str]:
    """Return the ids that clients see of the calls that the data of a message answers. Malformed answers have no id."""
    place = place_of_answers(message)
    items: Any = [] if place is None else cast('dict[str, Any]', message['parts'][place].get('data'))[KEY]
    if not isinstance(items, list):
        return set()
    found = [cast('dict[str, Any]', item).get('id') for item in cast('list[Any]', items) if isinstance(item, dict)]
    return {call_id for call_id in found if isinstance(call_id, str)}


def answered(
    pending: Pending, message: Message, *, by: str, rules: Approvals, late: bool, limit: int, readable: Pending
) -> Pending:
    """Return the pending calls of a task after a message.

    Args:
        pending: The pending calls now.
        message: The client's message.
        by: Id of the caller; empty for an anonymous one.
        rules: Rules for answers.
        late: True if the message was accepted before the question was shown: its words and bare data are no answer.
        limit: Most times that the client may be asked again.
        readable: The calls that the caller may read: the refusal of an answer to another call names them.

    Returns:
        The same object if the message answers no call and need not; or, for an unclear answer, a copy with
        `asked_again` increased.

    Raises:
        InvalidParamsError: The message answers an unknown call, answers a call twice, or has an invalid answer; or its
            words are no answer, and the client was asked again often enough.
    """
    parts = message['parts']
    try:
        if (place := place_of_answers(message)) is not None:
            new = _structured(pending, parts, place, rules, readable)
        elif pending.open:
            new = _plain(pending, parts, rules, late)
        else:
            _check_output(pending, parts, rules, late)
            return pending
    except _Unclear:
        if pending.asked_again >= limit:
            raise _refused(pending, rules) from None
        return replace(pending, asked_again=pending.asked_again + 1)
    decided = {**pending.answers}
    for call_id, answer in new.items():
        decided[call_id] = replace(answer, by=by)
    return replace(pending, answers=decided)


def too_late() -> InvalidParamsError:
    """Return the refusal of a message for an earlier pause than the current one, which waits without calls."""
    return InvalidParamsError.of('message.parts', 'was sent before the task asked its current question; read the task')


def _refused(pending: Pending, rules: Approvals) -> InvalidParamsError:
    """Return the refusal of a message without an answer, with the instruction for a person."""
    what = to_write(pending, rules) or 'Answer the question with text.'
    return InvalidParamsError.of('message.parts', f'must answer what the status message of the task asks. {what}')


# --- data -----------------------------------------------------------------------------------------------------------


def _structured(
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
            _check_words(words, call, new[call.id])
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
            _refuse(fault_of(item[name], _schema(call, name), call.args, f'{where}.{name}'))
        else:
            _check(item[name], _schema(call, name), f'{where}.{name}')
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


def _check(value: Any, schema: Mapping[str, Any], where: str) -> None:
    _refuse(problem(value, schema, where))


def _refuse(fault: Problem | None) -> None:
    if fault is not None:
        raise InvalidParamsError.of(*fault)


def _check_words(words: Sequence[str], call: PendingCall, answer: CallAnswer) -> None:
    """Have the client asked again if words beside the data give another answer."""
    for text in words:
        if call.kind == 'approval':
            decided = verdict(text)
            contradicts = decided is not None and decided[0] != answer.decision
        else:
            value = from_words(text, call.schema) if is_closed(call.schema) else None
            contradicts = value is not None and value != answer.result
        if contradicts:
            raise _Unclear


# --- words, and data without `callAnswers` --------------------------------------------------------------------------


def _plain(pending: Pending, parts: Sequence[Part], rules: Approvals, late: bool) -> dict[str, CallAnswer]:
    """Return the answer to the only open call, in words or, for a question with a schema, in bare data."""
    call, *others = pending.open
    data = [(n, part['data']) for n, part in enumerate(parts) if 'data' in part]
    words = [part['text'] for part in parts if 'text' in part]
    if others or len(data) + len(words) < len(parts) or len(data) > 1:
        raise _refused(pending, rules)
    if data:
        [(n, value)] = data
        if call.kind != 'question' or call.schema is None:
            raise _refused(pending, rules)
        _check(value, call.schema, f'message.parts[{n}].data')
        if late:
            raise _Unclear  # data without an id may answer the earlier question
        answer = CallAnswer(decision='result', result=typed(value, call.schema))
        _check_words(words, call, answer)
        return {call.id: answer}
    if rules.plain_text_answers == 'none' or call.kind == 'external':
        raise _refused(pending, rules)
    text = '\n'.join(words)
    if call.kind == 'question':
        return {call.id: CallAnswer(decision='result', result=_value(text, call.schema, pending, rules, late=late))}
    decided = verdict(text)
    if decided is None or late:
        raise _Unclear
    decision, reason = decided
    if decision == 'approve' and not rules.words_approve(call.tool):
        raise _refused(pending, rules)
    return {call.id: CallAnswer(decision=decision, reason=reason)}


def _value(
    text: str, schema: Mapping[str, Any] | None, pending: Pending, rules: Approvals, *, late: bool
) -> str | float:
    """Return the value of words as an answer to a question."""
    if not takes_words(schema):
        raise _refused(pending, rules)
    value = from_words(text, schema)
    if value is None or late:
        raise _Unclear
    return value


def _check_output(pending: Pending, parts: Sequence[Part], rules: Approvals, late: bool) -> None:
    """Check the answer to the agent's own question, if the question has a schema: data decides, else words do."""
    if pending.schema is None:
        return
    data = [(n, part['data']) for n, part in enumerate(parts) if 'data' in part]
    for n, value in data:
        _check(value, pending.schema, f'message.parts[{n}].data')
    words = [part['text'] for part in parts if 'text' in part]
    if data:
        if late:
            raise _Unclear
        call = PendingCall(id='', kind='question', tool='', text='', schema=pending.schema)
        _check_words(words, call, CallAnswer(decision='result', result=data[0][1]))
    elif not words or rules.plain_text_answers == 'none':
        raise _refused(pending, rules)
    else:
        _value('\n'.join(words), pending.schema, pending, rules, late=late)
