"""Dead letters, and other failed tasks, for operators to list and to retry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from pydantic_core import from_json, to_json

from ....errors import UnsupportedOperationError
from ....json_values import as_object
from ....types.stored_tasks import TaskHeader
from ....wire.protocol import new_ids
from ..ports import DEAD_LETTER, DEAD_LETTERS, DeadLetter, Submission
from . import checkpoints, push_configs, quotas, submitting
from .key_conditions import where
from .task_rows import TASK, find, find_locked
from .transaction import Done, Transaction

_DEAD = {False: f'failure IN {DEAD_LETTERS}', True: "state = 'failed' AND failure IS NOT NULL"}
"""The condition of dead letters, and of all failed tasks."""
_FROM_CLIENT = "agent = ? AND task_id = ? AND kind = 'message' AND answer IS NOT NULL"
_SET_ANSWER = f'UPDATE item SET answer = ? WHERE {_FROM_CLIENT} AND seq = ?'
_FORGET_TURN = (
    'UPDATE task SET own_messages = NULL, own_usage = NULL, pending = NULL, context_head = NULL, answer = NULL'
    f' WHERE {TASK}'
)
_ANY_LENGTH = 2**31 - 1
"""Limit of the queue for a retry: none, because an operator decides."""


def dead_letters(
    agent: str,
    owner: str | None = None,
    *,
    limit: int = 100,
    after: tuple[int, str] | None = None,
    failed: bool = False,
) -> Transaction[list[DeadLetter]]:
    """See `Housekeeping.dead_letters`."""
    page, values = where(
        {f'agent = ? AND {_DEAD[failed]}': agent, 'owner = ?': owner, '(status_at, id) > (?, ?)': after}
    )
    rows = yield (
        'SELECT id, context_id, owner, status_at, attempt, failure, retried_as, status_message FROM task'
        f' WHERE {page} ORDER BY status_at, id LIMIT ?',
        (*values, limit),
    )
    return [_dead_letter(row) for row in rows]


def _dead_letter(row: Sequence[Any]) -> DeadLetter:
    task_id, context_id, owner, at, attempt, failure, retried_as, status_message = row
    return DeadLetter(
        task_id=task_id,
        context_id=context_id,
        owner=owner,
        at=at,
        attempts=attempt - (failure == DEAD_LETTER),  # the last attempt only failed the task
        failure=failure,
        correlation_id=read_correlation_id(status_message),
        retried_as=retried_as,
    )


def retry_task(
    agent: str, task_id: str, *, new_id: str, at: int, again: bool = False, failed: bool = False
) -> Transaction[Done[TaskHeader]]:
    """See `Housekeeping.retry`."""
    yield from find_locked(agent, task_id, None)
    unless_retried = '' if again else ' AND retried_as IS NULL'
    rows = yield (
        f'UPDATE task SET retried_as = ? WHERE {TASK} AND {_DEAD[failed]}{unless_retried}'
        ' RETURNING owner, context_id, request, traceparent, dialect, failure, turn, inbox_read, answer, run, paid',
        (new_id, agent, task_id),
    )
    if not rows:
        yield from _refuse(agent, task_id, _DEAD[failed])
    *common, failure, turn, inbox_read, answer, run, paid = rows[0]
    if turn == 1 and failure not in DEAD_LETTERS:
        inbox_read = 1  # a run that waited for its client afterwards may have read later messages
    messages = yield (
        'SELECT 1 AS seq, 0 AS answer, message, digest, NULL AS request FROM task'
        f' WHERE {TASK} AND CAST(? AS BIGINT) <= 1 UNION ALL SELECT seq, answer, body, digest, request FROM item'
        f' WHERE {_FROM_CLIENT} AND seq >= ? AND (answer = 0 OR ?) ORDER BY seq',
        (agent, task_id, inbox_read, agent, task_id, inbox_read, answer is not None),
    )
    for n, (*_, body, digest, own_request) in enumerate(messages):
        message = _submission(common, new_id, *repeated(body, task_id), digest=digest, new=n == 0, at=at)
        if own_request is not None:
            message = replace(message, request=own_request or None)
        yield from submitting.submit(agent, message, queue_limit=_ANY_LENGTH, idempotency_window=0)
    if answer is not None:
        yield from _move_turn(agent, task_id, new_id, [row[:2] for row in messages], answer)
    usage = yield from checkpoints.move_checkpoint(agent, task_id, new_id, [seq for seq, *_ in messages])
    if usage is not None:
        yield [quotas.divide(agent, task_id, run, paid, new_id=new_id, usage=usage)]
    yield from push_configs.copy_configs(agent, task_id, new_id)
    return Done((yield from find(agent, new_id, None)), ready=True)


def _move_turn(
    agent: str, task_id: str, new_id: str, messages: Sequence[tuple[int, int]], answer: int
) -> Transaction[None]:
    """Move the turn of an answered task to a new task, for the first run of the new task.

    Args:
        agent: Namespace.
        task_id: The answered task.
        new_id: The new task, with copies of the turn's messages.
        messages: The numbers of the turn's messages, with their answers.
        answer: The number of the answer to resume with.
    """
    rows = yield f'SELECT seq FROM item WHERE {_FROM_CLIENT} ORDER BY seq', (agent, new_id)
    copy_of = {seq: copy for (seq, _), copy in zip(messages, [1, *(row[0] for row in rows)], strict=True)}
    turn = yield (
        'SELECT own_messages, own_usage, pending, (SELECT id FROM entry WHERE entry.agent = task.agent'
        f' AND entry.owner = task.owner AND entry.id = task.context_head) FROM task WHERE {TASK}',
        (agent, task_id),
    )
    move = (
        'UPDATE task SET own_messages = ?, own_usage = ?, pending = ?, context_head = ?, inbox_read = ?, answer = ?'
        f' WHERE {TASK}'
    )
    yield [
        (_SET_ANSWER, [(answers, agent, new_id, copy_of[seq]) for seq, answers in messages if answers]),
        (move, [(*turn[0], 1, copy_of[answer], agent, new_id)]),
        (_FORGET_TURN, [(agent, task_id)]),
    ]


def _refuse(agent: str, task_id: str, condition: str) -> Transaction[None]:
    """Say why a task is not retried."""
    header = yield from find(agent, task_id, None)
    rows = yield f'SELECT retried_as FROM task WHERE {TASK} AND {condition}', (agent, task_id)
    if not rows:
        raise UnsupportedOperationError(
            f'The task is {header.state} and is not a dead letter: list the dead letters, or all failed tasks.'
        )
    raise UnsupportedOperationError(f'The task has already been retried, as the task {rows[0][0]}.')


def _submission(common: Sequence[Any], task_id: str, message_id: str, body: bytes, **others: Any) -> Submission:
    owner, context_id, request, traceparent, dialect = common
    return Submission(
        owner=owner,
        anonymous=False,  # the message id is new and known to no client
        message_id=message_id,
        body=body,
        task_id=task_id,
        context_id=context_id,
        request=request,
        traceparent=traceparent,
        dialect=dialect,
        **others,
    )


def read_correlation_id(message: bytes | None) -> str | None:
    """Return the correlation id in the status message of a failed task; None if it has none, or is damaged."""
    try:
        status = as_object(None if message is None else from_json(message))
    except ValueError:
        return None
    return as_object(status.get('metadata')).get('correlationId')


def repeated(body: bytes, dead_id: str) -> tuple[str, bytes]:
    """Return a copy of a dead letter's message with a new id and without task ids; and the new id."""
    message: dict[str, Any] = from_json(body)
    message_id = new_ids.new_id()
    references: Iterable[str] = message.get('referenceTaskIds', ())
    message |= {'messageId': message_id, 'referenceTaskIds': [*references, dead_id]}
    del message['taskId'], message['contextId']
    return message_id, to_json(message)
