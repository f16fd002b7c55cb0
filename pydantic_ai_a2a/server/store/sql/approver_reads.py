"""Tasks with an open approval, for approvers: the table `approval` finds them, newest first.

A page reads the newest rows of a tenant in the primary key of `approval`, until the limit, and then these tasks by
their primary key: as many rows with 10 waiting tasks as with 100,000, whoever owns them. So the tasks of the reader are
among them: to leave them out, a page would read all of them. A total counts the rows of the tenant in the primary key,
which has the owner for it, without a look at the tasks.

    SQLite, a page:       SEARCH approval USING PRIMARY KEY (agent=? AND tenant=? AND (status_at,task_id)<(?,?))
                          SEARCH task USING INDEX sqlite_autoindex_task_1 (agent=? AND id=?)
    SQLite, a total:      SEARCH approval USING PRIMARY KEY (agent=? AND tenant=?)
    PostgreSQL, a page:   Limit -> Index Only Scan Backward using approval_pkey on approval
                          Index Scan using task_pkey on task
    PostgreSQL, a total:  Index Only Scan using approval_pkey on approval; if the tenant has most rows, Seq Scan
"""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_bytes

from ....types.stored_tasks import TaskHeader
from ..ports import Pause
from .key_conditions import where
from .task_rows import HEADER, header_of
from .transaction import Transaction
from .waiting_tasks import PAUSE, pause_of

_NEWEST = 'ORDER BY status_at DESC, task_id DESC LIMIT ?'
_TASKS = (
    f'SELECT {HEADER}, {PAUSE} FROM task WHERE agent = ? AND id IN (SELECT task_id FROM approval WHERE {{}} {_NEWEST})'
    ' ORDER BY status_at DESC, id DESC'
)

_NEW_KEY = "INSERT INTO secret (agent, name, value) VALUES (?, 'page tokens', ?) ON CONFLICT DO NOTHING"
_KEY = "SELECT value FROM secret WHERE agent = ? AND name = 'page tokens'"


def open_approvals(
    agent: str, owner: str, *, limit: int, before: tuple[int, str] | None = None, since: int | None = None
) -> Transaction[Sequence[tuple[TaskHeader, Pause]]]:
    """See `TaskReader.open_approvals`."""
    condition, values = where(
        {
            'agent = ?': agent,
            'tenant = ?': _tenant(owner),
            'status_at >= ?': since,
            '(status_at, task_id) < (?, ?)': before,
        }
    )
    rows = yield _TASKS.format(condition), (agent, *values, limit)
    headers = [(header_of(row), row[-3:]) for row in rows]
    return [(task, pause_of(task.last_event, task.context_id, *rest)) for task, rest in headers]


def count_open_approvals(agent: str, owner: str, *, since: int | None = None) -> Transaction[int]:
    """See `TaskReader.count_open_approvals`."""
    condition, values = where(
        {'agent = ?': agent, 'tenant = ?': _tenant(owner), 'owner <> ?': owner, 'status_at >= ?': since}
    )
    [(number,)] = yield f'SELECT COUNT(*) FROM approval WHERE {condition}', values
    return number


def page_key(agent: str) -> Transaction[bytes]:
    """See `TaskReader.page_key`."""
    yield [(_NEW_KEY, [(agent, token_bytes(32))])]
    [(key,)] = yield _KEY, (agent,)
    return key


def _tenant(owner: str) -> str:
    """Return the tenant of an owner, as in `approval.tenant`."""
    return owner.partition('/')[0]
