"""A message of a client is accepted: as a new task, or as the next message of a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from time import time_ns
from typing import Any, TypeAlias

from ....errors import InvalidParamsError, OverloadedError, QuotaExceededError
from ....task_states import INTERRUPTED, check_message
from ....types.stored_events import TaskEvent
from ....types.stored_tasks import TaskHeader
from ....wire.extensions.own_extensions import SHORTEST_ID
from ....wire.protocol import stored
from ..ports import Accepted, Claim, Slot, Status, Submission
from ..status_events import status_event
from . import claims, credentials, enqueued_deliveries, push_configs, task_ranges, waiting_tasks
from .conversations import HEAD_OF_TASK
from .erasure_marks import check_erasing
from .event_log import add_events, log_from_now
from .peers import read_by
from .queue_order import BEHIND, NEXT, OFFERED, QUEUE_SEQ, ROUND, lock_rounds
from .queue_pause import PAUSED
from .task_rows import NEXT_ITEM, TASK, UNREAD, find, find_locked, message_to_history
from .transaction import Done, LockName, LockTasks, Transaction, Write, sql

_REPLAYED = sql("""
    SELECT digest, id, 0 AS after_event, accepted_at FROM task
    WHERE agent = ? AND owner = ? AND replay_key = ?
    UNION ALL SELECT digest, task_id, after_event, accepted_at FROM item
    WHERE agent = ? AND owner = ? AND replay_key = ?
""")
_FORGET = [
    f'UPDATE {table} SET replay_key = NULL WHERE agent = ? AND owner = ? AND replay_key = ?'
    for table in ('task', 'item')
]
_UNREAD = sql(f"""
    SELECT
        (SELECT COUNT(*) FROM item WHERE {UNREAD})
        -- The first message has no row in `item`.
        + CASE WHEN inbox_read = 0 THEN 1 ELSE 0 END
    FROM task WHERE {TASK}
""")
_START = sql(f"""
    -- The task is stored as claimed for the first time: see `claims`.
    INSERT INTO task (
        agent, id, owner, context_id, dialect, traceparent, status_at, accepted_at, request, logged_after, replay_key,
        digest, message, queue_seq,
        holder, lease_until, state, last_event, fence, attempt, run
    )
    SELECT
        ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
        ?, ?, ?,
        ?, a2a_clock() + ?, 'working', 1, 1, 1, 1
    -- unless the same message was sent to a task before,
    WHERE NOT EXISTS (SELECT 1 FROM item WHERE agent = ? AND owner = ? AND replay_key = ?)
        -- another task waits for a worker, and goes first,
        AND NOT EXISTS (SELECT 1 FROM task WHERE agent = ? AND queued = 1 AND behind = 0)
        -- an operator has paused the queue, or data of the owner is being erased
        AND NOT EXISTS ({PAUSED} ?)
        AND NOT EXISTS (SELECT 1 FROM erasure WHERE agent = ? AND owner = ?)
    -- Unique indexes find the rest: the same message began a task, or a task of the context runs.
    ON CONFLICT DO NOTHING
    RETURNING {HEAD_OF_TASK}
""")
_QUEUE = sql(f"""
    INSERT INTO task (
        agent, id, owner, context_id, dialect, traceparent, status_at, accepted_at, request, logged_after, replay_key,
        digest, message, queue_seq,
        state, queued, behind, round
    )
    SELECT
        ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
        ?, ?, {QUEUE_SEQ},
        'submitted', ?, {BEHIND}, {ROUND}
""")
_QUEUE_ANSWERED = sql(f"""
    -- One statement, because another task of the context may be running: until it is `behind`, the answered task must
    -- not be claimable.
    UPDATE task SET
        state = 'working', status_at = ?, filed = 0,
        -- the next run, in the same turn
        run = run + 1, tried = NULL,
        queued = 1,
        queue_seq = {QUEUE_SEQ},
        behind = CASE WHEN {NEXT} IS NULL THEN 0 ELSE 1 END,
        round = {ROUND}
    WHERE {TASK}
    RETURNING push
""")
_ADD_MESSAGE = sql(f"""
    INSERT INTO item (
        agent, task_id, kind, seq, id, body,
        owner, replay_key, digest, after_event, accepted_at, answer, request
    )
    VALUES (?, ?, 'message', {NEXT_ITEM}, ?, ?, ?, ?, ?, ?, ?, ?, ?)
