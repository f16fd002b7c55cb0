"""The worker's side of the state machine: claim, renew, emit, finish, release."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import Any, TypeAlias

from pydantic_ai.messages import ModelMessage
from pydantic_ai.usage import RunUsage

from ...conversion import stream
from ...errors import AnswerNeeded, InvalidParamsError, LeaseLost
from ...protocol import stored
from ...types import INTERRUPTED, STOPPED, TERMINAL, TaskEvent, TaskHeader
from ..model_messages import dump_message, dump_messages, dump_tried, load_message_rows, load_messages, load_tried
from ..ports import DEAD_LETTERS, Answer, Charge, Checkpoint, Claim, Finish, Marks, Slot, Status, Submission
from ..ports.credentials import may_have_credentials
from ..ports.queue import Tried
from ..run_usage import dump_usage, load_usage, plain_usage
from ..status_events import handed_on, hands_on, status_event
from . import conversations, quotas, ranges, reads, task_rows
from .queue_order import NEXT, PAUSED, QUEUED, QUEUED_OR_OFFERED, release_context
from .task_rows import (
    FIRST_UNREAD,
    HEADER,
    HEADER_SIZE,
    HELD,
    IS_DUE,
    MESSAGE_OF_TASK,
    OF_TASK,
    TASK,
    UNREAD,
    add_events,
    add_items,
    drop_checkpoint,
    header_of,
    keep_streamed,
    set_status,
)
from .transaction import KEYS, LockName, LockTasks, Rows, Transaction, TryNames, Write, among

_LOST = "state = 'working' AND queued = 0 AND (holder IS NULL OR holder <> ? AND lease_until < a2a_clock())"
_RELEASED = "state = 'working' AND queued = 0 AND holder IS NULL"

# The query skips a locked task. The locked task is still the first of its context, so later tasks of the context are
# not found.
_FIND_QUEUED = (
    f'SELECT id FROM task WHERE agent = ? AND NOT EXISTS ({PAUSED} ?) AND {QUEUED}'
    ' ORDER BY round, queue_seq LIMIT ?'
    ' /* FOR NO KEY UPDATE SKIP LOCKED */'
)
_WITH_HOLDER = "state = 'working' AND queued = 0 AND holder IS NOT NULL"
_COUNT_RUNNING = f'SELECT COUNT(*) FROM task WHERE agent = ? AND owner = ? AND {_WITH_HOLDER}'
_FIND_OF_OWNERS = (  # one look-up in an index for each owner, for any number of tasks of an owner
    'WITH RECURSIVE owners (owner) AS (SELECT MIN(owner) FROM task WHERE agent = ? AND queued = 1 UNION ALL'
    ' SELECT (SELECT MIN(q.owner) FROM task q WHERE q.agent = ? AND q.queued = 1 AND q.owner > owners.owner)'
    ' FROM owners WHERE owner IS NOT NULL)'
    f' SELECT id FROM task WHERE agent = ? AND NOT EXISTS ({PAUSED} ?) AND {QUEUED} AND id IN (SELECT'
    ' (SELECT q.id FROM task q WHERE q.agent = ? AND q.owner = owners.owner AND q.queued = 1 AND q.behind = 0'
    ' ORDER BY q.round LIMIT 1) FROM owners WHERE'
    f' (SELECT COUNT(*) FROM task r WHERE r.agent = ? AND r.owner = owners.owner AND {_WITH_HOLDER}) < ?)'
    ' ORDER BY round, queue_seq LIMIT ? /* FOR NO KEY UPDATE SKIP LOCKED */'
)
"""The first claimable task of each owner below the limit of running tasks."""
_FIND_LOST, _FIND_RELEASED = (
    'SELECT id, holder IS NULL AND lease_until IS NOT NULL AS tried FROM task'
    f' WHERE agent = ? AND NOT EXISTS ({PAUSED} ?) AND {of} AND {IS_DUE}'
    ' ORDER BY 2, queue_seq LIMIT ? /* FOR NO KEY UPDATE SKIP LOCKED */'
    for of in (_LOST, _RELEASED)
)
_RENEWED = 500
"""The most leases in one statement: SQLite takes at least 999 values."""
_MESSAGE = f'{MESSAGE_OF_TASK} AND item.seq = COALESCE(task.answer, {FIRST_UNREAD})'
_RUN = (
    'run, turn, tried,'
    f' COALESCE((SELECT item.request FROM item WHERE {_MESSAGE}), request), traceparent, own_messages, pending,'
    f' context_head, {conversations.HEAD_OF_TASK}, answer, inbox_read, {FIRST_UNREAD},'
    f' COALESCE((SELECT body FROM item WHERE {_MESSAGE}), message)'
)
_SET_TAKEN = (
    # An answered task is `working` since its answer.
    "UPDATE task SET state = 'working', status_at = CASE state WHEN 'working' THEN status_at ELSE ? END,"
    ' queued = 0, holder = ?, lease_until = a2a_clock() + ?, fence = fence + 1,'
    " last_event = CASE state WHEN 'submitted' THEN 1 ELSE last_event END,"
    ' attempt = attempt + CASE WHEN holder IS NOT NULL OR attempt = 0 THEN 1 ELSE 0 END,'
    ' run = CASE run WHEN 0 THEN 1 ELSE run END WHERE agent = ? AND {ids} AND'
    f' ({QUEUED_OR_OFFERED} OR {_LOST}) AND NOT EXISTS ({PAUSED} task.agent)'
)
_MANY = f'id IN ({", ".join("?" * KEYS)})'

KEPT_CHECKPOINTS = 'EXISTS (SELECT 1 FROM checkpoint k WHERE k.agent = task.agent AND k.task_id = task.id)'
"""SQL expression: true if the row's task has a checkpoint."""

