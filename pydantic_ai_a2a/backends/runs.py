"""The holder's side of the state machine: claim, renew, emit, finish, release. Pure, like `sql`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..errors import LeaseLost
from ..lifecycle import INTERRUPTED
from ..ports import Claim, Finish, Marks, Status
from ..types import TaskEvent, TaskHeader
from . import conversations
from .sql import (
    HEADER,
    HEADER_SIZE,
    HELD,
    TASK,
    UNREAD,
    Transaction,
    add_events,
    add_item,
    header_of,
    message_to_history,
    set_status,
    status_event,
)

__all__ = ('claim', 'emit', 'finish', 'release', 'renew')

_FIRST_OF_ITS_CONTEXT = (
    'NOT EXISTS (SELECT 1 FROM task e WHERE e.agent = task.agent AND e.owner = task.owner'
    " AND e.context_id = task.context_id AND e.state IN ('submitted', 'working') AND e.queue_seq < task.queue_seq)"
)
_CANDIDATE = 'SELECT id, holder, state, attempt FROM task WHERE agent = ?'
_CLAIM_ONE = (
    f"{_CANDIDATE} AND id = ? AND (state = 'submitted' OR state = 'working' AND holder IS NULL)"
    f' AND {_FIRST_OF_ITS_CONTEXT}'
)
_CLAIM_QUEUED = f"{_CANDIDATE} AND state = 'submitted' AND {_FIRST_OF_ITS_CONTEXT} ORDER BY queue_seq LIMIT ?"
_CLAIM_LOST = (
    f"{_CANDIDATE} AND state = 'working' AND (holder IS NULL OR holder <> ? AND lease_until < ?)"
    ' ORDER BY queue_seq LIMIT ?'
)
_RUN = (
    'run, request, traceparent, own_messages, context_head,'
    ' (SELECT head_id FROM conversation c WHERE c.agent = task.agent AND c.owner = task.owner'
    ' AND c.id = task.context_id),'
    f' (SELECT MIN(seq) FROM inbox WHERE {UNREAD}),'
    f' (SELECT body FROM item JOIN inbox ON inbox.item = item.seq WHERE {UNREAD} ORDER BY inbox.seq LIMIT 1)'
)
_TAKE = (
    "UPDATE task SET state = 'working', status_at = ?, holder = ?, lease_until = ?, fence = fence + 1,"
    f' attempt = attempt + ?, run = CASE run WHEN 0 THEN 1 ELSE run END WHERE {TASK}'
    f' RETURNING {HEADER}, fence, attempt, {_RUN}'
)


def claim(
    agent: str, holder: str, *, at: int, until: int, limit: int, task_id: str | None
) -> Transaction[list[tuple[Claim, list[TaskEvent]]]]:
    """See `TaskQueue.claim`; also gives the events to publish, per task."""
    if task_id is not None:
        rows = yield _CLAIM_ONE, (agent, task_id)
    else:
        rows = yield _CLAIM_LOST, (agent, holder, at, limit)
        if len(rows) < limit:
            rows += yield _CLAIM_QUEUED, (agent, limit - len(rows))
    claims: list[tuple[Claim, list[TaskEvent]]] = []
    for found, lost_holder, state, attempt in rows:
        one_more = 1 if lost_holder is not None or attempt == 0 else 0
        row = (yield _TAKE, (at, holder, until, one_more, agent, found))[0]
        header, fence, attempts = header_of(row), *row[HEADER_SIZE : HEADER_SIZE + 2]
        events: list[TaskEvent] = []
        if state == 'submitted':
            events = [status_event(header, Status('working', at, None), header.last_event + 1)]
            yield from add_events(agent, found, events)
            header = replace(header, last_event=header.last_event + 1)
        claims.append((_claim_of(header, row[HEADER_SIZE + 2 :], holder, fence, attempts), events))
    return claims


def _claim_of(header: TaskHeader, run_row: Sequence[Any], holder: str, fence: int, attempt: int) -> Claim:
    """The claim that a `_RUN` row holds. An interrupted task goes on from where the context was then."""
    run, request, traceparent, own_messages, head_then, head_now, inbox, message = run_row
    return Claim(
        header=header,
        holder=holder,
        fence=fence,
        attempt=attempt,
        run=run,
        inbox=inbox,
        message=message,
        head=head_now if own_messages is None else head_then,
        own_messages=None if own_messages is None else conversations.load_messages(own_messages),
        request=request,
        traceparent=traceparent,
    )


def renew(agent: str, holder: str, tasks: Sequence[str], *, until: int) -> Transaction[Marks]:
    """See `TaskQueue.renew`."""
    lost: list[str] = []
    canceled: list[str] = []
    for task_id in tasks:
        rows = yield (
            f"UPDATE task SET lease_until = ? WHERE {TASK} AND holder = ? AND state = 'working'"
            ' RETURNING cancel_requested',
            (until, agent, task_id, holder),
        )
        if not rows:
            lost.append(task_id)
        elif rows[0][0]:
            canceled.append(task_id)
    return Marks(lost, canceled)


def emit(agent: str, claimed: Claim, events: Sequence[TaskEvent], status: Status | None) -> Transaction[None]:
    """See `TaskQueue.emit`."""
    header = claimed.header
    for event in events:
        rows = yield (
            'INSERT INTO event (agent, task_id, n, state, payload) SELECT agent, id, ?, ?, ? FROM task'
            f' WHERE {HELD} RETURNING n',
            (event.n, event.state, event.payload, agent, header.id, claimed.fence, claimed.holder),
        )
        if not rows:
            raise LeaseLost
    if status is not None:
        yield from set_status(agent, header, status)


def finish(agent: str, claimed: Claim, end: Finish) -> Transaction[tuple[Claim | None, list[TaskEvent]]]:
    """See `TaskQueue.finish`; also gives the events to publish."""
    header = claimed.header
    rows = yield (
        f'SELECT (SELECT MIN(seq) FROM inbox WHERE {UNREAD} AND seq <> ?) FROM task WHERE {HELD}',
        (claimed.inbox, agent, header.id, claimed.fence, claimed.holder),
    )
    if not rows:
        raise LeaseLost
    unread = rows[0][0] if end.status.state == 'completed' else None
    yield 'UPDATE inbox SET unread = 0 WHERE seq = ?', (claimed.inbox,)
    yield from message_to_history(agent, header.id)
    yield from _store_results(agent, header.id, end)
    events = [*end.events] if unread is not None else [*end.events, end.final]
    yield from add_events(agent, header.id, events)
    own = yield from _store_messages(agent, claimed, end)
    if unread is not None:
        return (yield from _next_run(agent, claimed)), events
    yield (
        'UPDATE task SET state = ?, status_at = ?, status_message = ?, metadata = ?, last_event = ?, failure = ?,'
        ' own_messages = ?, context_head = ?, holder = NULL, lease_until = NULL, cancel_requested = 0'
        f' WHERE {TASK}',
        (
            *end.status,
            end.metadata if end.metadata is not None else header.metadata,
            end.final.n,
            end.failure,
            own,
            claimed.head if own is not None else None,
            agent,
            header.id,
        ),
    )
    return None, events


def _store_results(agent: str, task_id: str, end: Finish) -> Transaction[None]:
    for item_id, body in end.history:
        yield from add_item(agent, task_id, 'message', item_id, body)
    if end.artifacts is None:
        return
    yield "DELETE FROM item WHERE agent = ? AND task_id = ? AND kind = 'artifact'", (agent, task_id)
    for item_id, body in end.artifacts:
        yield from add_item(agent, task_id, 'artifact', item_id, body)


def _store_messages(agent: str, claimed: Claim, end: Finish) -> Transaction[bytes | None]:
    """Append the task's model messages to its context; those of an interrupted task are kept with it instead."""
    if end.status.state in INTERRUPTED:
        return conversations.dump_messages([*(claimed.own_messages or ()), *end.messages])
    if end.status.state in ('completed', 'canceled'):
        header = claimed.header
        messages = [*(claimed.own_messages or ()), *end.messages]
        yield from conversations.append(
            agent, header.owner, header.context_id, messages, usage=end.usage, at=end.status.at
        )
    return None


def _next_run(agent: str, claimed: Claim) -> Transaction[Claim]:
    row = yield (
        'UPDATE task SET run = run + 1, status_message = NULL, own_messages = NULL, context_head = NULL'
        f' WHERE {TASK} RETURNING {HEADER}, {_RUN}',
        (agent, claimed.header.id),
    )
    header = header_of(row[0])
    return _claim_of(header, row[0][HEADER_SIZE:], claimed.holder, claimed.fence, claimed.attempt)


def release(agent: str, claimed: Claim) -> Transaction[None]:
    """See `TaskQueue.release`."""
    yield (
        f'UPDATE task SET holder = NULL, lease_until = NULL WHERE {HELD}',
        (agent, claimed.header.id, claimed.fence, claimed.holder),
    )