""")
Submitted: TypeAlias = tuple[Accepted, bool]
"""The outcome of a message, and true if its task begins to wait for a worker."""
_Stored: TypeAlias = tuple[Accepted, list[TaskEvent]]
"""The outcome of a message, and the events to publish."""


def begins_alone(message: Submission, slot: Slot | None) -> bool:
    """Return true if a message begins a task, and needs no further check and no webhook."""
    limited = message.task_limit is not None or (slot is not None and slot.owner_limit is not None)
    return message.new and message.refusal is None and message.push is None and not limited


def started(agent: str, message: Submission, slot: Slot, head: str | None) -> Done[Submitted]:
    """Return the result of a message whose task has begun to run at once, in a conversation with a newest entry."""
    header = message.header()
    event = status_event(header, Status('working', message.at, None), 1)
    claim = Claim(
        header=replace(header, state='working', last_event=1, queued=False),
        holder=slot.holder,
        fence=1,
        attempt=1,
        run=1,
        turn=1,
        inbox=1,
        message=stored.with_ids(message.body, header.id, header.context_id),
        head=head,
        own_messages=None,
        request=message.request or None,
        traceparent=message.traceparent,
    )
    undo = partial(claims.unclaim, agent, [claim])
    return Done((Accepted(header, 0, False, claim), False), [(header.id, [event])], begins=[claim], undo=undo)


def submitted(agent: str, accepted: Accepted, events: Sequence[TaskEvent], *, new: bool = True) -> Done[Submitted]:
    """Return the result of a message: the task runs here, waits for a worker, or goes on as before."""
    header, claim = accepted.header, accepted.claim
    if claim is not None:
        undo = partial(claims.unclaim, agent, [claim])
        return Done((accepted, False), [(header.id, events)], begins=[claim], undo=undo)
    # A message with events has answered a waiting task. A task that runs, or is queued, gets no events of a message.
    begins = accepted.waits and (new or bool(events))
    return Done((accepted, begins), [(header.id, events)], ready=accepted.waits)


def submit(
    agent: str,
    message: Submission,
    *,
    queue_limit: int,
    idempotency_window: int,
    slot: Slot | None = None,
    full: bool = False,
) -> Transaction[Done[Submitted]]:
    """See `TaskQueue.submit`. `full` refuses a new task.

    The transaction has the lock of the context of a new or answered task.
    """
    if slot is not None and begins_alone(message, slot) and not full:
        begun = yield from _start(agent, message, slot, replay_key(message, idempotency_window))
        if begun is not None:
            return begun
    accepted, events = yield from _store(
        agent, message, queue_limit, idempotency_window, offered=slot is not None, full=full
    )
    header = accepted.header
    if slot is not None and not accepted.replayed and header.queued and (message.new or events):
        taken = yield from claims.take(agent, slot, [header.id], at=message.at, alone=True)
        if taken:
            [(claimed, more)] = taken
            return submitted(agent, accepted._replace(claim=claimed), [*events, *more])
        yield f'UPDATE task SET queued = 1 WHERE {TASK} AND queued = {OFFERED}', (agent, header.id)
    if message.reader is not None and not accepted.replayed:
        yield [read_by(agent, header.id, message.reader)]
    return submitted(agent, accepted, events, new=message.new)


def _new_task(agent: str, message: Submission, key: str | None) -> tuple[Any, ...]:
    """Return the values of a new task, for `_START` and `_QUEUE`.

    The last value is the place of the task among those of other contexts.
    """
    assert message.context_id is not None
    return (
        agent,
        message.task_id,
        message.owner,
        message.context_id,
        message.dialect,
        message.traceparent,
        message.at,
        message.at,
        message.request,
        0 if message.logged else None,
        key,
        message.digest,
        stored.with_ids(message.body, message.task_id, message.context_id),
        time_ns(),
    )


def _start(agent: str, message: Submission, slot: Slot, key: str | None) -> Transaction[Done[Submitted] | None]:
    """Store the task of a new message as claimed; None if the message was sent before or another task goes first.

    One statement for the common case: a store, a claim and the search for an earlier message take three.
    """
    new, claim, owner = _new_task(agent, message, key), (slot.holder, slot.lease), message.owner
    rows = yield _START, (*new, *claim, agent, owner, key, agent, agent, agent, owner)
    if not rows:
        return None
    begun = started(agent, message, slot, rows[0][0])
    if message.logged:
        yield [add_events(agent, message.task_id, begun.events[0][1])]
    if message.credential is not None:
        yield [credentials.add_credential(agent, message.task_id, message.credential)]
    return begun


def _store(
    agent: str, message: Submission, queue_limit: int, idempotency_window: int, *, offered: bool, full: bool
) -> Transaction[_Stored]:
    """Store a message, which queues its task unless the task runs or is queued already.

    A new task that is `offered` is not in the indexes of the queue: the same transaction takes or queues the task.
    """
    key = replay_key(message, idempotency_window)
    replayed = yield from _replay(agent, message, key, idempotency_window)
    if replayed is not None:
        return replayed, []
    if message.refusal is not None:
        raise message.refusal
    answer, answers = message.answer, False
    if message.new:
        yield from _check_tasks(agent, message)
        if full:
            raise OverloadedError(headers={'Retry-After': '1'})
        header = yield from _create(agent, message, key, OFFERED if offered else 1)
    else:
        # Lock the task: a run that ends now either reads the message or ends before the message.
        if answer is not None:  # the context is locked already
            yield LockTasks(agent, [message.task_id])
        header = yield from (find_locked if answer is None else find)(agent, message.task_id, message.owner)
        check_message(header, message.context_id, only_waiting=message.only_waiting, pause=message.pause)
        yield from waiting_tasks.check_pause(agent, header, message)
        answers = header.state in INTERRUPTED
        if not answers:  # in a paused task, the unread messages wait for this answer
            yield from _check_unread(agent, message, queue_limit)
    yield from check_erasing(agent, header.owner, header.context_id, at=message.at)
    if message.push is not None:  # before the event, which the webhook must get
        yield from push_configs.put_config(agent, header.id, header.owner, message.push, message.push_limit)
    if message.credential is not None:
        yield [credentials.add_credential(agent, header.id, message.credential)]
    if message.new:
        return Accepted(header, 0, replayed=False), []
    return (yield from _add(agent, message, header, key, answers=answers))


def _add(
    agent: str, message: Submission, header: TaskHeader, key: str | None, *, answers: bool
) -> Transaction[_Stored]:
    """Add a message to a task; a message that `answers` lets the task go on."""
    answer = message.answer
    events: list[TaskEvent] = []
    first, last = list[Write](), list[Write]()
    if answer is not None and answer.rest is not None:
        events = yield from waiting_tasks.ask_for_rest(agent, header, answer, message.at)
    elif answers:
        yield from _check_tasks(agent, message)
        header, events = yield from _continue(agent, header, message.at)
        first = [message_to_history(agent, header.id)]
        last = [add_events(agent, header.id, events), waiting_tasks.go_on(agent, message)]
    body = stored.with_ids(message.body, header.id, header.context_id)
    after = header.last_event
    kind = 1 + message.answers_calls if answers else 0
    place = (agent, header.id, agent, header.id, 'message', message.message_id)
    row = (*place, body, message.owner, key, message.digest, after, message.at, kind, message.request or b'')
    if message.logged:
        last.append(log_from_now(agent, header.id))
    yield [*first, (_ADD_MESSAGE, [row]), *last]
    return Accepted(header, after, replayed=False), events


def _replay(agent: str, message: Submission, key: str | None, window: int) -> Transaction[Accepted | None]:
    if key is None:
        return None
    rows = yield _REPLAYED, (agent, message.owner, key) * 2
    if not rows:
        return None
    digest, task_id, after, accepted_at = rows[0]
    if bytes(digest) != message.digest:
        raise InvalidParamsError.of(
            'message.messageId', 'was already used for a message with different content: send a new messageId'
        )
    if message.anonymous and message.new and accepted_at < message.at - window:
        yield [(statement, [(agent, message.owner, key)]) for statement in _FORGET]
        return None
    header = yield from find(agent, task_id, message.owner)
    return Accepted(header, after, replayed=True)


def _create(agent: str, message: Submission, key: str | None, queued: int) -> Transaction[TaskHeader]:
    context = agent, message.owner, message.context_id
    yield lock_rounds(agent, message.owner)
    yield _QUEUE, (*_new_task(agent, message, key), *context, queued, *context, agent, agent, message.owner)
    return message.header()


def _check_tasks(agent: str, message: Submission) -> Transaction[None]:
    """Refuse a new task above the owner's limit."""
    if message.task_limit is None:
        return
    yield LockName((agent, message.owner, 'tasks', ''))  # the last lock of a transaction, so no deadlock
    rows = yield task_ranges.number(task_ranges.LIVE_RANGES, 'agent = ? AND owner = ?', (agent, message.owner))
    if rows[0][0] >= message.task_limit:
        raise QuotaExceededError.of('tasks', 1000)