_WANTED = '(SELECT MAX(wants) FROM reader r WHERE r.agent = task.agent AND r.task_id = task.id)'
_TAKEN = f' RETURNING {HEADER}, push, logged_after, fence, attempt, {KEPT_CHECKPOINTS}, {_WANTED}, {_RUN}'
_TAKE, _TAKE_MANY = (_SET_TAKEN.replace('{ids}', ids) + _TAKEN for ids in ('id = ?', _MANY))
_TAKE_ALONE = _TAKE.replace(
    _TAKEN,
    ' AND NOT EXISTS (SELECT 1 FROM task q WHERE q.agent = ? AND q.queued = 1 AND q.behind = 0'
    f' AND q.id <> task.id){_TAKEN}',
)


Claimed: TypeAlias = list[tuple[Claim, list[TaskEvent]]]
"""Claims, each with the events to publish."""


def claim(
    agent: str,
    slot: Slot,
    *,
    at: int,
    limit: int,
    task_id: str | None = None,
    skip: Collection[str] = (),
    lost: bool = True,
) -> Transaction[Claimed]:
    """See `TaskQueue.claim`.

    The claim locks the tasks first: a lost holder may be storing an event, and the claim must read the event's number.
    Tasks with a lock of another transaction are left to a later claim.
    """
    if task_id is not None:
        locked = task_id in skip or (yield LockTasks(agent, [task_id], wait=False))
        return [] if locked else (yield from take(agent, slot, [task_id], at=at))
    rows = yield from _claimable(agent, slot.holder, limit + len(skip), lost=lost)
    claims = yield from take(agent, slot, [row[0] for row in rows if row[0] not in skip][:limit], at=at)
    more = slot.owner_limit is not None
    while more and len(claims) < limit:  # the first tasks of the queue may be of owners at their limit
        rows = yield _FIND_OF_OWNERS, (*[agent] * 6, slot.owner_limit, limit - len(claims))
        more = yield from take(agent, slot, [row[0] for row in rows if row[0] not in skip], at=at)
        claims += more
    return claims


