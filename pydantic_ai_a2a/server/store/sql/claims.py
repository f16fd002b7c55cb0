"""Claims of tasks: a worker takes a task, renews the lease, and releases the task.

A task has at most one writer. A claim makes one: it sets `holder`, a worker, and `lease_until`, and adds 1 to `fence`.
The events, the checkpoints and the end of a run name their holder and their fence (`HELD`). So a worker that has lost
its task can still compute, and store nothing: its next write raises `LeaseLost`. No write reads `lease_until`: a worker
whose lease has expired may write until another worker claims the task, or a cancel ends it.

| column | written by | meaning |
|---|---|---|
| `holder` | claim; NULL after `release`, and after the end of a run | the worker that may write |
| `lease_until` | claim, `renew` | until when the task is not claimed by others, by the clock of leases |
| `lease_until` without a holder | `release` | when the run is tried again; NULL: at once |
| `fence` | each claim, and an end from outside (`canceling`) | only grows: who has an older one may not write |
| `attempt` | the first claim, and a claim of a task whose holder is lost | starts of the task: see `Workers.attempts` |
| `run` | the first claim, an answer (`submitting`), a next message (`finishing`) | the number of the agent run |
| `turn` | a next message (`finishing`) | prompts that were run: an answer goes on with its turn |
| `begun_by` | each claim, NULL unless an end makes it | the claim (`name_of`) whose end has claimed the task |
| `queued`, `behind`, `round`, `queue_seq` | a message, and the end of the task before: see `queue_order` | the queue |

A released task has no holder, so the next claim costs no attempt. If a task goes on with its next message, `finishing`
makes the next claim: a new run under the same holder and fence. A message may claim its new task in the statement that
stores the task, if no other task waits (`submitting`).

The end of a run may claim the next queued task for the slot of the run (`take_next`). If the answer to the commit is
lost, the worker does not know the new claim. So `begun_by` names the claim whose end has claimed the task, and a second
end or a release under that old claim releases the task (`release_next`).

A claim takes three kinds of tasks:

1. queued tasks that are the first of their context (`QUEUED`),
2. running tasks whose lease has expired, of other workers,
3. released tasks whose pause is over.

Lost tasks, and tasks that were released without a pause, go first. Queued tasks and new tries of a run take turns in a
random order, so that neither keeps out the other (`_claimable`). A claim locks its rows and skips locked ones, which a
later claim finds. Under the lock, `_take` checks again that a task is claimable, but for the pause of a released one.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple, TypeAlias

from ....types.stored_events import TaskEvent
from ....types.stored_tasks import TaskHeader
from ..model_messages import dump_tried, load_messages, load_tried
from ..ports import Charge, Claim, Marks, Slot, Status
from ..ports.failed_tries import Tried
from ..status_events import status_event
from . import conversations, enqueued_deliveries, event_log, quotas
from .checkpoints import checkpoint_of, load_checkpoint
from .damaged_bodies import check_stored
from .event_log import add_events
from .key_conditions import KEYS, among
from .queue_order import FIRST_OF_CONTEXT, OFFERED, QUEUED
from .queue_pause import PAUSED
from .task_rows import FIRST_UNREAD, HEADER, HELD, IS_DUE, MESSAGE_OF_TASK, header_of
from .transaction import Done, LockTasks, Rows, Statement, Transaction, TryNames, sql

_RENEWED = 500
"""The most leases in one statement: SQLite takes at least 999 values."""

# The queries find tasks and lock them. They skip tasks that another transaction has locked. A locked queued task is
# still the first of its context, so later tasks of the context are not found.
FIND_QUEUED = sql(f"""
    SELECT id FROM task
    WHERE agent = ? AND NOT EXISTS ({PAUSED} ?) AND {QUEUED}
    -- the order of the index `task_queued`: a few entries are read, for any length of the queue
    ORDER BY round, queue_seq LIMIT ?
    /* FOR NO KEY UPDATE SKIP LOCKED */
""")
_FIND_LOST = sql(f"""
    SELECT id, holder IS NULL AND lease_until IS NOT NULL AS tried FROM task
    WHERE agent = ? AND NOT EXISTS ({PAUSED} ?)
        -- running tasks that were released, or whose holder, another worker, has not renewed the lease
        AND state = 'working' AND queued = 0 AND (holder IS NULL OR holder <> ? AND lease_until < a2a_clock())
        AND {IS_DUE}
    -- `tried`: tasks that wait for another try of their run come last
    ORDER BY 2, queue_seq LIMIT ?
    /* FOR NO KEY UPDATE SKIP LOCKED */
