"""Tasks with an open approval, for approvers: the table `approval` finds them, newest first."""

from __future__ import annotations

from secrets import token_bytes

from ..ports import OpenApprovals
from .interrupted_tasks import PAUSE, pause_of
from .key_conditions import where
from .task_rows import HEADER, header_of
from .transaction import Transaction

_NEWEST = 'ORDER BY status_at DESC, task_id DESC LIMIT ?'
_TASKS = (
    f'SELECT {HEADER}, {PAUSE} FROM task WHERE agent = ? AND id IN (SELECT task_id FROM approval WHERE {{}} {_NEWEST})'
    ' ORDER BY status_at DESC, id DESC'
)

_NEW_KEY = "INSERT INTO secret (agent, name, value) VALUES (?, 'page tokens', ?) ON CONFLICT DO NOTHING"
_KEY = "SELECT value FROM secret WHERE agent = ? AND name = 'page tokens'"


def open_approvals(
    agent: str, owner: str, *, limit: int, before: tuple[int, str] | None = None, since: int | None = None
) -> Transaction[OpenApprovals]:
    """See `TaskReader.open_approvals`."""
    tenant, _, _ = owner.partition('/')
    among = {'agent = ?': agent, 'tenant = ?': tenant, 'owner <> ?': owner, 'status_at >= ?': since}
    condition, values = where(among)
    [(total,)] = yield f'SELECT COUNT(*) FROM approval WHERE {condition}', values
    condition, values = where({**among, '(status_at, task_id) < (?, ?)': before})
    rows = yield _TASKS.format(condition), (agent, *values, limit)
    headers = [(header_of(row), row[-3:]) for row in rows]
    return OpenApprovals([(task, pause_of(task.last_event, task.context_id, *rest)) for task, rest in headers], total)


def page_key(agent: str) -> Transaction[bytes]:
    """See `TaskReader.page_key`."""
    yield [(_NEW_KEY, [(agent, token_bytes(32))])]
    [(key,)] = yield _KEY, (agent,)
    return key
