"""Interrupted tasks, which wait for their client: the pending calls, and the check of answers."""

from __future__ import annotations

from ....errors import AnswerNeeded, InvalidParamsError
from ....task_states import INTERRUPTED
from ....types.stored_events import TaskEvent
from ....types.stored_tasks import TaskHeader
from ..ports import Answer, Pause, Status, Submission
from ..status_events import status_event
from . import enqueued_deliveries
from .event_log import add_events
from .task_rows import HEADER, LAST_EVENT, MESSAGE_OF_TASK, TASK, header_of, set_status
from .transaction import Transaction, Write, sql

_HAS_CALLS = f'SELECT 1 FROM task WHERE {TASK} AND pending IS NOT NULL'
_ASKED = f'UPDATE task SET pending = ?, stop_event = ? WHERE {TASK} RETURNING push'
_INTERRUPTED = ', '.join(f"'{state}'" for state in sorted(INTERRUPTED))
PAUSE = sql(f"""
        pending,
        -- the request of the newest message that a run has read, or else of the first message
        COALESCE(
            (
                SELECT item.request FROM item
                WHERE {MESSAGE_OF_TASK} AND (item.answer > 0 OR item.seq <= task.inbox_read)
                ORDER BY item.seq DESC LIMIT 1
            ),
            request
        ),
        -- Each answer to a pause adds a run to a turn.
        run = turn
""")
"""The columns of a task that `Pause` has besides the number and the context."""
_PAUSE = f'SELECT {LAST_EVENT}, context_id, {PAUSE} FROM task WHERE {TASK} AND owner = ? AND state IN ({_INTERRUPTED})'
_PAUSE_OF_RUN = f'SELECT {HEADER}, {PAUSE} FROM task WHERE {TASK} AND run = ? AND state IN ({_INTERRUPTED})'


def check_pause(agent: str, header: TaskHeader, message: Submission) -> Transaction[None]:
    """Check that a message to a waiting task answers the current pause.

    Raises:
        AnswerNeeded: The message was not checked against the pending calls of the task, or against an earlier pause.
        InvalidParamsError: The message answers calls, and no call is pending.
    """
    answer = message.answer
    if answer is not None:
        if header.state not in INTERRUPTED or answer.pause.number != header.last_event:
            raise AnswerNeeded
    elif header.state in INTERRUPTED and (yield _HAS_CALLS, (agent, header.id)):
        raise AnswerNeeded
    if message.answers_calls and (answer is None or answer.pending is None):
        raise InvalidParamsError.of('message.parts', 'answers calls, but the task has no open calls: read the task')


def ask_for_rest(agent: str, header: TaskHeader, answer: Answer, at: int) -> Transaction[list[TaskEvent]]:
    """Store a partial answer and ask for the missing answers; or ask again.

    After a repeated question, the deadline of the task stays as before.
    """
    status = Status(header.state, header.status_at if answer.again else at, answer.rest)
    event = status_event(header, status, header.last_event + 1)
    yield [*set_status(agent, header.id, status), add_events(agent, header.id, [event])]
    rows = yield _ASKED, (answer.pending, event.n, agent, header.id)
    if rows[0][0]:
        yield from enqueued_deliveries.enqueue_deliveries(agent, header, rows[0][0], [event])
    return [event]


def go_on(agent: str, message: Submission) -> Write:
    """Let the next run of a task begin with an answer, the newest message of the task."""
    pending = None if message.answer is None else message.answer.pending
    newest = f'(SELECT MAX(seq) FROM item WHERE {MESSAGE_OF_TASK})'
    statement = f'UPDATE task SET answer = {newest}, pending = ?, status_message = NULL WHERE {TASK}'
    return statement, [(pending, agent, message.task_id)]


def pause(agent: str, task_id: str, owner: str) -> Transaction[Pause | None]:
    """See `TaskReader.pause`."""
    rows = yield _PAUSE, (agent, task_id, owner)
    if not rows:
        return None
    return pause_of(*rows[0])


def pause_of_run(agent: str, task_id: str, run: int) -> Transaction[tuple[TaskHeader, Pause] | None]:
    """See `HookCalls.pause`."""
    rows = yield _PAUSE_OF_RUN, (agent, task_id, run)
    if not rows:
        return None
    header = header_of(rows[0])
    return header, pause_of(header.last_event, header.context_id, *rows[0][-3:])


def pause_of(number: int, context_id: str, pending: bytes | None, request: bytes | None, first: int) -> Pause:
    """Return a pause from the columns `PAUSE`."""
    return Pause(number, context_id, pending, request or None, bool(first))