""")
FIND_RELEASED = sql(f"""
    SELECT id, holder IS NULL AND lease_until IS NOT NULL AS tried FROM task
    WHERE agent = ? AND NOT EXISTS ({PAUSED} ?)
        -- the released ones alone: the condition of the index `task_released`
        AND state = 'working' AND queued = 0 AND holder IS NULL
        AND {IS_DUE}
    ORDER BY 2, queue_seq LIMIT ?
    /* FOR NO KEY UPDATE SKIP LOCKED */
""")
_FIND_OF_OWNERS = sql(f"""
    -- The owners of queued tasks: one look-up in an index for each owner, for any number of tasks of an owner.
    WITH RECURSIVE owners (owner) AS (
        SELECT MIN(owner) FROM task WHERE agent = ? AND queued = 1
        UNION ALL SELECT (
            SELECT MIN(q.owner) FROM task q WHERE q.agent = ? AND q.queued = 1 AND q.owner > owners.owner
        ) FROM owners WHERE owner IS NOT NULL
    )
    SELECT id FROM task
    WHERE agent = ? AND NOT EXISTS ({PAUSED} ?) AND {QUEUED}
        AND id IN (
            -- the first claimable task of each owner
            SELECT (
                SELECT q.id FROM task q
                WHERE q.agent = ? AND q.owner = owners.owner AND q.queued = 1 AND q.behind = 0
                ORDER BY q.round LIMIT 1
            ) FROM owners
            -- with fewer running tasks than the limit
            WHERE (
                SELECT COUNT(*) FROM task r
                WHERE r.agent = ? AND r.owner = owners.owner
                    AND state = 'working' AND queued = 0 AND holder IS NOT NULL
            ) < ?
        )
    ORDER BY round, queue_seq LIMIT ?
    /* FOR NO KEY UPDATE SKIP LOCKED */
""")
_COUNT_RUNNING = sql("""
    SELECT COUNT(*) FROM task
    WHERE agent = ? AND owner = ? AND state = 'working' AND queued = 0 AND holder IS NOT NULL
""")
_MESSAGE = f'{MESSAGE_OF_TASK} AND item.seq = COALESCE(task.answer, {FIRST_UNREAD})'
"""The message that the run begins with: the answer to a pause, or the next prompt. The first message is in `task`."""
RUN = sql(f"""
    {HEADER}, holder, fence, attempt, run, turn, tried,
    COALESCE((SELECT item.request FROM item WHERE {_MESSAGE}), request),
    traceparent, own_messages, pending,
    context_head, {conversations.HEAD_OF_TASK},
    answer, inbox_read, {FIRST_UNREAD},
    COALESCE((SELECT body FROM item WHERE {_MESSAGE}), message)
""")
"""The columns of a `RunRow`, without those that a claim alone needs."""


class RunRow(NamedTuple):
    """A task whose next run begins, and the claim of the run: the columns `RUN`, and then those of a new claim."""

    # The columns `HEADER`, for `header_of`.
    id: str
    context_id: str
    owner: str
    state: str
    status_at: int
    status_message: bytes | None
    metadata: bytes | None
    dialect: str
    queued: int
    newest_event: int
    # The claim.
    holder: str
    fence: int
    attempt: int
    # The run.
    run: int
    turn: int
    tried: bytes | None
    request: bytes
    """Of the message, or else of the task."""
    traceparent: str | None
    own_messages: bytes | None
    """None unless the run goes on after a pause."""
    pending: bytes | None
    head_at_pause: str | None
    """The newest entry of the conversation when the turn of the pause began."""
    head_now: str | None
    answer: int | None
    """Number of the message that ends a pause; None for a run that begins with a prompt."""
    inbox_read: int
    prompt: int
    """Number of the next prompt, if `answer` is None."""
    message: bytes
    """The answer or the prompt."""
    # What begins with a new claim. The next run under the same claim has no need of it.
    push: int = 0
    logged_after: int | None = None
    checkpointed: int = 0
    """True if an earlier attempt has left a checkpoint."""
    wanted: int | None = None
    """See `Claim.wanted`."""


def _take(which: str, begun_by: str = 'NULL') -> str:
    """Return the statement that claims tasks of a condition. The transaction has locked them."""
    return sql(f"""
        UPDATE task SET
            -- An answered task is `working` since its answer.
            state = 'working',
            status_at = CASE state WHEN 'working' THEN status_at ELSE ? END,
            -- The holder and the fence: from now on, any other holder or fence writes nothing.
            queued = 0,
            holder = ?,
            lease_until = a2a_clock() + ?,
            fence = fence + 1,
            begun_by = {begun_by},
            -- The status `working` is the first event of a new task.
            last_event = CASE state WHEN 'submitted' THEN 1 ELSE last_event END,
            -- The first start counts, and each start after a lost holder. A released task has no holder.
            attempt = attempt + CASE WHEN holder IS NOT NULL OR attempt = 0 THEN 1 ELSE 0 END,
            -- All attempts and tries of a run have its number.
            run = CASE run WHEN 0 THEN 1 ELSE run END
        WHERE agent = ? AND {which}
            -- Since the task was found, and before it was locked, it may have been claimed, renewed or canceled.
            AND (
                -- queued, also by this transaction, and the first of its context
                queued IN (1, {OFFERED}) AND behind = 0 AND {FIRST_OF_CONTEXT}
                -- or running, and released, or lost by another worker
                OR state = 'working' AND queued = 0 AND (holder IS NULL OR holder <> ? AND lease_until < a2a_clock())
            )
            AND NOT EXISTS ({PAUSED} task.agent)
        RETURNING
            {RUN}, push, logged_after,
            EXISTS (SELECT 1 FROM checkpoint k WHERE k.agent = task.agent AND k.task_id = task.id),
            (SELECT MAX(wants) FROM reader r WHERE r.agent = task.agent AND r.task_id = task.id)
    """)


_TAKE = _take('id = ?')
_TAKE_MANY = _take(f'id IN ({", ".join("?" * KEYS)})')
_TAKE_ALONE = _take("""id = ?
            -- unless another task waits: it goes first
            AND NOT EXISTS (
                SELECT 1 FROM task q WHERE q.agent = ? AND q.queued = 1 AND q.behind = 0 AND q.id <> task.id
            )""")
TAKE_NEXT = _take(
    """id = ?
            -- Its events, checkpoint and webhooks would take more statements, and the messages of a turn more time.
            AND logged_after IS NULL AND push = 0 AND own_messages IS NULL
            AND NOT EXISTS (SELECT 1 FROM checkpoint k WHERE k.agent = task.agent AND k.task_id = task.id)""",
    begun_by='?',
)
"""Claim a task (at, holder, lease, name of the ended claim, agent, id, holder)."""
_RELEASE_NEXT = sql("""
    UPDATE task SET holder = NULL, lease_until = NULL
    WHERE agent = ? AND state = 'working' AND queued = 0 AND holder = ? AND begun_by = ?
    RETURNING id
