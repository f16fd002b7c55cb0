"""The end of a task from outside of its run: a client cancels the task, or a sweep fails it."""

from __future__ import annotations

from ....task_states import LIVE, check_cancel
from ....types.stored_events import TaskEvent
from ....types.stored_tasks import TaskHeader
from ..conversation_turns import closed_turn
from ..model_messages import load_messages
from ..ports import Status
from ..run_usage import load_usage
from ..status_events import status_event
from . import conversations
from .checkpoints import drop_checkpoint
from .credentials import drop_credentials
from .enqueued_deliveries import enqueue_deliveries
from .event_log import add_events, keep_streamed
from .queue_order import NEXT, release_context
from .task_rows import TASK, find, find_locked, set_status
from .transaction import Done, Transaction


def cancel(
    agent: str, task_id: str, owner: str | None, *, at: int, force: bool
) -> Transaction[Done[tuple[TaskHeader, bool]]]:
    """See `TaskQueue.cancel`; also gives whether the task was queued."""
    header = yield from find_locked(agent, task_id, owner)
    check_cancel(header)
    if not force:
        asked = yield (
            f'UPDATE task SET cancel_requested = 1 WHERE {TASK} AND holder IS NOT NULL RETURNING id',
            (agent, task_id),
        )
        if asked:
            return Done((header, False), [(task_id, ())], ready=True, cancels=True)
    status = Status('canceled', at, None)
    event = yield from end_unheld(agent, header, status)
    canceled = yield from find(agent, task_id, owner)
    return Done((canceled, header.queued), [(task_id, (event,))], ready=True, cancels=True)


def end_unheld(agent: str, header: TaskHeader, status: Status, failure: str | None = None) -> Transaction[TaskEvent]:
    """End a task without the holder: the new fence refuses a late result of the holder."""
    event = status_event(header, status, header.last_event + 1)
    rows = yield (
        f'SELECT run, own_messages, own_usage, {conversations.RECORD_OF_TASK}, push, logged_after, {NEXT} FROM task'
        f' WHERE {TASK}',
        (agent, header.id),
    )
    run, own_messages, own_usage, record, push, logged_after, following = rows[0]
    if status.state == 'canceled' and own_messages is not None:
        messages = closed_turn(load_messages(own_messages))
        usage = None if own_usage is None else load_usage(own_usage)
        run_id = f'{header.id}.{run}'
        yield conversations.append(
            agent, header.owner, header.context_id, record, messages, run_id=run_id, usage=usage, at=status.at
        )
    yield from keep_streamed(agent, header.id)
    freed = (
        'UPDATE task SET queued = 0, fence = fence + 1, holder = NULL, lease_until = NULL, own_messages = NULL,'
        f' pending = NULL, own_usage = NULL, last_event = ?, stop_event = ?, failure = ? WHERE {TASK}'
    )
    ended = (freed, [(event.n, event.n, failure, agent, header.id)])
    log = add_events(agent, header.id, [event] if logged_after is not None else [])
    drops = drop_checkpoint(agent, header.id), drop_credentials(agent, header.id)
    yield [*set_status(agent, header.id, status), ended, log, *drops]
    if following is not None and header.state in LIVE:
        yield [release_context(agent, header.owner, following)]
    if push:
        yield from enqueue_deliveries(agent, header, push, [event])
    return event
