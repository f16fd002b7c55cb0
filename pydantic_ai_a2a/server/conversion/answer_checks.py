"""What refuses the answer of a client, or has the client asked again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import InvalidParamsError
from ...settings.approvals import Approvals
from ...wire.schemas.value_validation import Problem, problem
from .answers_in_words import from_words, is_closed, verdict
from .pending_calls import CallAnswer, Pending, PendingCall
from .status_parts import to_write


class Unclear(Exception):
    """Words of the client are no clear answer, so the client is asked again."""


def refused(pending: Pending, rules: Approvals) -> InvalidParamsError:
    """Return the refusal of a message without an answer, with the instruction for a person."""
    what = to_write(pending, rules) or 'Answer the question with text.'
    return InvalidParamsError.of('message.parts', f'must answer what the status message of the task asks. {what}')


def check_value(value: Any, schema: Mapping[str, Any], where: str) -> None:
    """Refuse a value that does not fit its JSON Schema.

    Raises:
        InvalidParamsError: The value at `where` does not fit.
    """
    refuse(problem(value, schema, where))


def refuse(fault: Problem | None) -> None:
    """Refuse a value with a fault.

    Raises:
        InvalidParamsError: There is a fault.
    """
    if fault is not None:
        raise InvalidParamsError.of(*fault)


def check_words(words: Sequence[str], call: PendingCall, answer: CallAnswer) -> None:
    """Have the client asked again if words beside the data give another answer."""
    for text in words:
        if call.kind == 'approval':
            decided = verdict(text)
            contradicts = decided is not None and decided[0] != answer.decision
        else:
            value = from_words(text, call.schema) if is_closed(call.schema) else None
            contradicts = value is not None and value != answer.result
        if contradicts:
            raise Unclear