""")
Taken: TypeAlias = tuple[Claim, list[TaskEvent]]
"""A claim with the events to publish."""


def claim(
    agent: str,
    slot: Slot,
    *,
    at: int,
    limit: int,
    task_id: str | None = None,
    skip: Collection[str] = (),
    lost: bool = True,
) -> Transaction[Done[list[Claim]]]:
    """See `TaskQueue.claim`.

    The claim locks the tasks first: a lost holder may be storing an event, and the claim must read the event's number.
    Tasks with a lock of another transaction are left to a later claim.
    """
    if task_id is not None:
        locked = task_id in skip or (yield LockTasks(agent, [task_id], wait=False))
        return _done(agent, [] if locked else (yield from take(agent, slot, [task_id], at=at)))
    rows = yield from _claimable(agent, slot.holder, limit + len(skip), lost=lost)
    claims = yield from take(agent, slot, [row[0] for row in rows if row[0] not in skip][:limit], at=at)
    more = slot.owner_limit is not None
    while more and len(claims) < limit:  # the first tasks of the queue may be of owners at their limit
        rows = yield _FIND_OF_OWNERS, (*[agent] * 6, slot.owner_limit, limit - len(claims))
        more = yield from take(agent, slot, [row[0] for row in rows if row[0] not in skip], at=at)
        claims += more
    return _done(agent, claims)


def _done(agent: str, taken: list[Taken]) -> Done[list[Claim]]:
    claims = [claim for claim, _ in taken]
    events = [(claim.header.id, events) for claim, events in taken]
    return Done(claims, events, begins=claims, undo=partial(unclaim, agent, claims) if claims else None)


def unclaim(agent: str, claims: Sequence[Claim]) -> Transaction[Done[None]]:
    """Release tasks whose claiming caller has gone before it could run them."""
    for claim in claims:
        yield from release(agent, claim)
    return Done(None, ready=True)


def take(agent: str, slot: Slot, task_ids: Sequence[str], *, at: int, alone: bool = False) -> Transaction[list[Taken]]:
    """Claim tasks that this transaction has locked, if they are claimable; `alone`: and no other queued task is.

    Return the claims in the order of the ids.
    """
    if slot.owner_limit is not None:
        task_ids = yield from _with_places(agent, task_ids, slot.owner_limit)
    rows: dict[str, RunRow] = {}
    for start in range(0, len(task_ids), KEYS):
        some = task_ids[start : start + KEYS]
        padded = some if len(some) == 1 else [*some, *[some[-1]] * (KEYS - len(some))]
        statement = _TAKE_ALONE if alone else _TAKE if len(some) == 1 else _TAKE_MANY  # none for each number
        values = (at, slot.holder, slot.lease, agent, *padded, *[agent] * alone, slot.holder)
        rows |= {row[0]: RunRow(*row) for row in (yield statement, values)}
    return (yield from _claims_of(agent, [rows[task_id] for task_id in task_ids if task_id in rows], at))


def take_next(agent: str, slot: Slot, ended: Claim, *, at: int) -> Transaction[Taken | None]:
    """Claim the next queued task in the transaction that ends a run, unless a released task goes first."""
    if (yield FIND_RELEASED, (agent, agent, 1)):
        return None
    if not (queued := (yield FIND_QUEUED, (agent, agent, 1))):
        return None
    rows = yield TAKE_NEXT, (at, slot.holder, slot.lease, name_of(ended), agent, queued[0][0], slot.holder)
    return taken_row(RunRow(*rows[0]), at) if rows else None


def release_next(agent: str, ended: Claim) -> Statement:
    """Release the task that the end of a claimed run has claimed, if its worker does not know of that claim."""
    return _RELEASE_NEXT, (agent, ended.holder, name_of(ended))


def name_of(claim: Claim) -> str:
    """Return the name of a claim in `begun_by`."""
    return f'{claim.header.id}.{claim.fence}'


def taken_row(row: RunRow, at: int, checkpoint: Sequence[Any] = ()) -> Taken:
    """Return the claim of a taken task, with the first event of a new task."""
    header = header_of(row)
    # A submitted task was never claimed, and has no event before.
    events = [status_event(header, Status('working', at, None), 1)] if row.fence == 1 else []
    return claim_of(header, row, checkpoint), events


def _claims_of(agent: str, rows: Sequence[RunRow], at: int) -> Transaction[list[Taken]]:
    """Return the claims of taken tasks, and store what begins with a claim."""
    claims: list[Taken] = []
    logged: list[tuple[Any, ...]] = []
    for row in rows:
        checkpoint = (yield checkpoint_of(agent, row.id)) if row.checkpointed else []
        claim, events = taken_row(row, at, checkpoint)
        if row.logged_after is not None:
            logged += add_events(agent, row.id, events)[1]
        if row.push:
            yield from enqueued_deliveries.enqueue_deliveries(agent, claim.header, row.push, events)
        claims.append((claim, events))
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
    rows = yield (_FIND_LOST, (agent, agent, holder, limit)) if lost else (FIND_RELEASED, (agent, agent, limit))
    first = [row for row in rows if not row[1]]
    tries = rows[len(first) :]
    queued = (yield FIND_QUEUED, (agent, agent, limit - len(first))) if len(first) < limit else []
    if not (tries and queued):
        return rows + queued
    # One after the other, so that neither a model that is down nor a long queue keeps out the other tasks. The random
    # part decides about the last slot, and needs no secure random numbers.
    turns = zip_longest(*random.sample((tries, queued), 2))  # nosec B311
    return [*first, *(row for turn in turns for row in turn if row is not None)]


def claim_of(header: TaskHeader, row: RunRow, checkpoint: Sequence[Any] = ()) -> Claim:
    """Return the claim of a task whose next run begins.

    An interrupted task continues from the context head at its pause. Data that cannot be read fails this run alone: an
    error here would undo the claims of all other tasks too.
    """
    request, own_messages, tried, progress, damage = row.request or None, None, None, None, None
    try:
        check_stored(row.id, request, row.metadata)
        own_messages = None if row.own_messages is None else load_messages(row.own_messages)
        tried = None if row.tried is None else load_tried(row.tried)
        progress = load_checkpoint(checkpoint) if checkpoint else None
    except Exception as error:  # its text may have the data
        request, damage = None, f'Task {row.id} has a stored run that cannot be read: {type(error).__name__}.'
    return Claim(
        header=header,
        holder=row.holder,
        fence=row.fence,
        attempt=row.attempt,
        run=row.run,
        turn=row.turn,
        inbox=row.prompt if row.answer is None else row.inbox_read,
        message=row.message,
        head=row.head_now if row.own_messages is None else row.head_at_pause,
        own_messages=own_messages,
        request=request,
        traceparent=row.traceparent,
        pending=row.pending,
        tried=tried,
        checkpoint=progress,
        push=bool(row.push),
        wanted=row.wanted,
        damage=damage,
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
) -> Transaction[Done[None]]:
    """See `TaskQueue.release`."""
    dumped = None if tried is None else dump_tried(tried)
    rows = yield (
        'UPDATE task SET holder = NULL, lease_until = a2a_clock() + ?, tried = COALESCE(?, tried)'
        f' WHERE {HELD} RETURNING paid',
        (pause, dumped, agent, claim.header.id, claim.fence, claim.holder),
    )
    if rows and charges:
        yield quotas.charged(agent, claim.header.id, claim.run, rows[0][0], charges)
    if not rows:
        yield release_next(agent, claim)
    return Done(None, ready=pause is None)