def take(agent: str, slot: Slot, task_ids: Sequence[str], *, at: int, alone: bool = False) -> Transaction[Claimed]:
    """Claim tasks that this transaction has locked, if they are claimable; `alone`: and no other queued task is.

    Return the claims in the order of the ids.
    """
    if slot.owner_limit is not None:
        task_ids = yield from _with_places(agent, task_ids, slot.owner_limit)
    rows: dict[str, Sequence[Any]] = {}
    for start in range(0, len(task_ids), KEYS):
        some = task_ids[start : start + KEYS]
        padded = some if len(some) == 1 else [*some, *[some[-1]] * (KEYS - len(some))]
        statement = _TAKE_ALONE if alone else _TAKE if len(some) == 1 else _TAKE_MANY  # none for each number
        values = (at, slot.holder, slot.lease, agent, *padded, slot.holder, *[agent] * alone)
        rows |= {row[0]: row for row in (yield statement, values)}
    return (yield from _claims_of(agent, slot.holder, [rows[task_id] for task_id in task_ids if task_id in rows], at))


def _claims_of(agent: str, holder: str, rows: Sequence[Sequence[Any]], at: int) -> Transaction[Claimed]:
    """Return the claims of `_TAKEN` rows, and store what begins with a claim."""
    claims: Claimed = []
    logged: list[tuple[Any, ...]] = []
    for row in rows:
        push, logged_after, fence, attempt, checkpointed, wanted, *run_row = row[HEADER_SIZE:]
        header = header_of(row)
        # A submitted task was never claimed, and has no event before.
        events = [status_event(header, Status('working', at, None), 1)] if fence == 1 else []
        if logged_after is not None:
            logged += add_events(agent, header.id, events)[1]
        if push:
            yield from task_rows.enqueue_deliveries(agent, header, push, events)
        checkpoint = (yield from load_checkpoint(agent, header.id)) if checkpointed else None
        claimed = _claim_of(
            header, run_row, holder, fence, attempt, checkpoint=checkpoint, push=bool(push), wanted=wanted
        )
        claims.append((claimed, events))
    if logged:
        yield [(task_rows.ADD_EVENT, logged)]
    return claims


def _with_places(agent: str, task_ids: Sequence[str], limit: int) -> Transaction[list[str]]:
    """Return the tasks whose owners may run them. Keeps out other claims of these owners until the commit.

    A task with an expired lease has its place.
    """
    owners: dict[str, str] = {}
    for start in range(0, len(task_ids), KEYS):
        found, values = among('id', [(task_id,) for task_id in task_ids[start : start + KEYS]])
        rows = yield f'SELECT id, owner FROM task WHERE agent = ? AND holder IS NULL AND {found}', (agent, *values)
        owners |= dict(rows)
    others = yield TryNames([(agent, owner, 'running', '') for owner in {*owners.values()}])
    running = {name[1]: limit for (name,) in others}
    for owner in {*owners.values()} - running.keys():
        [(running[owner],)] = yield _COUNT_RUNNING, (agent, owner)
    placed: list[str] = []
    for task_id in task_ids:
        if (owner := owners.get(task_id)) is not None:
            running[owner] += 1
        if owner is None or running[owner] <= limit:
            placed.append(task_id)
    return placed


def _claimable(agent: str, holder: str, limit: int, *, lost: bool) -> Transaction[Rows]:
    rows = yield (_FIND_LOST, (agent, agent, holder, limit)) if lost else (_FIND_RELEASED, (agent, agent, limit))
    first = [row for row in rows if not row[1]]
    tries = rows[len(first) :]
    queued = (yield _FIND_QUEUED, (agent, agent, limit - len(first))) if len(first) < limit else []
    if not (tries and queued):
        return rows + queued
    # One after the other, so that neither a model that is down nor a long queue keeps out the other tasks. The random
    # part decides about the last slot, and needs no secure random numbers.
    turns = zip_longest(*random.sample((tries, queued), 2))  # nosec B311
    return [*first, *(row for turn in turns for row in turn if row is not None)]


