"""Reads of tasks and events, each one transaction so that what comes back belongs together. Pure, like `sql`."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import compress
from struct import Struct
from struct import error as StructError
from typing import Any

from ...errors import StoredDamaged
from ...protocol import stored
from ...types import INTERRUPTED, TERMINAL, Page, StoredTask, TaskEvent, TaskQuery
from ..ports import Pause
from . import ranges
from .task_rows import HEADER, HEADER_SIZE, LAST_EVENT, TASK, header_of, log_from_now, updates
from .transaction import LockTasks, Statement, Transaction, TryNames, check_stored, where

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
    # Each answer to a pause adds a run to a turn.
    ' ORDER BY item.seq DESC LIMIT 1), request), run = turn'
    f' FROM task WHERE {TASK} AND owner = ? AND state IN ({_INTERRUPTED})'
)
_SPACES = bytes.maketrans(b'am', b'  ')
_MESSAGES_FIRST, _ARTIFACTS_FIRST = bytes.maketrans(b'am', b'\0\1'), bytes.maketrans(b'am', b'\1\0')
ENDED_STATES = ('completed', 'failed', 'canceled', 'rejected')
ENDED = f'{ranges.FILED} AND state NOT IN {tuple(sorted(INTERRUPTED))}'
CONVERSATIONS = 'conversation'
"""The kind of conversations, counted for all owners together. The kind of a task is the state."""
EVERYBODY = ''
"""The owner of the totals of all owners."""
_BATCH = 1000
"""The most changes to move in one transaction."""
_ADD = (
    'INSERT INTO total (agent, owner, kind, number) VALUES (?, ?, ?, ?)'
    ' ON CONFLICT (agent, owner, kind) DO UPDATE SET number = total.number + excluded.number'
)
_DROP = 'DELETE FROM total WHERE agent = ? AND owner = ? AND kind = ? AND number = 0'


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
    message, ending, has_items = task_row[HEADER_SIZE:]
    messages, bodies = split_items(header.id, ending)
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
    of_state = ranges.of_state(query.state)
    if query.context_id is None and query.since is None:
        total = yield count_tasks(agent, query.owner, () if query.state is None else (query.state,))
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
    number, context_id, pending, request, first = rows[0]
    return Pause(number, context_id, pending, request or None, bool(first))


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


def join_items(items: Sequence[tuple[str, str, bytes]]) -> bytes | None:
    """Join messages and artifacts: (kind, id, JSON). None for none."""
    if not items:
        return None
    lengths = ' '.join(f'{kind[0]}{len(body)}' for kind, _, body in items)
    return b''.join([lengths.encode(), b'\n', *(body for _, _, body in items)])


def number_items(ending: bytes | None) -> int:
    """Return the number of joined messages and artifacts, also of damaged bytes."""
    return 0 if ending is None else len(bytes(ending).partition(b'\n')[0].split())


def split_items(task_id: str, ending: bytes | None) -> tuple[list[bytes], list[bytes]]:
    """Return the messages and the artifacts of an ended task. There may be thousands: no call of Python for each.

    Raises:
        StoredDamaged: The bytes are not from `join`.
    """
    if ending is None:
        return [], []
    lengths = ending[: max(0, ending.find(b'\n'))]  # `partition` would copy the rest
    kinds = lengths.translate(None, b'0123456789 ')
    sizes = b's'.join(lengths.translate(_SPACES).split())
    try:
        bodies = Struct(b'%dx%bs' % (len(lengths) + 1, sizes)).unpack(ending)
    except StructError:
        bodies = ()
    if not kinds or kinds.strip(b'am') or len(bodies) != len(kinds):
        raise StoredDamaged(f'Task {task_id} has a stored end that cannot be read.')
    return [*compress(bodies, kinds.translate(_MESSAGES_FIRST))], [*compress(bodies, kinds.translate(_ARTIFACTS_FIRST))]


def lock_sweep(agent: str) -> TryNames:
    """Lock the totals of a namespace for one sweep, without waiting. Only the holder may change totals."""
    return TryNames([(agent, 'sweep')])


def count_tasks(agent: str, owner: str | None, kinds: Sequence[str] = ()) -> Statement:
    """The statement that reads the number of rows of some kinds; without kinds, of tasks in any state.

    Args:
        agent: Namespace.
        owner: Owner of the tasks; None for all owners.
        kinds: States of tasks, or `CONVERSATIONS`.
    """
    among = f'IN ({", ".join("?" * len(kinds))})' if kinds else f"<> '{CONVERSATIONS}'"
    of_owner, owners = ('', ()) if owner is None else (' AND owner = ?', (owner,))
    changed = (
        'SELECT CAST(COALESCE((SELECT SUM(number) FROM total'
        f' WHERE agent = ? AND owner = ? AND kind {among}), 0) AS BIGINT)'
        f' + (SELECT COUNT(CASE WHEN new_kind {among} THEN 1 END) - COUNT(CASE WHEN old_kind {among} THEN 1 END)'
        f' FROM total_change WHERE agent = ?{of_owner})'
    )
    values = (agent, EVERYBODY if owner is None else owner, *kinds, *kinds, *kinds, agent, *owners)
    uncounted = ranges.UNCOUNTED
    if kinds:
        uncounted = [
            of for kind in kinds if kind != CONVERSATIONS for of in ranges.of_state(kind) if ranges.FILED not in of
        ]
    if not uncounted:
        return changed, values
    counted, more = ranges.number(uncounted, f'agent = ?{of_owner}', (agent, *owners))
    return f'{changed} + ({counted})', (*values, *more)


def fold_totals(agent: str) -> Transaction[int]:
    """Move a batch of changes into the totals, under `lock_sweep`; return 0 if it moved all of them, else 1."""
    rows = yield (
        'DELETE FROM total_change WHERE seq IN (SELECT seq FROM total_change WHERE agent = ? LIMIT ?)'
        ' RETURNING owner, old_kind, new_kind',
        (agent, _BATCH),
    )
    numbers: Counter[tuple[str, str]] = Counter()
    for owner, old, new in rows:
        for kind, number in ((old, -1), (new, 1)):
            if kind is not None:
                numbers.update({(counted, kind): number for counted in (owner, EVERYBODY)})
    changed = [(agent, owner, kind, number) for (owner, kind), number in numbers.items() if number]
    yield [(_ADD, changed), (_DROP, [row[:3] for row in changed])]
    return int(len(rows) == _BATCH)
