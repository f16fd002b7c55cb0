"""Claims of tasks: a worker takes a task, renews the lease, and releases the task.

A task has at most one writer. A claim makes one: it sets `holder`, a worker, and `lease_until`, and adds 1 to `fence`.
The events, the checkpoints and the end of a run name their holder and their fence (`HELD`). So a worker that has lost
its task can still compute, and store nothing: its next write raises `LeaseLost`.

| column | written by | meaning |
|---|---|---|
| `holder` | claim; NULL after `release`, and after the end of a run | the worker that may write |
| `lease_until` | claim, `renew` | until when the task is not claimed by others, by the clock of leases |
| `lease_until` without a holder | `release` | when the run is tried again; NULL: at once |
| `fence` | each claim, and an end from outside (`canceling`) | the number of claims; never goes back |
| `attempt` | the first claim, and a claim of a task whose holder is lost | starts of the task: see `Workers.attempts` |
| `run` | the first claim, an answer (`submitting`), a next message (`finishing`) | the number of the agent run |
| `turn` | a next message (`finishing`) | prompts that were run: an answer goes on with its turn |
| `queued`, `behind`, `round`, `queue_seq` | a message, and the end of the task before: see `queue_order` | the queue |

A released task has no holder, so the next claim costs no attempt. If a task goes on with its next message, `finishing`
makes the next claim: a new run under the same holder and fence. A message may claim its new task in the statement that
stores the task, if no other task waits (`submitting`).

A claim takes three kinds of tasks:

1. queued tasks that are the first of their context (`QUEUED`),
2. running tasks whose lease has expired, of other workers,
3. released tasks whose pause is over.

Lost tasks, and tasks that were released without a pause, go first. Queued tasks and new tries of a run take turns in a
random order, so that neither keeps out the other (`_claimable`). A claim locks its rows and skips locked ones, which a
later claim finds. Under the lock, `_SET_TAKEN` checks again that a task is claimable, but for the pause of a released
one.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import Any, TypeAlias

from ...types import TaskEvent, TaskHeader
from ..model_messages import dump_tried, load_messages, load_tried
from ..ports import Charge, Claim, Marks, Slot, Status
from ..ports.claim import Tried
from ..status_events import status_event
from . import conversations, enqueued_deliveries, event_log, quotas
from .checkpoints import KEPT_CHECKPOINTS, load_checkpoint
from .event_log import add_events
from .queue_order import QUEUED, QUEUED_OR_OFFERED
from .queue_pause import PAUSED
from .task_rows import FIRST_UNREAD, HEADER, HEADER_SIZE, HELD, IS_DUE, MESSAGE_OF_TASK, header_of
from .transaction import KEYS, LockTasks, Rows, Transaction, TryNames, among

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
RUN = (
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
_WANTED = '(SELECT MAX(wants) FROM reader r WHERE r.agent = task.agent AND r.task_id = task.id)'
_TAKEN = f' RETURNING {HEADER}, push, logged_after, fence, attempt, {KEPT_CHECKPOINTS}, {_WANTED}, {RUN}'
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
            yield from enqueued_deliveries.enqueue_deliveries(agent, header, push, events)
        checkpoint = (yield from load_checkpoint(agent, header.id)) if checkpointed else None
        claimed = claim_of(
            header, run_row, holder, fence, attempt, checkpoint=checkpoint, push=bool(push), wanted=wanted
        )
        claims.append((claimed, events))
    if logged:
        yield [(event_log.ADD_EVENT, logged)]
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


def claim_of(header: TaskHeader, run_row: Sequence[Any], holder: str, fence: int, attempt: int, **others: Any) -> Claim:
    """Return the claim of a `RUN` row, with other fields of the claim.

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