def _claim_of(
    header: TaskHeader, run_row: Sequence[Any], holder: str, fence: int, attempt: int, **others: Any
) -> Claim:
    """Return the claim of a `_RUN` row, with other fields of the claim.

    An interrupted task continues from the context head at its pause.
    """
    run, turn, tried, request, traceparent, own_messages, pending, *rest = run_row
    head_then, head_now, answer, read, unread, message = rest
    return Claim(
        header=header,
        holder=holder,
        fence=fence,
        attempt=attempt,
        run=run,
        turn=turn,
        inbox=unread if answer is None else read,
        message=message,
        head=head_now if own_messages is None else head_then,
        own_messages=None if own_messages is None else load_messages(own_messages),
        request=request or None,
        traceparent=traceparent,
        pending=pending,
        tried=None if tried is None else load_tried(tried),
        **others,
    )


def renew(agent: str, holder: str, tasks: Sequence[str], *, lease: int) -> Transaction[tuple[Marks, list[str]]]:
    """See `TaskQueue.renew`. Also return the locked tasks, which are not renewed."""
    held: dict[str, int] = {}
    locked: set[str] = set()
    for start in range(0, len(tasks), _RENEWED):
        some = tasks[start : start + _RENEWED]
        locked.update(row[0] for row in (yield LockTasks(agent, some, wait=False)))
        free = [task_id for task_id in some if task_id not in locked]
        if not free:
            continue
        rows = yield (
            'UPDATE task SET lease_until = a2a_clock() + ?'
            f' WHERE agent = ? AND id IN ({", ".join("?" * len(free))}) AND holder = ?'
            " AND state = 'working' RETURNING id, cancel_requested",
            (lease, agent, *free, holder),
        )
        held |= dict(rows)
    lost = [task_id for task_id in tasks if task_id not in held and task_id not in locked]
    return Marks(lost, [task_id for task_id in tasks if held.get(task_id)]), [*locked]


def emit(
    agent: str,
    claimed: Claim,
    events: Sequence[TaskEvent],
    status: Status | None,
    checkpoint: Checkpoint | None = None,
) -> Transaction[None]:
    """See `TaskQueue.emit`."""
    header, push = claimed.header, 0
    if checkpoint is not None:
        yield LockTasks(agent, [header.id])
    for n, event in enumerate(events):
        if n:  # the first insert has checked the fence and locked the task
            yield [add_events(agent, header.id, events[n:])]
            break
        rows = yield _FIRST_EVENT, (*event, agent, header.id, claimed.fence, claimed.holder)
        if not rows:
            yield from _check_emitted(agent, claimed, event)
            return
        push = rows[0][1]
    if status is not None and stored.is_note(events[-1].payload):
        # Only readers of live text see the note as a status. The history has it for all.
        assert status.message is not None
        yield [add_items(agent, header.id, [('message', '', status.message)])]
    elif status is not None:
        yield set_status(agent, header.id, status)
    if checkpoint is not None:
        yield from save_checkpoint(agent, claimed, checkpoint)
    if push:
        yield from task_rows.enqueue_deliveries(agent, header, push, events)


def _check_emitted(agent: str, claimed: Claim, event: TaskEvent) -> Transaction[None]:
    """Raise LeaseLost, unless the claim is valid and has stored the event before: then a commit had no answer."""
    rows = yield (
        f'SELECT 1 FROM event WHERE agent = ? AND task_id = ? AND n = ? AND EXISTS (SELECT 1 FROM task WHERE {HELD})',
        (agent, claimed.header.id, event.n, agent, claimed.header.id, claimed.fence, claimed.holder),
    )
    if not rows:
        raise LeaseLost


_FIRST_EVENT = (
    # Copy `push` from the task in the same statement: after a wait for the row lock, PostgreSQL reads the newest value.
    'INSERT INTO event (agent, task_id, n, state, payload, push) SELECT agent, id, ?, ?, ?, push FROM task'
    f' WHERE {HELD} /* FOR NO KEY UPDATE */ ON CONFLICT (agent, task_id, n) DO NOTHING RETURNING n, push'
)
_STANDING = (
    f'SELECT status_message, own_usage, (SELECT MIN(seq) FROM item WHERE {UNREAD} AND seq > ?),'
    f' {conversations.RECORD_OF_TASK}, {KEPT_CHECKPOINTS}, push, logged_after, paid, {NEXT} FROM task'
    f' WHERE {HELD} AND run = ? /* FOR NO KEY UPDATE */'
)

