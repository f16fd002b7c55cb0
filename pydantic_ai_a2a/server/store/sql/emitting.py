"""The events that a run stores while it goes on."""

from __future__ import annotations

from collections.abc import Sequence

from ....errors import LeaseLost
from ....types.stored_events import TaskEvent
from ....wire.protocol import stored
from ..ports import Checkpoint, Claim, Status
from . import enqueued_deliveries
from .checkpoints import save_checkpoint
from .event_log import add_events
from .task_rows import HELD, add_items, set_status
from .transaction import Done, LockTasks, Transaction, sql

_FIRST_EVENT = sql(f"""
    INSERT INTO event (agent, task_id, n, state, payload, push)
    -- `push` of the task, in the same statement: after a wait for the row lock, PostgreSQL reads the newest value.
    SELECT agent, id, ?, ?, ?, push FROM task
    -- The fence is checked under the lock.
    WHERE {HELD} /* FOR NO KEY UPDATE */
    -- A worker whose commit got no answer stores its event again.
    ON CONFLICT (agent, task_id, n) DO NOTHING
    RETURNING n, push
""")


def emit(
    agent: str,
    claimed: Claim,
    events: Sequence[TaskEvent],
    status: Status | None,
    checkpoint: Checkpoint | None = None,
) -> Transaction[Done[None]]:
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
            return Done(None, [(header.id, events)])
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
        yield from enqueued_deliveries.enqueue_deliveries(agent, header, push, events)
    return Done(None, [(header.id, events)])


def _check_emitted(agent: str, claimed: Claim, event: TaskEvent) -> Transaction[None]:
    """Raise LeaseLost, unless the claim is valid and has stored the event before: then a commit had no answer."""
    rows = yield (
        f'SELECT 1 FROM event WHERE agent = ? AND task_id = ? AND n = ? AND EXISTS (SELECT 1 FROM task WHERE {HELD})',
        (agent, claimed.header.id, event.n, agent, claimed.header.id, claimed.fence, claimed.holder),
    )
    if not rows:
        raise LeaseLost
