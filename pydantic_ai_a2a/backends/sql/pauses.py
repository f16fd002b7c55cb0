"""Waiting tasks: the pending calls, and the check of answers. Pure."""

from __future__ import annotations

from ...ports import Answer, Status, Submission
from ...types import INTERRUPTED, TaskEvent, TaskHeader
from ..rules import check_answer, status_event
from . import deliveries
from .transaction import Transaction, Write
from .vocabulary import TASK, add_events, set_status

__all__ = ('ask_for_rest', 'check_pause', 'go_on')


_ASKED = f'UPDATE task SET pending = ?, stop_event = ? WHERE {TASK} RETURNING push'


def check_pause(agent: str, header: TaskHeader, message: Submission) -> Transaction[None]:
    """Check that a message to a waiting task answers the current pause, as `check_answer`."""
    calls = False
    if message.answer is None and header.state in INTERRUPTED:
        calls = bool((yield f'SELECT 1 FROM task WHERE {TASK} AND pending IS NOT NULL', (agent, header.id)))
    check_answer(header, message, calls=calls)


def ask_for_rest(agent: str, header: TaskHeader, answer: Answer, at: int) -> Transaction[list[TaskEvent]]:
    """Store a partial answer and ask for the missing answers; or ask again.

    After a repeated question, the deadline of the task stays as before.
    """
    status = Status(header.state, header.status_at if answer.again else at, answer.rest)
    event = status_event(header, status, header.last_event + 1)
    yield [*set_status(agent, header.id, status), add_events(agent, header.id, [event])]
    rows = yield _ASKED, (answer.pending, event.n, agent, header.id)
    if rows[0][0]:
        yield from deliveries.enqueue_deliveries(agent, header, rows[0][0], [event])
    return [event]


def go_on(agent: str, message: Submission) -> Write:
    """Let the next run of a task begin with an answer, the newest message in the inbox."""
    pending = None if message.answer is None else message.answer.pending
    newest = (
        "(SELECT MAX(seq) FROM item WHERE item.agent = task.agent AND item.task_id = task.id AND item.kind = 'message')"
    )
    statement = f'UPDATE task SET answer = {newest}, pending = ?, status_message = NULL WHERE {TASK}'
    return statement, [(pending, agent, message.task_id)]