_DROP_ARTIFACT = "DELETE FROM item WHERE agent = ? AND task_id = ? AND kind = 'artifact' AND id = ?"


def locks_of_finish(agent: str, claimed: Claim, *_: object) -> list[LockName]:
    """Lock the context: the conversation may grow, and a new message must be seen by this transaction."""
    return [LockName((agent, claimed.header.owner, claimed.header.context_id))]


def finish(agent: str, claimed: Claim, end: Finish) -> Transaction[tuple[Claim | None, list[TaskEvent], bool]]:
    """See `TaskQueue.finish`; also gives the events to publish, and whether another task may be claimable now."""
    header, read = claimed.header, end.taken or claimed.inbox
    rows = yield _STANDING, (read, agent, header.id, claimed.fence, claimed.holder, claimed.run)
    if not rows:
        return (yield from _finished(agent, claimed, end))
    previous, own_usage, unread, record, checkpointed, push, logged_after, paid, following = rows[0]
    usage = end.usage if own_usage is None else _of_turn(own_usage, end)
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
            messages = stream.closed(messages)
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
        ending = reads.join_items(items) if ends else None
        yield _end(agent, claimed, end, usage, read, ending=ending, following=following)
    if push:
        yield from task_rows.enqueue_deliveries(agent, header, push, events, end.artifacts)
    next_claim = (yield from _next_run(agent, claimed, read, end.metadata)) if goes_on else None
    return next_claim, events, following is not None and not goes_on


def _finished(agent: str, claimed: Claim, end: Finish) -> Transaction[tuple[Claim | None, list[TaskEvent], bool]]:
    """Return the result of a stored finish, after a commit without an answer. LeaseLost for any other end."""
    rows = yield (
        f'SELECT holder, run, state, status_at, last_event, {HEADER}, {_RUN} FROM task WHERE {TASK} AND fence = ?',
        (agent, claimed.header.id, claimed.fence),
    )
    for holder, run, *ended, following in ((*row[:5], row[5:]) for row in rows):
        if hands_on(end) and (holder, run) == (claimed.holder, claimed.run + 1):  # a run under the same fence
            events = [*end.events, *handed_on(claimed.header, end)]
            first = [*end.events, end.final][0].n
            # The last payload identifies the end of a run.
            if (yield from reads.events_after(agent, claimed.header.id, first - 1, len(events) + 1)) != events:
                break  # the run has ended in another way
            claim = _claim_of(
                header_of(following), following[HEADER_SIZE:], claimed.holder, claimed.fence, claimed.attempt
            )
            return claim, events, False
        if (run, *ended) == (claimed.run, end.status.state, end.status.at, end.final.n):
            return None, [*end.events, end.final], True
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
        claimed.inbox if end.status.state == 'failed' else read,  # a retry goes on from the checkpoint, or begins anew
        ending,
    )
    turn, of_turn = _TURN, _NO_TURN
    if end.failure in DEAD_LETTERS:
        turn, of_turn = '', ()
    elif end.status.state in INTERRUPTED:
        of_turn = _turn(claimed, end, usage)
    statement = (
        'UPDATE task SET state = ?, status_at = ?, status_message = ?, metadata = ?, last_event = ?, stop_event = ?,'
        f' failure = ?, inbox_read = ?, ending = ?,{turn} holder = NULL, lease_until = NULL,'
        f' cancel_requested = 0 WHERE {TASK}'
    )
    writes: list[Write] = [(statement, [(*values, *of_turn, agent, claimed.header.id)])]
    if claimed.request is not None and end.status.state in TERMINAL and may_have_credentials(claimed.request):
        writes.append(task_rows.drop_credentials(agent, claimed.header.id))
    if following is not None:
        writes.append(release_context(agent, claimed.header.owner, following))
    return writes


_TURN = ' own_messages = ?, own_usage = ?, pending = ?, context_head = ?, answer = NULL,'
_NO_TURN: tuple[Any, ...] = (None, None, None, None)


