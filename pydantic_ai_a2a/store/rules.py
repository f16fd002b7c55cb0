"""The rules of tasks that all stores share: pure functions of values of the ports."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from pydantic_ai.usage import RunUsage
from pydantic_core import from_json, to_json

from ..errors import AnswerNeeded, InvalidParamsError
from ..protocol import stored
from ..protocol.fields import SHORTEST_ID
from ..types import INTERRUPTED, TERMINAL, TaskEvent, TaskHeader
from .ports import DEAD_LETTERS, Charge, Finish, OnExpired, Status, Submission, amounts_of

logger = logging.getLogger('pydantic_ai_a2a')

EXPIRED = 'expired'
"""Failure class of a task without an answer in time."""
_HANDS_ON = TERMINAL - {'canceled'}
"""States that do not end a task with unread messages."""

Expired: TypeAlias = list[tuple[TaskHeader, TaskEvent]]
"""Waiting tasks without an answer in time, with the last events."""


# --- messages of clients --------------------------------------------------------------------------------------------


def replays(message: Submission, window: int) -> bool:
    """Return True if a repetition of a message is recognised."""
    # Anonymous clients may share short message ids for new tasks. Only the task's own client knows a task id.
    return window > 0 and not (message.anonymous and message.new and len(message.message_id) < SHORTEST_ID)


def replay_key(message: Submission, window: int) -> str | None:
    """Return the key for recognising a repeated message; None if repetitions are not recognised."""
    if not replays(message, window):
        return None
    if not message.anonymous:
        return message.message_id
    return f'{message.message_id} {message.digest.hex()}'  # different content makes a different message


def check_answer(header: TaskHeader, message: Submission, *, calls: bool) -> None:
    """Check that a message to a waiting task answers the current pause.

    Args:
        header: Header of the task.
        message: The message.
        calls: True if the task waits with calls; read only for a message without an answer.

    Raises:
        AnswerNeeded: The message was not checked against the pending calls of the task, or against an earlier pause.
        InvalidParamsError: The message answers calls, and no call is pending.
    """
    answer = message.answer
    if answer is not None:
        if header.state not in INTERRUPTED or answer.pause.number != header.last_event:
            raise AnswerNeeded
    elif header.state in INTERRUPTED and calls:
        raise AnswerNeeded
    if message.answers_calls and (answer is None or answer.pending is None):
        raise InvalidParamsError.of('message.parts', 'answers calls, but the task has no open calls: read the task')


# --- runs -----------------------------------------------------------------------------------------------------------


def status_event(header: TaskHeader, status: Status, n: int) -> TaskEvent:
    """Return the event of a status."""
    body = stored.status(status.state, status.at, status.message)
    return TaskEvent(n, status.state, stored.status_update(header.id, header.context_id, body))


def hands_on(end: Finish) -> bool:
    """Return True if the task goes on with its unread messages after this end of a run."""
    return end.status.state in _HANDS_ON and not end.last and end.failure not in DEAD_LETTERS


def handed_on(header: TaskHeader, end: Finish) -> list[TaskEvent]:
    """Return the events for the end of a run whose task goes on: the reason of a failure, else none."""
    if end.status.message is None:
        return []
    return [status_event(header, end.status._replace(state='working'), end.final.n)]


# --- quotas ---------------------------------------------------------------------------------------------------------


def unpaid(run: int, paid: Sequence[int], charges: Sequence[Charge]) -> tuple[list[Charge], list[int]] | None:
    """Return the charges of a run beyond the paid amounts, in a fixed order, and the new paid amounts of the task.

    Args:
        run: Number of the run.
        paid: The amounts of a task: number of the run, requests, tokens, cost; or empty.
        charges: The usage of the run.

    Returns:
        None if the run has paid for everything.
    """
    before = _of_run(run, paid)
    total = [max(amounts) for amounts in zip(charges[0][3:], before, strict=True)] if charges else before
    if total == before:
        return None
    rest = [now - then for now, then in zip(total, before, strict=True)]
    due = sorted(Charge(charge.subject, charge.window, charge.until, *rest) for charge in charges)
    return due, [run, *total]


def divided(run: int, paid: Sequence[int], usage: RunUsage) -> tuple[list[int], list[int]]:
    """Divide the usage of a run between its task and another task, whose first run continues from its checkpoint.

    The new task is charged for the checkpoint, except for what the old task has paid of it. If a lost holder of the old
    task comes back, it is charged only for what it did after the checkpoint.

    Args:
        run: The run of the old task.
        paid: The paid amounts of the old task.
        usage: The usage in the checkpoint.

    Returns:
        The paid amounts of the new task and of the old task.
    """
    pairs = list(zip(amounts_of(usage), _of_run(run, paid), strict=True))
    return [1, *map(min, pairs)], [run, *map(max, pairs)]


def _of_run(run: int, paid: Sequence[int]) -> list[int]:
    """Return the charged amounts of a run: requests, tokens, cost."""
    of, *amounts = paid or (0,)
    return amounts if of == run else [0, 0, 0]


# --- waiting tasks and dead letters ---------------------------------------------------------------------------------


def expired_status(header: TaskHeader, run: int, at: int) -> Status:
    """Return the failure of a task without an answer in time."""
    metadata = to_json({'failure': EXPIRED, 'correlationId': f'{header.id}.{run}'})
    parts = stored.text_parts('The task waited too long.')
    rest = b',"metadata":' + metadata + b',' + stored.ids(header.id, header.context_id)
    return Status('failed', at, stored.message(stored.new_id(), b'ROLE_AGENT', parts, rest))


def report_expired(ended: Expired, on_expired: OnExpired | None) -> None:
    """Log the tasks that a sweep has failed, under the correlation ids that clients read, and call the listener."""
    for header, event in ended:
        failure_id = from_json(event.payload)['statusUpdate']['status']['message']['metadata']['correlationId']
        logger.error('Task %s failed (%s, correlation id %s).', header.id, EXPIRED, failure_id)
        if on_expired is not None:
            on_expired(header, EXPIRED, failure_id)


def correlation_id(message: bytes | None) -> str | None:
    """Return the correlation id in the status message of a failed task."""
    status: dict[str, Any] = {} if message is None else from_json(message)
    return status.get('metadata', {}).get('correlationId')


def repeated(body: bytes, dead_id: str) -> tuple[str, bytes]:
    """Return a copy of a dead letter's message with a new id and without task ids; and the new id."""
    message: dict[str, Any] = from_json(body)
    message_id = stored.new_id()
    references: Iterable[str] = message.get('referenceTaskIds', ())
    message |= {'messageId': message_id, 'referenceTaskIds': [*references, dead_id]}
    del message['taskId'], message['contextId']
    return message_id, to_json(message)
