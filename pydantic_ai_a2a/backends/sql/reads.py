"""Reads of tasks and events, each one transaction so that what comes back belongs together. Pure, like `sql`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Any

from ...errors import StoredDamaged
from ...ports import Pause
from ...protocol import stored
from ...types import INTERRUPTED, TERMINAL, Page, StoredTask, TaskEvent, TaskQuery
from . import endings, ranges, totals
from .damage import check_stored
from .transaction import LockTasks, Statement, Transaction, where
from .vocabulary import HEADER, HEADER_SIZE, LAST_EVENT, TASK, header_of, log_from_now

__all__ = ('events_after', 'load', 'page', 'pause', 'resumable', 'stopped_after', 'unread', 'watch')

logger = logging.getLogger('pydantic_ai_a2a')

_INTERRUPTED = ', '.join(f"'{state}'" for state in sorted(INTERRUPTED))
_NEWEST = 'ORDER BY status_at DESC, id DESC'
_NO_LIMIT = 2**31
_HAS_ITEMS = 'EXISTS (SELECT 1 FROM item WHERE item.agent = task.agent AND item.task_id = task.id)'
_WHOLE = f'{HEADER}, message, ending, {_HAS_ITEMS}'
_LOAD = f'SELECT {_WHOLE} FROM task WHERE {TASK} AND (owner = ? OR CAST(? AS TEXT) IS NULL)'
_ALL_ITEMS = 'SELECT kind, body FROM item WHERE agent = ? AND task_id = ? ORDER BY kind, seq'
_ARTIFACTS = "SELECT kind, seq, body FROM item WHERE agent = ? AND task_id = ? AND kind = 'artifact'"
_MESSAGES = (  # the numbers of messages have no gaps
    "SELECT kind, seq, body FROM item WHERE agent = ? AND task_id = ? AND kind = 'message' AND seq >"
    " (SELECT COALESCE(MAX(seq), 0) FROM item WHERE agent = ? AND task_id = ? AND kind = 'message') - ?"
)
_NEWEST_MESSAGES = f'{_MESSAGES} ORDER BY seq'
_NEWEST_ITEMS = f'{_ARTIFACTS} UNION ALL {_MESSAGES} ORDER BY kind, seq'
_UNREAD = (
    f'SELECT 1 AS seq, message, request FROM task WHERE {TASK} AND CAST(? AS BIGINT) < 1 UNION ALL SELECT item.seq,'
    ' item.body, COALESCE(item.request, task.request) FROM item JOIN task ON task.agent = item.agent AND task.id ='
    " item.task_id WHERE item.agent = ? AND item.task_id = ? AND item.kind = 'message' AND item.seq > ?"
    ' AND item.answer = 0 ORDER BY seq'
)
_PAUSE = (
    f'SELECT {LAST_EVENT}, context_id, pending, COALESCE((SELECT item.request FROM item WHERE item.agent = task.agent'
    " AND item.task_id = task.id AND item.kind = 'message' AND (item.answer > 0 OR item.seq <= task.inbox_read)"
    f' ORDER BY item.seq DESC LIMIT 1), request) FROM task WHERE {TASK} AND owner = ? AND state IN ({_INTERRUPTED})'
)


def load(
    agent: str, task_id: str, owner: str | None, *, history_length: int | None, artifacts: bool
) -> Transaction[StoredTask | None]:
    """See `TaskReader.load`."""
    rows = yield _LOAD, (agent, task_id, owner, owner)
    if not rows:
        return None
    return (yield from _with_items(agent, rows[0], history_length, artifacts))


def watch(agent: str, task_id: str, owner: str | None) -> Transaction[StoredTask | None]:
    """See `TaskReader.watch`."""
    yield LockTasks(agent, [task_id])
    task = yield from load(agent, task_id, owner, history_length=None, artifacts=True)
    if task is not None and task.header.state not in TERMINAL:
        yield [log_from_now(agent, task_id)]
    return task


def _with_items(
    agent: str, task_row: Sequence[Any], history_length: int | None, artifacts: bool
) -> Transaction[StoredTask]:
    """Return the task of a `_WHOLE` row."""
    header = header_of(task_row)
    message, ending, has_items = task_row[HEADER_SIZE:]
    messages, bodies = endings.split_items(header.id, ending)
    # Most tasks have one turn, and no items: a page of such tasks takes no statement for each.
    rows = (yield _items((agent, header.id), history_length, artifacts=artifacts)) if has_items else ()
    messages = [message, *(row[-1] for row in rows if row[0] == 'message'), *messages]
    bodies = [*(row[-1] for row in rows if row[0] == 'artifact'), *bodies]
    check_stored(header.id, *messages, *bodies, header.status_message, header.metadata)
    # `messages` begins with the first message. The slice drops it if the other messages are enough.
    newest = _NO_LIMIT if history_length is None else history_length
    history = messages[-newest:] if newest else None
    if not artifacts:
        return StoredTask(header, history, None)
    if header.state not in TERMINAL:
        updates = yield (
            'SELECT payload FROM event WHERE agent = ? AND task_id = ? AND state IS NULL ORDER BY n',
            (agent, header.id),
        )
        if updates:
            check_stored(header.id, *(row[0] for row in updates))
            bodies = stored.assemble(bodies, (row[0] for row in updates), partial=header.state == 'working')
    return StoredTask(header, history, bodies)


def _items(task: tuple[str, str], history_length: int | None, *, artifacts: bool) -> Statement:
    """Return the query of the newest messages of a task, and of its artifacts."""
    if artifacts and history_length is None:
        return _ALL_ITEMS, task
    newest = (*task, *task, _NO_LIMIT if history_length is None else history_length)
    return (_NEWEST_ITEMS, (*task, *newest)) if artifacts else (_NEWEST_MESSAGES, newest)


def page(agent: str, query: TaskQuery) -> Transaction[Page]:
    """See `TaskReader.list`."""
    listed = {
        'agent = ?': agent,
        'owner = ?': query.owner,
        'context_id = ?': query.context_id,
        'status_at >= ?': query.since,
    }
    of_state = ranges.of_state(query.state)
    if query.context_id is None and query.since is None:
        total = yield totals.count_tasks(agent, query.owner, () if query.state is None else (query.state,))
    else:
        total = yield ranges.number(of_state, *where(listed))
    older, values = where({**listed, '(status_at, id) < (?, ?)': query.before})
    found, all_values = ranges.union(
        of_state, 'status_at, id', older, (*values, query.page_size + 1), f'{_NEWEST} LIMIT ?'
    )
    rows = yield (
        f'SELECT {_WHOLE} FROM task WHERE agent = ? AND id IN'
        f' (SELECT id FROM ({found}) AS found {_NEWEST} LIMIT ?) {_NEWEST}',
        (agent, *all_values, query.page_size + 1),
    )
    tasks: list[StoredTask] = []
    room = sys.maxsize if query.max_bytes is None else query.max_bytes
    shown = 0
    for row in rows[: query.page_size]:
        try:
            task = yield from _with_items(agent, row, query.history_length, query.include_artifacts)
        except StoredDamaged as damaged:
            logger.error('A list leaves out a damaged task: %s', damaged)
            shown += 1
            continue
        room -= sum(map(len, (*(task.history or ()), *(task.artifacts or ()))))
        if tasks and room < 0:
            break
        tasks.append(task)
        shown += 1
    following = None
    if len(rows) > shown:
        last = rows[shown - 1]
        following = (last[4], last[0])  # status_at and id of a `HEADER` row
    return Page(tasks, following, total[0][0])


def pause(agent: str, task_id: str, owner: str) -> Transaction[Pause | None]:
    """See `TaskReader.pause`."""
    rows = yield _PAUSE, (agent, task_id, owner)
    if not rows:
        return None
    number, context_id, pending, request = rows[0]
    return Pause(number, context_id, pending, request or None)


def unread(agent: str, task_id: str, after: int) -> Transaction[list[tuple[int, bytes, bytes | None]]]:
    """See `TaskReader.unread`."""
    rows = yield _UNREAD, (agent, task_id, after, agent, task_id, after)
    return [(seq, body, request or None) for seq, body, request in rows]


def events_after(agent: str, task_id: str, after: int, limit: int) -> Transaction[list[TaskEvent]]:
    """Stored events of a task after a number, in order."""
    rows: Sequence[Any] = yield (
        'SELECT n, state, payload FROM event WHERE agent = ? AND task_id = ? AND n > ? ORDER BY n LIMIT ?',
        (agent, task_id, after, limit),
    )
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
