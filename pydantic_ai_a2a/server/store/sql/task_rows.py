"""The rows of tasks with their messages and artifacts, and common steps of transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....errors import StoredDamaged, TaskNotFoundError
from ....task_states import LIVE, STOPPED
from ....types.stored_tasks import TaskHeader
from ..ports import Status
from .transaction import LockName, LockTasks, Transaction, Write

LAST_EVENT = (
    'COALESCE((SELECT MAX(n) FROM event WHERE event.agent = task.agent AND event.task_id = task.id'
    ' AND event.n > task.last_event), last_event)'
)
HEADER = f'id, context_id, owner, state, status_at, status_message, metadata, dialect, queued, {LAST_EVENT}'
"""The columns of a task that `header_of` reads. More columns may follow them."""
_STATES = LIVE | STOPPED
_BY_ID = f'SELECT {HEADER} FROM task WHERE agent = ? AND id = ?'
BY_ID_AND_OWNER = f'{_BY_ID} AND (owner = ? OR CAST(? AS TEXT) IS NULL)'
TASK = 'agent = ? AND id = ?'
OF_TASK = 'agent = ? AND task_id = ?'
HELD = f"{TASK} AND fence = ? AND holder = ? AND state = 'working'"
IS_DUE = 'COALESCE(lease_until, 0) <= (SELECT a2a_clock())'  # reads the clock once for all rows
"""The pause of a released task is over."""
MESSAGE_OF_TASK = "item.agent = task.agent AND item.task_id = task.id AND item.kind = 'message'"
UNREAD = f'{MESSAGE_OF_TASK} AND item.seq > task.inbox_read AND item.answer = 0'
"""A message after the first that is to be the prompt of a run, and was not yet."""
FIRST_UNREAD = f'CASE WHEN task.inbox_read = 0 THEN 1 ELSE (SELECT MIN(seq) FROM item WHERE {UNREAD}) END'
"""The number of the next prompt of a task; NULL for none."""
NEXT_ITEM = '(SELECT COALESCE(MAX(seq), 1) + 1 FROM item WHERE agent = ? AND task_id = ? AND kind = ?)'
"""The number of a new item (agent, task, kind). The caller has locked the task."""
_ADD_ITEM = f'INSERT INTO item (agent, task_id, kind, seq, id, body) VALUES (?, ?, ?, {NEXT_ITEM}, ?, ?)'
_MESSAGE_TO_HISTORY = (
    "INSERT INTO item (agent, task_id, kind, seq, id, body) SELECT agent, id, 'message',"
    f' (SELECT COALESCE(MAX(seq), 1) + 1 FROM item WHERE {MESSAGE_OF_TASK}),'
    f" '', status_message FROM task WHERE {TASK} AND status_message IS NOT NULL"
)


def header_of(row: Sequence[Any]) -> TaskHeader:
    """Return the header of a row that begins with the columns `HEADER`.

    Raises:
        StoredDamaged: The row has an unknown state.
    """
    task_id, context_id, owner, state, status_at, message, metadata, dialect, queued, last_event, *_ = row
    if state not in _STATES:
        raise unknown_state(task_id, state)
    return TaskHeader(
        id=task_id,
        context_id=context_id,
        owner=owner,
        state=state,
        status_at=status_at,
        status_message=message,
        metadata=metadata,
        last_event=last_event,
        dialect=dialect,
        queued=bool(queued),
    )


def unknown_state(task_id: str, state: str) -> StoredDamaged:
    """Return the error of a task whose state is damaged, or is of a newer version."""
    return StoredDamaged(f'Task {task_id} is in the unknown state {state!r}.')


def find(agent: str, task_id: str, owner: str | None) -> Transaction[TaskHeader]:
    """Return the header of an owner's task.

    Raises:
        TaskNotFoundError: The owner has no such task.
    """
    return header_of((yield from _find_row(agent, task_id, owner)))


def _find_row(agent: str, task_id: str, owner: str | None) -> Transaction[Sequence[Any]]:
    rows = yield BY_ID_AND_OWNER, (agent, task_id, owner, owner)
    if not rows:
        raise TaskNotFoundError
    return rows[0]


def find_locked(agent: str, task_id: str, owner: str | None) -> Transaction[TaskHeader]:
    """Lock a task and the context against other writers, and return the result of `find`."""
    return header_of((yield from find_row_locked(agent, task_id, owner)))


def find_row_locked(agent: str, task_id: str, owner: str | None) -> Transaction[Sequence[Any]]:
    """Lock a task like `find_locked`, and return the `HEADER` row. The row may have an unknown state."""
    _, context_id, task_owner, *_ = yield from _find_row(agent, task_id, owner)
    yield LockName((agent, task_owner, context_id))
    yield LockTasks(agent, [task_id])
    return (yield from _find_row(agent, task_id, owner))


def set_status(agent: str, task_id: str, status: Status) -> list[Write]:
    """Write a status; the previous status message moves into the history (§3.7)."""
    update = f'UPDATE task SET state = ?, status_at = ?, status_message = ?, filed = 0 WHERE {TASK}'
    return [message_to_history(agent, task_id), (update, [(*status, agent, task_id)])]


def message_to_history(agent: str, task_id: str) -> Write:
    """Copy the status message into the history, before a new status replaces the message."""
    return _MESSAGE_TO_HISTORY, [(agent, task_id)]


def add_items(agent: str, task_id: str, items: Sequence[tuple[str, str, bytes]]) -> Write:
    """Add messages and artifacts: (kind, id, JSON)."""
    return _ADD_ITEM, [(agent, task_id, kind, agent, task_id, kind, id, body) for kind, id, body in items]