def _check_unread(agent: str, message: Submission, limit: int) -> Transaction[None]:
    """Refuse a message to a task with too many unread messages: each unread message is one more run."""
    rows = yield _UNREAD, (agent, message.task_id)
    if rows[0][0] > (limit if message.unread_limit is None else message.unread_limit):
        raise OverloadedError(headers={'Retry-After': '1'})


def _continue(agent: str, header: TaskHeader, at: int) -> Transaction[tuple[TaskHeader, list[TaskEvent]]]:
    """Queue an answered task; the state becomes `working`."""
    event = status_event(header, Status('working', at, None), header.last_event + 1)
    yield lock_rounds(agent, header.owner)
    rows = yield (
        _QUEUE_ANSWERED,
        (at, time_ns(), agent, header.owner, header.context_id, agent, agent, header.owner, agent, header.id),
    )
    if rows[0][0]:
        yield from enqueued_deliveries.enqueue_deliveries(agent, header, rows[0][0], [event])
    moved = replace(header, state='working', status_at=at, status_message=None, last_event=event.n, queued=True)
    return moved, [event]


def replay_key(message: Submission, window: int) -> str | None:
    """Return the key for recognising a repeated message; None if repetitions are not recognised."""
    # Anonymous clients may share short message ids for new tasks. Only the task's own client knows a task id.
    if window <= 0 or (message.anonymous and message.new and len(message.message_id) < SHORTEST_ID):
        return None
    if not message.anonymous:
        return message.message_id
    return f'{message.message_id} {message.digest.hex()}'  # different content makes a different message
