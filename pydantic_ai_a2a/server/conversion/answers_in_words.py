"""The rules for plain words as answers of clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import Any, Literal

from pydantic_core import from_json

from ...settings.approvals import Approvals
from ...wire.schemas.value_validation import problem

_YES = frozenset({'yes', 'y', 'ok', 'okay', 'approve', 'approved'})
_NO = frozenset({'no', 'n', 'deny', 'denied'})
_PLAIN_TYPES = ('string', 'integer', 'number')
_DATA = 'Answer with data that fits "messageSchema" beside this text.'

SEVERAL = f'The task needs several answers, so plain words are not enough. {_DATA}'
"""The text for a person while more than one decision is open."""


def verdict(text: str) -> tuple[Literal['approve', 'deny'], str | None] | None:
    """Return the decision of a text, with the reason of a denial; None for a text without a decision.

    Only the words of a closed table decide, in any case, with spaces and punctuation around. The only longer form is
    `no:` with a reason, because a denial is safe.
    """
    word, colon, reason = text.partition(':')
    spelled = (word if colon else word.strip().rstrip('.!')).strip().casefold()
    if spelled in _NO:
        return 'deny', reason.strip() or None
    return ('approve', None) if spelled in _YES and not colon else None


def takes_words(schema: Mapping[str, Any] | None) -> bool:
    """Return True if plain words can be a value of a schema: no schema, or a string or number schema."""
    return schema is None or schema.get('type') in _PLAIN_TYPES


def from_words(text: str, schema: Mapping[str, Any] | None) -> str | float | None:
    """Return the value of a text by a schema for plain words; None for a text outside the schema."""
    if schema is None:
        return text
    value = text if schema['type'] == 'string' else _number(text.strip())
    return None if value is None or problem(value, schema, '') is not None else typed(value, schema)


def typed(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return a value of a schema in the schema's type: JSON writes the integer 1000 also as `1000.0` and `1e3`."""
    return int(value) if isinstance(value, float) and schema.get('type') == 'integer' else value


def _number(text: str) -> float | None:
    try:
        value: Any = from_json(text, allow_inf_nan=False)
    except ValueError:
        return None
    is_finite = isinstance(value, int) or (isinstance(value, float) and isfinite(value))
    return value if is_finite and not isinstance(value, bool) else None


def is_closed(schema: Mapping[str, Any] | None) -> bool:
    """Return True if a value of the schema cannot be a mere remark: a number, or a listed value."""
    return schema is not None and takes_words(schema) and (schema['type'] != 'string' or 'enum' in schema)


def instruction(kind: str, tool: str, schema: Mapping[str, Any] | None, rules: Approvals) -> str:
    """Return the instruction for a person who answers the only open decision; empty if the question says all.

    Args:
        kind: Kind of the call; `question` for a question of the agent itself.
        tool: Name of the tool.
        schema: JSON Schema of the answer to a question.
        rules: Rules for the answers of clients.
    """
    if rules.plain_text_answers == 'none' or kind == 'external':
        return f'Plain words cannot answer this. {_DATA}'
    if kind == 'question':
        return _of_question(schema)
    who = '' if rules.approvers is None else 'Only an approver can decide. '
    if rules.words_approve(tool):
        return f'{who}Write "yes" to approve the call, or "no" or "no: reason" to deny it.'
    return (
        f'{who}Write "no" or "no: reason" to deny the call. Plain words cannot approve it; approving takes'
        ' data that fits "messageSchema" beside this text.'
    )


def rules_of(rules: Approvals, *, first: bool) -> Approvals:
    """Return the rules for a pause: with approvers, words approve only in the first pause of a task.

    Words have no id. The words of an approver may be about an earlier call, which another approver has decided.
    """
    if first or rules.approvers is None or rules.plain_text_answers == 'none':
        return rules
    return replace(rules, plain_text_answers='deny')


def _of_question(schema: Mapping[str, Any] | None) -> str:
    if schema is None:
        return ''
    if not takes_words(schema):
        return f'Plain words cannot answer this. {_DATA}'
    if 'enum' in schema:
        return f'Write one of these: {", ".join(str(value) for value in schema["enum"])}.'
    return {'string': '', 'integer': 'Write a whole number.', 'number': 'Write a number.'}[schema['type']]
