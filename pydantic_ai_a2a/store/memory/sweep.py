"""Retention and erasing in memory, in steps of bounded size."""

from __future__ import annotations

from ...errors import UnsupportedOperationError
from ...settings import Retention
from ...types import INTERRUPTED, TERMINAL
from ..ports import Erased, Status
from ..rules import EXPIRED, Expired, expired_status
from .conversations import BATCH
from .records import Task
from .store import Store

ROWS = BATCH
"""The most rows to delete in one step."""
TASKS = 50


def sweep(store: Store, retention: Retention, at: int) -> tuple[int, Expired]:
    """Delete a bounded batch of due rows. Return the number of rows, and the failed waiting tasks."""
    ended = _expire_waiting(store, at - _ms(retention.waiting.total_seconds()), at)
    swept = len(ended)
    swept += _sweep_events(store, at - _ms(retention.events.total_seconds()))
    swept += _sweep_tasks(store, retention, at)
    dropped = _sweep_left(store)
    swept += dropped + _sweep_contexts(store, retention, at, ROWS - dropped)
    swept += store.quotas.sweep(at=at, limit=ROWS) + store.sweep_credentials(at)
    return swept, ended


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


def _expire_waiting(store: Store, before: int, at: int) -> Expired:
    ended: Expired = []
    for status_at, task_id in store.lists.oldest(INTERRUPTED, TASKS):
        if status_at >= before:
            break
        task = store.tasks[task_id]
        header = task.header()
        ended.append((header, store.end_unheld(task, expired_status(header, task.run, at), EXPIRED)))
    return ended


def _sweep_events(store: Store, before: int) -> int:
    """Delete old event logs of ended tasks; long logs take several sweeps."""
    swept = 0
    for status_at, task_id in store.lists.oldest_unswept(TASKS):
        if status_at >= before:
            break
        task = store.tasks[task_id]
        swept += store.drop_events(task, ROWS - swept)
        if task.events:
            break
        store.lists.events_swept(task)
        task.events_swept = True
    return swept


def _sweep_tasks(store: Store, retention: Retention, at: int) -> int:
    """Delete old ended tasks, except for tasks with pending deliveries."""
    waiting = at - _ms(retention.waiting.total_seconds())
    spared = {task.id for task in store.webhooks.tasks() if task.state in TERMINAL and task.status_at >= waiting}
    surplus = store.lists.number(TERMINAL) - len(spared) - retention.max_tasks
    before = at - _ms(retention.tasks.total_seconds())
    keys = [key for key in store.lists.oldest(TERMINAL, TASKS + len(spared)) if key[1] not in spared][:TASKS]
    swept = 0
    for index, (status_at, task_id) in enumerate(keys):
        if (index >= surplus and status_at >= before) or swept >= ROWS:
            break
        task = store.tasks[task_id]
        swept += store.drop_events(task, ROWS)
        if task.events:
            break
        swept += store.drop_task(task)
    return swept


def _sweep_left(store: Store) -> int:
    """Delete the remaining entries of erased conversations."""
    swept = 0
    for owner in store.conversations.left(TASKS):
        swept += store.conversations.drop_left(owner, ROWS - swept)
    return swept


def _sweep_contexts(store: Store, retention: Retention, at: int, limit: int) -> int:
    """Delete old conversations without unended tasks."""
    conversations = store.conversations
    surplus = len(conversations) - retention.max_contexts
    before = at - _ms(retention.contexts.total_seconds())
    idle: list[tuple[str, str]] = []
    for updated_at, owner, context_id in conversations.oldest():
        if len(idle) == TASKS or (len(idle) >= surplus and updated_at >= before):
            break
        if not store.busy(owner, context_id):
            idle.append((owner, context_id))
    swept = 0
    for owner, context_id in idle:
        if swept >= limit:
            break
        swept += 1 + (conversations.erase(owner, context_id, limit - swept) or 0)
        store.forget(owner, context_id)
    return swept


def erase_task(store: Store, task_id: str, owner: str | None, at: int) -> bool:
    """See `Housekeeping.erase_task`."""
    task = store.tasks.get(task_id)
    if task is None or owner not in (None, task.owner):
        return False
    if task.live:
        raise UnsupportedOperationError('The task is queued or running; cancel it before it is erased.')
    _drop(store, task, at)
    return True


def _drop(store: Store, task: Task, at: int) -> int:
    """Delete a task, and tell the readers of a waiting task."""
    dropped = store.drop_task(task)
    if task.state in INTERRUPTED:
        store.event_bus.publish(task.id, [task.status_event(Status('canceled', at, None))])
    return dropped


def erase(store: Store, owner: str, context_id: str | None, at: int) -> Erased:
    """See `Housekeeping.erase`."""
    if (live := store.waiting.first_live(owner, context_id)) is not None:
        raise UnsupportedOperationError(
            f'The task {live.id} is queued or running; cancel it before you erase its context or its owner.'
        )
    conversations = store.conversations
    if erased := _erase_tasks(store, owner, context_id, at):
        return erased
    if entries := conversations.drop_left(owner, ROWS):
        return Erased(entries=entries)
    if erased := _erase_conversations(store, owner, context_id):
        return erased
    return Erased(entries=0 if context_id is not None else conversations.drop_entries(owner, ROWS))


def _erase_tasks(store: Store, owner: str, context_id: str | None, at: int) -> Erased:
    """A batch of tasks, each with its events first, which may take several batches."""
    tasks = items = events = 0
    for task_id in store.lists.ids(owner, context_id)[:TASKS]:
        task = store.tasks[task_id]
        events += store.drop_events(task, ROWS - events)
        if task.events:
            break
        tasks += 1
        items += _drop(store, task, at) - 1
        if tasks + items + events >= ROWS:
            break
    return Erased(tasks=tasks, items=items, events=events)


def _erase_conversations(store: Store, owner: str, context_id: str | None) -> Erased:
    """A batch of conversations, each with the model messages that no other one shares."""
    ids = [context_id]
    if context_id is None:
        ids = [conversation_id for conversation_id, _ in store.conversations.of_owner(owner)[:TASKS]]
    erased = entries = 0
    for conversation_id in ids:
        dropped = store.conversations.erase(owner, str(conversation_id), ROWS - entries)
        erased += dropped is not None
        entries += dropped or 0
        if entries >= ROWS:
            break
    return Erased(conversations=erased, entries=entries)