def _turn(claimed: Claim, end: Finish, usage: RunUsage | None) -> tuple[Any, ...]:
    """Return the turn of a resumed task: messages, usage, pending calls, context head."""
    own = [*(claimed.own_messages or ()), *end.messages]
    used = None if usage is None else dump_usage(usage)
    return dump_messages(own), used, end.pending, claimed.head


def _next_run(agent: str, claimed: Claim, read: int, metadata: bytes | None) -> Transaction[Claim]:
    row = yield (
        'UPDATE task SET run = run + 1, turn = turn + 1, tried = NULL, inbox_read = ?, status_message = NULL,'
        ' own_messages = NULL, own_usage = NULL, pending = NULL, context_head = NULL, answer = NULL,'
        ' metadata = COALESCE(?, metadata)'
        f' WHERE {TASK} RETURNING {HEADER}, {_RUN}',
        (read, metadata, agent, claimed.header.id),
    )
    header = header_of(row[0])
    return _claim_of(header, row[0][HEADER_SIZE:], claimed.holder, claimed.fence, claimed.attempt)


def release(
    agent: str, claim: Claim, tried: Tried | None = None, *, pause: int | None = None, charges: Sequence[Charge] = ()
) -> Transaction[None]:
    """See `TaskQueue.release`."""
    dumped = None if tried is None else dump_tried(tried)
    rows = yield (
        'UPDATE task SET holder = NULL, lease_until = a2a_clock() + ?, tried = COALESCE(?, tried)'
        f' WHERE {HELD} RETURNING paid',
        (pause, dumped, agent, claim.header.id, claim.fence, claim.holder),
    )
    if rows and charges:
        yield quotas.charged(agent, claim.header.id, claim.run, rows[0][0], charges)


# --- checkpoints of runs ----------------------------------------------------------------------------------------------
# A row for each model message of the run's own turn.

_ADD = (
    'INSERT INTO checkpoint (agent, task_id, n, run, message, used, taken)'
    f' SELECT agent, id, ?, ?, ?, ?, ? FROM task WHERE {HELD} RETURNING n'
)


def load_checkpoint(agent: str, task_id: str) -> Transaction[Checkpoint]:
    """Return the checkpoint of a task."""
    rows = yield f'SELECT run, message, used, taken FROM checkpoint WHERE {OF_TASK} ORDER BY n', (agent, task_id)
    messages = load_message_rows(row[1] for row in rows)
    run, _, used, taken = rows[-1]
    return Checkpoint(run=run, messages=messages, usage=load_usage(used), taken=taken)


def save_checkpoint(agent: str, claimed: Claim, checkpoint: Checkpoint) -> Transaction[None]:
    """Replace the stored messages from the first message of the checkpoint on.

    Raises:
        LeaseLost: The claim is no longer valid.
    """
    task_id = claimed.header.id
    yield f'DELETE FROM checkpoint WHERE {OF_TASK} AND n >= ?', (agent, task_id, checkpoint.first)
    used = dump_usage(checkpoint.usage)
    for n, message in enumerate(checkpoint.messages, checkpoint.first):
        body = dump_message(message)
        row = (n, checkpoint.run, body, used, checkpoint.taken)
        rows = yield _ADD, (*row, agent, task_id, claimed.fence, claimed.holder)
        if not rows:
            raise LeaseLost


def move_checkpoint(agent: str, task_id: str, new_id: str, inbox: Sequence[int]) -> Transaction[RunUsage | None]:
    """Move the checkpoint of a task to a new task, for the first run of the new task.

    Return the usage in the checkpoint; None without a checkpoint.

    Args:
        agent: Namespace.
        task_id: The task.
        new_id: The new task, with copies of the unfinished messages.
        inbox: The numbers of the copied messages.
    """
    rows = yield f'SELECT used, taken FROM checkpoint WHERE {OF_TASK} ORDER BY n DESC LIMIT 1', (agent, task_id)
    if not rows:
        return None
    used, taken = rows[0]
    entered = sum(row <= taken for row in inbox)
    yield (
        'UPDATE checkpoint SET task_id = ?, taken = COALESCE('
        '(SELECT MAX(seq) FROM (SELECT 1 AS seq UNION ALL SELECT seq FROM item'
        f" WHERE {OF_TASK} AND kind = 'message' AND answer IS NOT NULL ORDER BY seq LIMIT ?) AS entered), 0)"
        f' WHERE {OF_TASK}',
        (new_id, agent, new_id, entered, agent, task_id),
    )
    return load_usage(used)


