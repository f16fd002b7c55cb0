"""The answers in a client's message to the calls that a task waits with, checked against what the server stored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from ...errors import InvalidParamsError
from ...settings.approvals import Approvals
from ...types.a2a_objects import Message
from ...wire.extensions.pending_calls_extension import KEY, PENDING_CALLS_URI, QUESTION
from .answer_checks import Unclear, refused
from .answers_in_data import data_answers
from .pending_calls import Pending
from .plain_answers import check_question_answer, plain_answer


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


def named_question(message: Message) -> str | None:
    """Return the id of the status message that words or bare data answer; None without an id, and for ids of calls.

    Raises:
        InvalidParamsError: The name is no text.
    """
    data: Any = message.get('metadata', {}).get(PENDING_CALLS_URI)
    if not isinstance(data, dict) or QUESTION not in data or place_of_answers(message) is not None:
        return None
    question = cast('dict[str, Any]', data)[QUESTION]
    if not isinstance(question, str):
        field = f'message.metadata["{PENDING_CALLS_URI}"].{QUESTION}'
        raise InvalidParamsError.of(field, 'must be the messageId of the status message that the message answers')
    return question


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
            new = data_answers(pending, parts, place, rules, readable)
        elif pending.open:
            new = plain_answer(pending, parts, rules, late)
        else:
            check_question_answer(pending, parts, rules, late)
            return pending
    except Unclear:
        if pending.asked_again >= limit:
            raise refused(pending, rules) from None
        return replace(pending, asked_again=pending.asked_again + 1)
    decided = {**pending.answers}
    for call_id, answer in new.items():
        decided[call_id] = replace(answer, by=by)
    return replace(pending, answers=decided)


def too_late() -> InvalidParamsError:
    """Return the refusal of a message for an earlier pause than the current one, which waits without calls."""
    return InvalidParamsError.of('message.parts', 'was sent before the task asked its current question; read the task')
