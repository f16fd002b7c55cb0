"""The events of tasks: added to the log, and read by number."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ....types.stored_events import TaskEvent
from ....wire.protocol import stored, stored_values
from .damaged_bodies import check_stored
from .task_rows import HEADER, LAST_EVENT, OF_TASK, add_items, header_of
from .transaction import Statement, Transaction, Write

logger = logging.getLogger('pydantic_ai_a2a')

_LOG_FROM_NOW = f'UPDATE task SET logged_after = {LAST_EVENT} WHERE agent = ? AND id = ? AND logged_after IS NULL'
ADD_EVENT = 'INSERT INTO event (agent, task_id, n, state, payload) VALUES (?, ?, ?, ?, ?)'
_EXISTS = 'SELECT 1 FROM task WHERE agent = ? AND id = ?'
_ARTIFACTS = f"{OF_TASK} AND kind = 'artifact'"
_UPDATES = (
    f'SELECT payload FROM event WHERE {OF_TASK} AND (state IS NULL OR substr(payload, 1, {len(stored.NOTE)}) = ?)'
    ' ORDER BY n'
)


def events_after(agent: str, task_id: str, after: int, limit: int) -> Transaction[list[TaskEvent] | None]:
    """Stored events of a task after a number, in order; None if there is no such task."""
    rows: Sequence[Any] = yield (
        'SELECT n, state, payload FROM event WHERE agent = ? AND task_id = ? AND n > ? ORDER BY n LIMIT ?',
        (agent, task_id, after, limit),
    )
    if not rows and not (yield _EXISTS, (agent, task_id)):
        return None
    check_stored(task_id, *(payload for _, _, payload in rows))
    return [TaskEvent(*row) for row in rows]


def stopped_after(agent: str, task_id: str, after: int) -> Transaction[bool]:
    """Return true if an event after `after` ended or interrupted the task, or if the task or its events are gone."""
    rows = yield (
        'SELECT 1 WHERE NOT EXISTS'
        ' (SELECT 1 FROM task WHERE agent = ? AND id = ? AND stop_event <= ? AND events_swept = 0)',
        (agent, task_id, after),
    )
    return bool(rows)


def resumable(agent: str, task_id: str, n: int) -> Transaction[bool]:
    """See `EventLog.has`."""
    rows = yield (
        'SELECT (SELECT MIN(n) FROM event WHERE event.agent = task.agent AND event.task_id = task.id), logged_after,'
        f' {HEADER} FROM task WHERE agent = ? AND id = ?',
        (agent, task_id),
    )
    if not rows:
        return False
    oldest, logged_after, *fields = rows[0]
    newest = header_of(fields).last_event
    if n >= newest:
        return n == newest
    return logged_after is not None and n >= logged_after and oldest is not None and n >= oldest - 1


def add_events(agent: str, task_id: str, events: Sequence[TaskEvent]) -> Write:
    """Add events to the log. The caller has checked the fence."""
    return ADD_EVENT, [(agent, task_id, *event) for event in events]


def log_from_now(agent: str, task_id: str) -> Write:
    """Let the log of a task that is not over have all events from now on. The caller has locked the task."""
    return _LOG_FROM_NOW, [(agent, task_id)]


def updates(agent: str, task_id: str) -> Statement:
    """Return the query of the logged artifact updates of a task, and of its notes for readers of live text."""
    return _UPDATES, (agent, task_id, stored.NOTE)


def keep_streamed(agent: str, task_id: str) -> Transaction[None]:
    """Store the streamed artifacts of a task without a result: readers have seen the artifacts (§4.2.2)."""
    rows = yield updates(agent, task_id)
    if not rows:
        return
    before = yield f'SELECT body FROM item WHERE {_ARTIFACTS} ORDER BY seq', (agent, task_id)
    try:
        bodies = stored.assemble((row[0] for row in before), (row[0] for row in rows), partial=False)
        items = [('artifact', stored_values.load_artifact(body)['artifact_id'], body) for body in bodies]
    except Exception as error:  # its text may have the data; the task has to end all the same
        text = 'The streamed artifacts of task %s are damaged in the store, and are left out: %s.'
        logger.error(text, task_id, type(error).__name__)
        return
    yield [(f'DELETE FROM item WHERE {_ARTIFACTS}', [(agent, task_id)]), add_items(agent, task_id, items)]