# --- waiting tasks: the pending calls, and the check of answers -------------------------------------------------------

_HAS_CALLS = f'SELECT 1 FROM task WHERE {TASK} AND pending IS NOT NULL'
_ASKED = f'UPDATE task SET pending = ?, stop_event = ? WHERE {TASK} RETURNING push'


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
        yield from task_rows.enqueue_deliveries(agent, header, rows[0][0], [event])
    return [event]


def go_on(agent: str, message: Submission) -> Write:
    """Let the next run of a task begin with an answer, the newest message in the inbox."""
    pending = None if message.answer is None else message.answer.pending
    newest = f'(SELECT MAX(seq) FROM item WHERE {MESSAGE_OF_TASK})'
    statement = f'UPDATE task SET answer = {newest}, pending = ?, status_message = NULL WHERE {TASK}'
    return statement, [(pending, agent, message.task_id)]


# --- filing -----------------------------------------------------------------------------------------------------------
# Stopped tasks get into the indexes of lists and of sweeps in batches.
#
# A task that has just stopped is not filed: one small index has such tasks, and lists read them from there. Every
# `EVERY` ends of runs, and each sweep, file a batch. A batch writes a page of an index once for many tasks. So the end
# of a run on SQLite writes one index in place of five.
#
# A conversation is listed for sweeps, and counted, with the first filed task of its context.

EVERY = 100
"""The ends of runs in a process between two batches. Lists read about as many tasks that are not filed."""
BATCH = 500
"""The most tasks of a batch."""
_UNFILED = (
    # A task in an unknown state is never filed: lists leave it out with a log line, and no sweep deletes it.
    f'SELECT id FROM task WHERE agent = ? AND {ranges.UNFILED} AND state IN {tuple(sorted(STOPPED))}'
    ' ORDER BY owner, status_at LIMIT ? /* FOR NO KEY UPDATE SKIP LOCKED */'
)
_FILE = f'UPDATE task SET filed = 1 WHERE {{}} AND {ranges.UNFILED}'
_UNFILE = f'UPDATE task SET filed = 0 WHERE agent = ? AND id = ? AND {ranges.FILED}'
_LIST = 'UPDATE conversation SET listed_at = updated_at WHERE {} AND listed_at IS NULL'
_LIST_OF_TASKS = _LIST.format(
    # A locked conversation is in a transaction whose task is filed later.
    '(agent, owner, id) IN (SELECT c.agent, c.owner, c.id FROM task CROSS JOIN conversation c WHERE {} AND'
    ' c.agent = task.agent AND c.owner = task.owner AND c.id = task.context_id AND c.listed_at IS NULL'
    ' /* FOR NO KEY UPDATE OF c SKIP LOCKED */)'
)


def file(agent: str) -> Transaction[int]:
    """File a batch of stopped tasks; return 0 if these were all, else 1."""
    rows = yield _UNFILED, (agent, BATCH)
    for start in range(0, len(rows), KEYS):
        keys = [(agent, task_id) for (task_id,) in rows[start : start + KEYS]]
        of_tasks, values = among('task.agent, task.id', keys)
        ids, _ = among('agent, id', keys)
        yield [(_FILE.format(ids), [values]), (_LIST_OF_TASKS.format(of_tasks), [values])]
    return int(len(rows) == BATCH)


def unfile(agent: str, ids: Sequence[str]) -> Write:
    """Take tasks out of the indexes of lists and of sweeps. The caller has locked the tasks."""
    return _UNFILE, [(agent, task_id) for task_id in ids]


def list_conversations(agent: str, keys: Sequence[tuple[str, str]]) -> Write:
    """List the conversations (owner, id) of tasks that are deleted before they are filed."""
    of_keys, values = among('agent, owner, id', [(agent, *key) for key in keys])
    return _LIST.format(of_keys), [values]
