"""Waiting tasks: the pending calls, and the check of answers. Pure."""

from __future__ import annotations

from ...errors import AnswerNeeded, InvalidParamsError
from ...lifecycle import INTERRUPTED
from ...ports import Answer, Status, Submission
from ...types import TaskEvent, TaskHeader
from . import deliveries
from .vocabulary import TASK, Transaction, add_events, set_status, status_event

__all__ = ('ask_for_rest', 'check', 'go_on')


def check(agent: str, header: TaskHeader, message: Submission) -> Transaction[Answer | None]:
    """Return the checked answer of a message to a task; None if the task needs no answer.

    Raises:
        AnswerNeeded: The answer was not checked against the pending calls of the task, or no call is pending.
        InvalidParamsError: The message answers calls, and no call is pending.
    """
    if header.state in INTERRUPTED:
        rows = yield f'SELECT pending FROM task WHERE {TASK}', (agent, header.id)
        if (pending := rows[0][0]) is not None:
            if message.answer is None or message.answer.pause != header.last_event:
                raise AnswerNeeded(header.id, header.context_id, header.last_event, pending)
            return message.answer
    if message.answers_calls:
        raise InvalidParamsError.of('message.parts', 'answers calls, but the task waits with none')
    if message.answer is not None:  # another one came first: this is one message more, and decides nothing
        raise AnswerNeeded(header.id, header.context_id, header.last_event, None)
    return None


def ask_for_rest(agent: str, header: TaskHeader, answer: Answer, at: int) -> Transaction[list[TaskEvent]]:
    """Store a partial answer and ask for the missing answers; or ask again.

    After a repeated question, the deadline of the task stays as before.
    """
    status = Status(header.state, header.status_at if answer.again else at, answer.rest)
    event = status_event(header, status, header.last_event + 1)
    yield from set_status(agent, header, status)
    rows = yield f'UPDATE task SET pending = ? WHERE {TASK} RETURNING push', (answer.pending, agent, header.id)
    yield [add_events(agent, header.id, [event])]
    if rows[0][0]:
        yield from deliveries.enqueue(agent, header, rows[0][0], [event])
    return [event]


def go_on(agent: str, task_id: str, answer: Answer | None, seq: int) -> Transaction[None]:
    """Let the next run of a task begin with the message in a row of the inbox."""
    pending = None if answer is None else answer.pending
    yield f'UPDATE task SET answer = ?, pending = ? WHERE {TASK}', (seq, pending, agent, task_id)
