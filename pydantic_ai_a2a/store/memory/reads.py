"""Reads of tasks and events in memory: what a read returns belongs together."""

from __future__ import annotations

import sys

from ...protocol import stored
from ...types import STOPPED, TERMINAL, Page, StoredTask, TaskQuery
from .records import Task
from .store import Store


def load(task: Task, *, history_length: int | None, artifacts: bool) -> StoredTask:
    """Return a task with its newest messages."""
    history = None
    if history_length is None:
        history = [*map(bytes, task.history)]  # `map` takes no call for each message
    elif history_length:
        history = [*map(bytes, task.history[-history_length:])]
    if not artifacts:
        return StoredTask(task.header(), history, None)
    bodies = [*task.artifacts]
    if task.state not in TERMINAL and (updates := task.updates()):
        bodies = stored.assemble(bodies, updates, partial=task.state == 'working')
    return StoredTask(task.header(), history, bodies)


def page(store: Store, query: TaskQuery) -> Page:
    """See `TaskReader.list`."""
    keys, total = store.lists.page(query, query.page_size + 1)
    tasks: list[StoredTask] = []
    room = sys.maxsize if query.max_bytes is None else query.max_bytes
    for _, task_id in keys[: query.page_size]:
        task = load(store.tasks[task_id], history_length=query.history_length, artifacts=query.include_artifacts)
        room -= sum(map(len, (*(task.history or ()), *(task.artifacts or ()))))
        if tasks and room < 0:
            break
        tasks.append(task)
    following = keys[len(tasks) - 1] if tasks and len(keys) > len(tasks) else None
    return Page(tasks, following, total)


def stopped_after(task: Task | None, after: int) -> bool:
    """Return True if an event after `after` ended or interrupted the task, or if the task or its events are gone."""
    if task is None or task.events_swept:
        return True
    if task.state in TERMINAL:  # the log may have no events of an ended task
        return task.last_event > after
    for event in reversed(task.events):
        if event.n <= after:
            break
        if event.state in STOPPED:
            return True
    return False


def resumable(task: Task | None, n: int) -> bool:
    """See `EventLog.has`."""
    if task is None or n >= task.last_event:
        return task is not None and n == task.last_event
    return task.logged_after is not None and n >= max(task.logged_after, task.last_event - len(task.events))
