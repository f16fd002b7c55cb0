"""The end of a run: the answer is stored, and the task ends, waits for its client, or goes on with the next message."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pydantic_ai.messages import ModelMessage
from pydantic_ai.usage import RunUsage

from ....errors import LeaseLost
from ....task_states import INTERRUPTED, TERMINAL
from ....types.stored_events import TaskEvent
from ....types.stored_tasks import TaskHeader
from ..conversation_turns import closed_turn
from ..model_messages import dump_messages
from ..ports import DEAD_LETTERS, Claim, Finish, HookCall
from ..ports.credentials import may_have_credentials
from ..run_usage import dump_usage, load_usage, plain_usage
from ..status_events import status_event
from . import claims, conversations, credentials, enqueued_deliveries, event_log, hook_calls, joined_items, quotas
from .checkpoints import drop_checkpoint
from .claims import RUN, RunRow, claim_of
from .event_log import add_events, keep_streamed
from .queue_order import NEXT, release_context
from .task_rows import HELD, TASK, UNREAD, add_items, header_of
from .transaction import Done, Transaction, Write, sql

_STANDING = sql(f"""
    SELECT
        status_message, own_usage,
        -- the next prompt after those that the run has read
        (SELECT MIN(seq) FROM item WHERE {UNREAD} AND seq > ?),
        {conversations.RECORD_OF_TASK},
        EXISTS (SELECT 1 FROM checkpoint k WHERE k.agent = task.agent AND k.task_id = task.id),
        push, logged_after, paid,
        -- the task of the context that is claimable next
        {NEXT}
    FROM task
    -- A run that goes on keeps the fence. The number of the run tells the end of the earlier run from this one.
    WHERE {HELD} AND run = ?
    /* FOR NO KEY UPDATE */
""")
_NEXT_RUN = sql(f"""
    UPDATE task SET
        run = run + 1, turn = turn + 1, tried = NULL,
        inbox_read = ?, status_message = NULL,
        -- A new turn has nothing of the last one.
        own_messages = NULL, own_usage = NULL, pending = NULL, context_head = NULL, answer = NULL,
        metadata = COALESCE(?, metadata)
    WHERE {TASK}
    RETURNING {RUN}
""")
_DROP_ARTIFACT = "DELETE FROM item WHERE agent = ? AND task_id = ? AND kind = 'artifact' AND id = ?"
_END = sql(f"""
    UPDATE task SET
        state = ?, status_at = ?, status_message = ?, metadata = ?, last_event = ?, stop_event = ?, failure = ?,
        inbox_read = ?, ending = ?,
        -- the turn, for the run that follows a pause
        own_messages = ?, own_usage = ?, pending = ?, context_head = ?, answer = NULL,
        -- the claim
        holder = NULL, lease_until = NULL, cancel_requested = 0
    WHERE {TASK}
""")
_END_DEAD = sql(f"""
    -- The turn of a dead letter stays as it is: a retry goes on with it.
    UPDATE task SET
        state = ?, status_at = ?, status_message = ?, metadata = ?, last_event = ?, stop_event = ?, failure = ?,
        inbox_read = ?, ending = ?,
        holder = NULL, lease_until = NULL, cancel_requested = 0
    WHERE {TASK}
