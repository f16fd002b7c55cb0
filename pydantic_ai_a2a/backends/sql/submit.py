"""The client's side of the state machine: a message is accepted, a task is canceled."""

from __future__ import annotations

from ...errors import InvalidParamsError, OverloadedError, QuotaExceededError
from ...lifecycle import INTERRUPTED, check_cancel, check_message
from ...ports import Accepted, Status, Submission
from ...protocol import stored
from ...types import TaskEvent, TaskHeader
from . import deliveries, pauses, webhooks
from .contexts import BEHIND, NEXT, ROUND, lock_rounds
from .transaction import Lock
from .vocabulary import (
    ADD_ITEM,
    BY_ID_AND_OWNER,
    TASK,
    UNREAD,
    Transaction,
    add_events,
    end_unheld,
    find,
    find_locked,
    header_of,
    set_status,
    status_event,
)

__all__ = ('cancel', 'locks_of_submit', 'submit')

REPLAYABLE_ANONYMOUS_ID = 16
"""From this length on a message id is unlikely to be another anonymous client's."""


def locks_of_submit(agent: str, message: Submission, **_: object) -> list[Lock]:
    """Lock the context of a new task: tasks of a context are queued in the order of commits."""
    return [Lock((agent, message.owner, message.context_id))] if message.new and message.context_id else []


def submit(
    agent: str, message: Submission, *, queue_limit: int, idempotency_window: int
) -> Transaction[tuple[Accepted, list[TaskEvent]]]:
    """See `TaskQueue.submit`; also gives the events to publish."""
    key = _replay_key(message) if idempotency_window else None
    if key is not None:
        replayed = yield from _replay(agent, message, key, idempotency_window)
        if replayed is not None:
            return replayed, []
    if message.refusal is not None:
        raise message.refusal
    answer, answers = None, False
    if message.new:
        yield from _check_tasks(agent, message)
        header = yield from _create(agent, message, queue_limit)
        if message.push is not None:
            yield from webhooks.put(agent, header.id, header.owner, message.push, message.push_limit)
        events: list[TaskEvent] = []
    else:
        # Its run may be about to end, and then has to see the message or be over.
        header = yield from find_locked(agent, message.task_id, message.owner)
        check_message(header, message.context_id, only_waiting=message.only_waiting, pause=message.pause)
        answer, answers = (yield from pauses.check(agent, header, message)), header.state in INTERRUPTED
        unread = queue_limit if message.unread_limit is None else message.unread_limit
        yield from _check_waiting(agent, header, unread)
        if message.push is not None:  # gets the event that follows
            yield from webhooks.put(agent, header.id, header.owner, message.push, message.push_limit)
        if answer is not None and answer.rest is not None:
            events = yield from pauses.ask_for_rest(agent, header, answer, message.at)
        else:
            if answers:
                yield from _check_tasks(agent, message)
            header, events = yield from _continue(agent, header, message.at)
        yield (
            f'UPDATE task SET watched_until = CASE WHEN watched_until < ? THEN ? ELSE watched_until END WHERE {TASK}',
            (message.watched_until, message.watched_until, agent, header.id),
        )
    body = stored.with_ids(message.body, header.id, header.context_id)
    after = header.last_event
    rows = yield f'{ADD_ITEM} RETURNING seq', (agent, header.id, 'message', message.message_id, body)
    kind = (2 if message.answers_calls else 1) if answers else 0
    request = None if message.new else message.request or b''  # the first message's is the task's
    rows = yield (
        'INSERT INTO inbox (agent, owner, replay_key, digest, task_id, item, after_event, accepted_at, answer, request)'
        ' VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING seq',
        (agent, message.owner, key, message.digest, header.id, rows[0][0], after, message.at, kind, request),
    )
    if answers and header.queued:
        yield from pauses.go_on(agent, header.id, answer, rows[0][0])
    return Accepted(header, after, replayed=False), events


def _replay_key(message: Submission) -> str | None:
    """Return the key for recognising a repeated message; None if repetitions are not recognised."""
    if not message.anonymous:
        return message.message_id
    # The id of a task is known to its client only, so a short message id with it cannot be another client's.
    if message.new and len(message.message_id) < REPLAYABLE_ANONYMOUS_ID:
        return None
    return f'{message.message_id} {message.digest.hex()}'  # another content is another message


def _replay(agent: str, message: Submission, key: str, window: int) -> Transaction[Accepted | None]:
    rows = yield (
        'SELECT seq, digest, task_id, after_event, accepted_at FROM inbox'
        ' WHERE agent = ? AND owner = ? AND replay_key = ?',
        (agent, message.owner, key),
    )
    if not rows:
        return None
    seq, digest, task_id, after, accepted_at = rows[0]
    if bytes(digest) != message.digest:
        raise InvalidParamsError.of('message.messageId', 'was used before for a message with another content')
    if message.anonymous and message.new and accepted_at < message.at - window:
        yield 'UPDATE inbox SET replay_key = NULL WHERE seq = ?', (seq,)
        return None
    header = yield from find(agent, task_id, message.owner)
    return Accepted(header, after, replayed=True)


