"""Reads of tasks, each one transaction so that what comes back belongs together."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Any

from ....errors import StoredDamaged, TaskNotFoundError
from ....task_states import TERMINAL
from ....types.stored_tasks import StoredTask
from ....types.task_queries import Page, TaskQuery
from ....wire.protocol import stored
from . import task_ranges
from .damaged_bodies import check_stored
from .event_log import log_from_now, updates
from .joined_items import split_items
from .key_conditions import KEYS, among, where
from .task_rows import HEADER, TASK, header_of
from .totals import count_tasks
from .transaction import LockTasks, Statement, Transaction

logger = logging.getLogger('pydantic_ai_a2a')

_NEWEST = 'ORDER BY status_at DESC, id DESC'
_NO_LIMIT = 2**31
_HAS_ITEMS = 'EXISTS (SELECT 1 FROM item WHERE item.agent = task.agent AND item.task_id = task.id)'
_WHOLE = f'{HEADER}, message, ending, {_HAS_ITEMS}'
_LOAD = f'SELECT {_WHOLE} FROM task WHERE {TASK} AND (owner = ? OR CAST(? AS TEXT) IS NULL)'
_LOAD_STOPPED = f'SELECT {_WHOLE} FROM task WHERE {TASK} AND (stop_event > ? OR events_swept = 1)'
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


def load(
    agent: str,
    task_id: str,
    owner: str | None,
    *,
    history_length: int | None = None,
    artifacts: bool = True,
    live: bool = True,
) -> Transaction[StoredTask | None]:
    """See `TaskReader.load`, and `TaskReader.watch` for `live`."""
    rows = yield _LOAD, (agent, task_id, owner, owner)
    if not rows:
        return None
    return (yield from _with_items(agent, rows[0], history_length, artifacts, live=live))


def queued_among(agent: str, task_ids: Sequence[str]) -> Transaction[set[str]]:
    """See `TaskReader.queued_among`."""
    queued: set[str] = set()
    for start in range(0, len(task_ids), KEYS):
        condition, values = among('id', [(task_id,) for task_id in task_ids[start : start + KEYS]])
        rows = yield f'SELECT id FROM task WHERE agent = ? AND queued = 1 AND {condition}', (agent, *values)
        queued.update(row[0] for row in rows)
    return queued


def load_stopped(agent: str, task_id: str, after: int) -> Transaction[StoredTask | None]:
    """Return a task that an event after `after` has stopped, or whose events are gone; None for another task.

    Raises:
        TaskNotFoundError: The task is gone.
    """
    rows = yield _LOAD_STOPPED, (agent, task_id, after)
    if rows:
        return (yield from _with_items(agent, rows[0], None, artifacts=True))
    if not (yield f'SELECT 1 FROM task WHERE {TASK}', (agent, task_id)):
        raise TaskNotFoundError
    return None


def watch(agent: str, task_id: str, owner: str | None, *, live: bool = True) -> Transaction[StoredTask | None]:
    """See `TaskReader.watch`."""
    yield LockTasks(agent, [task_id])
    task = yield from load(agent, task_id, owner, live=live)
    if task is not None and task.header.state not in TERMINAL:
        yield [log_from_now(agent, task_id)]
    return task


def _with_items(
    agent: str, task_row: Sequence[Any], history_length: int | None, artifacts: bool, *, live: bool = True
) -> Transaction[StoredTask]:
    """Return the task of a `_WHOLE` row."""
    header = header_of(task_row)
    *_, message, ending, has_items = task_row
    messages, bodies = [message], list[bytes]()
    if has_items:  # most tasks have one turn, and no items: a page of such tasks takes no statement for each
        for kind, *_, body in (yield _items((agent, header.id), history_length, artifacts=artifacts)):
            (messages if kind == 'message' else bodies).append(body)
    last_messages, last_bodies = split_items(header.id, ending)
    messages += last_messages
    bodies += last_bodies
    check_stored(header.id, *messages, *bodies, header.status_message, header.metadata)
    # `messages` begins with the first message. The slice drops it if the other messages are enough.
    newest = _NO_LIMIT if history_length is None else history_length
    history = messages[-newest:] if newest else None
    if not artifacts:
        return StoredTask(header, history, None)
    if header.state not in TERMINAL:
        logged = yield updates(agent, header.id)
        if payloads := [row[0] for row in logged if live or not stored.is_live(row[0])]:
            check_stored(header.id, *payloads)
            bodies = stored.assemble(bodies, payloads, partial=header.state == 'working')
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
    of_state = task_ranges.of_state(query.state)
    if query.context_id is None and query.since is None:
        total = yield count_tasks(agent, query.owner, () if query.state is None else (query.state,))
    else:
        total = yield task_ranges.number(of_state, *where(listed))
    older, values = where({**listed, '(status_at, id) < (?, ?)': query.before})
    found, all_values = task_ranges.union(
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


def unread(agent: str, task_id: str, after: int) -> Transaction[list[tuple[int, bytes, bytes | None]]]:
    """See `TaskReader.unread`."""
    rows = yield _UNREAD, (agent, task_id, after, agent, task_id, after)
    return [(seq, body, request or None) for seq, body, request in rows]
