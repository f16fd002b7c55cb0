"""An answer without an id: words, or data without `callAnswers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...settings.approvals import Approvals
from ...types.a2a_objects import Part
from .answer_checks import Unclear, check_value, check_words, refused
from .answers_in_words import from_words, takes_words, typed, verdict
from .pending_calls import CallAnswer, Pending, PendingCall


def plain_answer(pending: Pending, parts: Sequence[Part], rules: Approvals, late: bool) -> dict[str, CallAnswer]:
    """Return the answer to the only open call, in words or, for a question with a schema, in bare data."""
    call, *others = pending.open
    data = [(n, part['data']) for n, part in enumerate(parts) if 'data' in part]
    words = [part['text'] for part in parts if 'text' in part]
    if others or len(data) + len(words) < len(parts) or len(data) > 1:
        raise refused(pending, rules)
    if data:
        [(n, value)] = data
        if call.kind != 'question' or call.schema is None:
            raise refused(pending, rules)
        check_value(value, call.schema, f'message.parts[{n}].data')
        if late:
            raise Unclear  # data without an id may answer the earlier question
        answer = CallAnswer(decision='result', result=typed(value, call.schema))
        check_words(words, call, answer)
        return {call.id: answer}
    if rules.plain_text_answers == 'none' or call.kind == 'external':
        raise refused(pending, rules)
    text = '\n'.join(words)
    if call.kind == 'question':
        return {call.id: CallAnswer(decision='result', result=_value(text, call.schema, pending, rules, late=late))}
    decided = verdict(text)
    if decided is None or late:
        raise Unclear
    decision, reason = decided
    if decision == 'approve' and not rules.words_approve(call.tool):
        raise refused(pending, rules)
    return {call.id: CallAnswer(decision=decision, reason=reason)}


def _value(
    text: str, schema: Mapping[str, Any] | None, pending: Pending, rules: Approvals, *, late: bool
) -> str | float:
    """Return the value of words as an answer to a question."""
    if not takes_words(schema):
        raise refused(pending, rules)
    value = from_words(text, schema)
    if value is None or late:
        raise Unclear
    return value


def check_question_answer(pending: Pending, parts: Sequence[Part], rules: Approvals, late: bool) -> None:
    """Check the answer to the agent's own question, if the question has a schema: data decides, else words do."""
    if pending.schema is None:
        return
    data = [(n, part['data']) for n, part in enumerate(parts) if 'data' in part]
    for n, value in data:
        check_value(value, pending.schema, f'message.parts[{n}].data')
    words = [part['text'] for part in parts if 'text' in part]
    if data:
        if late:
            raise Unclear
        call = PendingCall(id='', kind='question', tool='', text='', schema=pending.schema)
        check_words(words, call, CallAnswer(decision='result', result=data[0][1]))
    elif not words or rules.plain_text_answers == 'none':
        raise refused(pending, rules)
    else:
        _value('\n'.join(words), pending.schema, pending, rules, late=late)