def _create(agent: str, message: Submission, queue_limit: int) -> Transaction[TaskHeader]:
    assert message.context_id is not None
    yield lock_rounds(agent, message.owner)
    rows = yield (
        'INSERT INTO task (agent, id, owner, context_id, state, status_at, queue_seq, request,'
        " traceparent, dialect, watched_until, queued, behind, round) SELECT ?, ?, ?, ?, 'submitted', ?,"
        ' (SELECT COALESCE(MAX(queue_seq), 0) + 1 FROM task WHERE agent = ?), ?, ?, ?, ?, 1,'
        f' {BEHIND}, {ROUND} WHERE (SELECT COUNT(*) FROM task WHERE agent = ? AND queued = 1) < ? RETURNING id',
        (
            agent,
            message.task_id,
            message.owner,
            message.context_id,
            message.at,
            agent,
            message.request,
            message.traceparent,
            message.dialect,
            message.watched_until,
            agent,
            message.owner,
            message.context_id,
            agent,
            agent,
            message.owner,
            agent,
            queue_limit,
        ),
    )
    if not rows:
        raise OverloadedError(headers={'Retry-After': '1'})
    return TaskHeader(
        id=message.task_id,
        context_id=message.context_id,
        owner=message.owner,
        state='submitted',
        status_at=message.at,
        status_message=None,
        metadata=None,
        last_event=0,
        dialect=message.dialect,
        queued=True,
    )


def _check_tasks(agent: str, message: Submission) -> Transaction[None]:
    """Refuse a new task above the owner's limit."""
    if message.task_limit is None:
        return
    yield Lock((agent, message.owner, 'tasks', ''))  # after all other locks, and whoever has it waits for none
    rows = yield (
        "SELECT COUNT(*) FROM task WHERE agent = ? AND owner = ? AND state IN ('submitted', 'working')",
        (agent, message.owner),
    )
    if rows[0][0] >= message.task_limit:
        raise QuotaExceededError.of('tasks', 1000)


def _check_waiting(agent: str, header: TaskHeader, limit: int) -> Transaction[None]:
    """Refuse a message to a task with too many unread messages: each unread message is one more run."""
    if header.state in INTERRUPTED:
        return  # all of them wait for this one
    rows = yield f'SELECT (SELECT COUNT(*) FROM inbox WHERE {UNREAD}) FROM task WHERE {TASK}', (agent, header.id)
    if rows[0][0] > limit:
        raise OverloadedError(headers={'Retry-After': '1'})


def _continue(agent: str, header: TaskHeader, at: int) -> Transaction[tuple[TaskHeader, list[TaskEvent]]]:
    """Queue an answered task; the state becomes `working`. Other tasks do not change."""
    if header.state not in INTERRUPTED:
        return header, []
    status = Status('working', at, None)
    event = status_event(header, status, header.last_event + 1)
    yield lock_rounds(agent, header.owner)
    rows = yield (  # before the status: another task of the context may be running
        'UPDATE task SET queued = 1, queue_seq = (SELECT MAX(queue_seq) + 1 FROM task WHERE agent = ?), run = run + 1,'
        f' behind = CASE WHEN {NEXT} IS NULL THEN 0 ELSE 1 END, round = {ROUND} WHERE {TASK} RETURNING push',
        (agent, agent, agent, header.owner, agent, header.id),
    )
    yield from set_status(agent, header, status)
    yield [add_events(agent, header.id, [event])]
    if rows[0][0]:
        yield from deliveries.enqueue(agent, header, rows[0][0], [event])
    moved = (yield BY_ID_AND_OWNER, (agent, header.id, None, None))[0]
    return header_of(moved), [event]


def cancel(
    agent: str, task_id: str, owner: str | None, *, at: int, force: bool
) -> Transaction[tuple[TaskHeader, list[TaskEvent]]]:
    """See `TaskQueue.cancel`; also gives the events to publish."""
    header = yield from find_locked(agent, task_id, owner)
    check_cancel(header)
    if not force:
        asked = yield (
            f'UPDATE task SET cancel_requested = 1 WHERE {TASK} AND holder IS NOT NULL RETURNING id',
            (agent, task_id),
        )
        if asked:
            return header, []
    status = Status('canceled', at, None)
    event = yield from end_unheld(agent, header, status)
    return (yield from find(agent, task_id, owner)), [event]
