"""What a client's message answers of the calls that a task waits with, checked against what the server stored. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, cast

from ..errors import InvalidParamsError
from ..types import Message, Part
from .json_schema import problem
from .pending import Answer, Pending, PendingCall

__all__ = ('KEY', 'PlainText', 'answered', 'answers_calls')

KEY = 'callAnswers'
"""The one member of a data part that answers calls."""

PlainText: TypeAlias = Literal['none', 'questions', 'all']
"""What may be answered in plain words."""

_YES = frozenset({'yes', 'y', 'ok', 'approve', 'approved'})
_NO = frozenset({'no', 'n', 'deny', 'denied'})
_DECISIONS: Mapping[str, tuple[str, str]] = {
    'approval': ('approve', 'deny'),
    'question': ('result', 'retry'),
    'external': ('result', 'retry'),
}
_FIELDS: Mapping[str, str] = {'approve': 'args', 'deny': 'reason', 'result': 'result', 'retry': 'reason'}
_REQUIRED = ('result', 'retry')


def answers_calls(message: Message) -> bool:
    """Whether a message says that it answers calls, whether or not any wait for it."""
    for part in message['parts']:  # noqa: SIM110 - a generator costs a call for each part of every message
        if 'data' in part and _is_answer(part):
            return True
    return False


def answered(pending: Pending, message: Message, *, by: str, plain_text: PlainText) -> Pending:
    """What the task waits for after this message.

    Args:
        pending: What it waits for now.
        message: The client's.
        by: Id of the caller; empty for an anonymous one.
        plain_text: What may be answered in plain words.

    Raises:
        InvalidParamsError: It answers a call that does not wait, or one twice, or with what does not fit.
    """
    parts = message['parts']
    if answers_calls(message):
        new = _structured(pending, parts)
    elif pending.open:
        new = _in_words(pending, parts, plain_text)
    else:
        _check_data(pending, parts)
        return pending
    return replace(pending, answers={**pending.answers, **{id_: replace(answer, by=by) for id_, answer in new.items()}})


def _is_answer(part: Part) -> bool:
    return isinstance(data := part.get('data'), dict) and KEY in data


def _structured(pending: Pending, parts: Sequence[Part]) -> dict[str, Answer]:
    data = cast('dict[str, Any]', next(part for part in parts if _is_answer(part)).get('data'))
    if len(parts) > 1 or len(data) > 1:
        raise InvalidParamsError.of('message.parts', f'must be one data part with nothing but {KEY}')
    field = f'message.parts[0].data.{KEY}'
    items: Any = data[KEY]
    if not isinstance(items, list) or not items:
        raise InvalidParamsError.of(field, 'must be a list of answers')
    waiting = {call.id: call for call in pending.open}
    new: dict[str, Answer] = {}
    for n, item in enumerate(cast('list[Any]', items)):
        where = f'{field}[{n}]'
        call_id = _id(item, where)
        if call_id in pending.answers or call_id in new:
            raise InvalidParamsError.of(f'{where}.id', 'is answered already')
        if call_id not in waiting:
            raise InvalidParamsError.of(f'{where}.id', 'is of no call that waits for an answer')
        new[call_id] = _answer(waiting[call_id], item, where)
    return new


def _id(item: Any, where: str) -> str:
    if not isinstance(item, dict):
        raise InvalidParamsError.of(where, 'must be an object')
    call_id = cast('dict[str, Any]', item).get('id')
    if not isinstance(call_id, str):
        raise InvalidParamsError.of(f'{where}.id', 'must be the id of a pending call')
    return call_id


def _answer(call: PendingCall, item: dict[str, Any], where: str) -> Answer:
    decisions = _DECISIONS[call.kind]
    decision: Any = item.get('decision')
    if decision not in decisions:
        raise InvalidParamsError.of(f'{where}.decision', f'must be {" or ".join(decisions)}')
    name = _FIELDS[decision]
    if unknown := item.keys() - {'id', 'decision', name}:
        raise InvalidParamsError.of(f'{where}.{min(unknown)}', f'is nothing that goes with {decision}')
    if name in item:
        _check(item[name], _schema(call, name), f'{where}.{name}')
    elif decision in _REQUIRED:
        raise InvalidParamsError.of(f'{where}.{name}', 'is required')
    given: dict[str, Any] = {name: item.get(name)}
    return Answer(decision=decision, **given)


def _schema(call: PendingCall, name: str) -> dict[str, Any]:
    if name == 'reason':
        return {'type': 'string', 'minLength': 1}
    if name == 'args':
        return {**(call.schema or {}), 'type': 'object'}
    return call.schema or {}


def _check(value: Any, schema: Mapping[str, Any], where: str) -> None:
    if (found := problem(value, schema, where)) is not None:
        raise InvalidParamsError.of(*found)


def _in_words(pending: Pending, parts: Sequence[Part], plain_text: PlainText) -> dict[str, Answer]:
    """The answer to the only open call, in plain words."""
    call, *others = pending.open
    taken = plain_text == 'all' or (plain_text == 'questions' and call.kind == 'question')
    if others or not taken or call.kind == 'external' or not all('text' in part for part in parts):
        raise InvalidParamsError.of(
            'message.parts', f'must be one data part with {KEY}, for the calls that the status message lists'
        )
    text = '\n'.join(part.get('text', '') for part in parts)
    if call.kind == 'question':
        _check(text, call.schema or {}, 'message.parts[0].text')
        return {call.id: Answer(decision='result', result=text)}
    return {call.id: _approval(text)}


def _approval(text: str) -> Answer:
    """Yes, no, or no and why; nothing else is guessed at."""
    word, _, reason = text.partition(':')
    said = word.strip().rstrip('.!').lower()
    if said in _YES and not reason.strip():
        return Answer(decision='approve')
    if said in _NO:
        return Answer(decision='deny', reason=reason.strip() or None)
    raise InvalidParamsError.of('message.parts[0].text', 'must be yes, or no, or no: and the reason')


def _check_data(pending: Pending, parts: Sequence[Part]) -> None:
    """Data that answers a question has to fit its schema; what is said beside it, or instead, is up to the agent."""
    for n, part in enumerate(parts):
        if 'data' in part:
            _check(part['data'], pending.schema or {}, f'message.parts[{n}].data')