""")
_NO_TURN: tuple[Any, ...] = (None, None, None, None)
_HANDS_ON = TERMINAL - {'canceled'}
"""States that do not end a task with unread messages."""


def finish(agent: str, claimed: Claim, end: Finish) -> Transaction[Done[Claim | None]]:
    """See `TaskQueue.finish`. The transaction has the lock of the context: no other task changes the conversation."""
    header, read = claimed.header, end.taken or claimed.inbox
    rows = yield _STANDING, (read, agent, header.id, claimed.fence, claimed.holder, claimed.run)
    if not rows:
        return (yield from _finished(agent, claimed, end))
    previous, own_usage, unread, record, checkpointed, push, logged_after, paid, following = rows[0]
    # A failure stores no usage, so it ends also a task whose stored usage cannot be read.
    usage = end.usage if own_usage is None or end.status.state == 'failed' else _of_turn(own_usage, end)
    writes: list[Write] = []
    if end.charges:
        writes += quotas.charged(agent, header.id, claimed.run, paid, end.charges)
    if checkpointed and end.failure not in DEAD_LETTERS:
        writes.append(drop_checkpoint(agent, header.id))
    goes_on = unread is not None and hands_on(end)
    if end.artifacts is None and end.status.state in TERMINAL:
        yield from keep_streamed(agent, header.id)
    elif end.artifacts is not None and claimed.run > 1:
        writes.append((_DROP_ARTIFACT, [(agent, header.id, artifact_id) for artifact_id, _ in end.artifacts]))
    events = [*end.events, *(handed_on(header, end) if goes_on else (end.final,))]
    items = items_of(previous, end, goes_on=goes_on)
    ends = not goes_on and end.status.state in TERMINAL
    # If the task continues, a worker whose commit got no answer reads the outcome from the log.
    log = events if goes_on or logged_after is not None else []
    writes += [add_items(agent, header.id, [] if ends else items), add_events(agent, header.id, log)]
    if end.status.state in ('completed', 'canceled'):
        messages: Sequence[ModelMessage] = [*(claimed.own_messages or ()), *end.messages]
        if end.status.state == 'canceled':
            messages = closed_turn(messages)
        run_id = f'{header.id}.{claimed.run}'
        writes += conversations.append(
            agent,
            header.owner,
            header.context_id,
            record,
            messages,
            rewritten=end.rewritten,
            read=claimed.head,
            run_id=run_id,
            usage=usage,
            at=end.status.at,
        )
    yield writes
    if not goes_on:
        writes.clear()  # a long answer is in the conversation, too: not held while the end is joined
        ending = joined_items.join_items(items) if ends else None
        yield _end(agent, claimed, end, usage, read, ending=ending, following=following)
    if push:
        yield from enqueued_deliveries.enqueue_deliveries(agent, header, push, events, end.artifacts)
    next_run = (yield from _next_run(agent, claimed, read, end.metadata)) if goes_on else None
    done = Done(next_run, [(header.id, events)], ready=following is not None and not goes_on)
    slot = None if goes_on else end.slot
    taken = None if slot is None else (yield from claims.take_next(agent, slot, claimed, at=end.status.at))
    return done if taken is None else and_begins(agent, done, *taken)


def and_begins(agent: str, done: Done[Claim | None], claim: Claim, begun: Sequence[TaskEvent]) -> Done[Claim | None]:
    """Return the result of an end that has also claimed the next queued task."""
    undo = partial(claims.unclaim, agent, [claim])
    return Done(claim, [*done.events, (claim.header.id, begun)], ready=done.ready, begins=[claim], undo=undo)


def _finished(agent: str, claimed: Claim, end: Finish) -> Transaction[Done[Claim | None]]:
    """Return the result of a stored finish, after a commit without an answer. LeaseLost for any other end."""
    rows = yield (
        f'SELECT last_event, {RUN} FROM task WHERE {TASK} AND fence = ?',
        (agent, claimed.header.id, claimed.fence),
    )
    for last_event, *columns in rows:
        task = RunRow(*columns)
        if hands_on(end) and (task.holder, task.run) == (claimed.holder, claimed.run + 1):  # under the same fence
            events = [*end.events, *handed_on(claimed.header, end)]
            first = [*end.events, end.final][0].n
            # The last payload identifies the end of a run.
            if (yield from event_log.events_after(agent, claimed.header.id, first - 1, len(events) + 1)) != events:
                break  # the run has ended in another way
            return Done(claim_of(header_of(task), task), [(task.id, events)])
        standing = task.run, task.state, task.status_at, last_event
        if standing == (claimed.run, end.status.state, end.status.at, end.final.n):
            yield claims.release_next(agent, claimed)
            return Done(None, [(task.id, [*end.events, end.final])], ready=True)
    raise LeaseLost


def items_of(previous: bytes | None, end: Finish, *, goes_on: bool) -> list[tuple[str, str, bytes]]:
    """Return the new items of a run; the previous status message moves into the history (§3.7)."""
    items = [] if previous is None else [('message', '', previous)]
    items += [('message', *message) for message in end.history]
    if goes_on and end.status.message is not None:
        items.append(('message', '', end.status.message))
    return items + [('artifact', *artifact) for artifact in end.artifacts or ()]


def _of_turn(own: bytes, end: Finish) -> RunUsage:
    """Return the usage of a turn: of this run and of the interrupted runs before it."""
    before = load_usage(own)
    return before if end.usage is None else before + plain_usage(end.usage)


def _end(
    agent: str,
    claimed: Claim,
    end: Finish,
    usage: RunUsage | None,
    read: int,
    *,
    ending: bytes | None,
    following: str | None,
) -> list[Write]:
    """Write the status and release the task. An interrupted task and a dead letter keep the turn."""
    values = (
        *end.status,
        end.metadata if end.metadata is not None else claimed.header.metadata,
        end.final.n,
        end.final.n,
        end.failure,
        # A retry goes on from the checkpoint, or begins anew.
        claimed.inbox if end.status.state == 'failed' else read,
        ending,
    )
    if end.failure in DEAD_LETTERS:
        write = _END_DEAD, [(*values, agent, claimed.header.id)]
    else:
        turn = _turn(claimed, end, usage) if end.status.state in INTERRUPTED else _NO_TURN
        write = _END, [(*values, *turn, agent, claimed.header.id)]
    writes: list[Write] = [write]
    # The request of a damaged claim cannot be read: the task may have credentials.
    may_have = claimed.damage is not None or (claimed.request is not None and may_have_credentials(claimed.request))
    if may_have and end.status.state in TERMINAL:
        writes.append(credentials.drop_credentials(agent, claimed.header.id))
    if end.hook_lease is not None:
        writes.append(hook_calls.add(agent, HookCall(claimed.header.id, claimed.run), end.hook_lease))
    if following is not None:
        writes.append(release_context(agent, claimed.header.owner, following))
    return writes


def _turn(claimed: Claim, end: Finish, usage: RunUsage | None) -> tuple[Any, ...]:
    """Return the turn of a resumed task: messages, usage, pending calls, context head."""
    own = [*(claimed.own_messages or ()), *end.messages]
    used = None if usage is None else dump_usage(usage)
    return dump_messages(own), used, end.pending, claimed.head


def _next_run(agent: str, claimed: Claim, read: int, metadata: bytes | None) -> Transaction[Claim]:
    """Begin the next run of a task that goes on with its next prompt, under the same holder and fence."""
    [columns] = yield _NEXT_RUN, (read, metadata, agent, claimed.header.id)
    row = RunRow(*columns)
    return claim_of(header_of(row), row)


def hands_on(end: Finish) -> bool:
    """Return True if the task goes on with its unread messages after this end of a run."""
    return end.status.state in _HANDS_ON and not end.last and end.failure not in DEAD_LETTERS


def handed_on(header: TaskHeader, end: Finish) -> list[TaskEvent]:
    """Return the events for the end of a run whose task goes on: the reason of a failure, else none."""
    if end.status.message is None:
        return []
    return [status_event(header, end.status._replace(state='working'), end.final.n)]
