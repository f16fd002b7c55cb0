"""Filing: stopped tasks get into the indexes of lists and of sweeps in batches.

A task that has just stopped is not filed: one small index has such tasks, and lists read them from there. Every
`EVERY` ends of runs, and each sweep, file a batch. A batch writes a page of an index once for many tasks. So the end
of a run on SQLite writes one index in place of five.

A conversation is listed for sweeps, and counted, with the first filed task of its context.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....task_states import STOPPED
from . import task_ranges
from .key_conditions import KEYS, among
from .transaction import Transaction, Write

EVERY = 100
"""The ends of runs in a process between two batches. Lists read about as many tasks that are not filed."""
BATCH = 500
"""The most tasks of a batch."""
_UNFILED = (
    # A task in an unknown state is never filed: lists leave it out with a log line, and no sweep deletes it.
    f'SELECT id FROM task WHERE agent = ? AND {task_ranges.UNFILED} AND state IN {tuple(sorted(STOPPED))}'
    ' ORDER BY owner, status_at LIMIT ? /* FOR NO KEY UPDATE SKIP LOCKED */'
)
_FILE = f'UPDATE task SET filed = 1 WHERE {{}} AND {task_ranges.UNFILED}'
_UNFILE = f'UPDATE task SET filed = 0 WHERE agent = ? AND id = ? AND {task_ranges.FILED}'
_LIST = 'UPDATE conversation SET listed_at = updated_at WHERE {} AND listed_at IS NULL'
_LIST_OF_TASKS = _LIST.format(
    # A locked conversation is in a transaction whose task is filed later.
    '(agent, owner, id) IN (SELECT c.agent, c.owner, c.id FROM task CROSS JOIN conversation c WHERE {} AND'
    ' c.agent = task.agent AND c.owner = task.owner AND c.id = task.context_id AND c.listed_at IS NULL'
    ' /* FOR NO KEY UPDATE OF c SKIP LOCKED */)'
)


def file(agent: str) -> Transaction[int]:
    """File a batch of stopped tasks; return 0 if these were all, else 1."""
    rows = yield _UNFILED, (agent, BATCH)
    for start in range(0, len(rows), KEYS):
        keys = [(agent, task_id) for (task_id,) in rows[start : start + KEYS]]
        of_tasks, values = among('task.agent, task.id', keys)
        ids, _ = among('agent, id', keys)
        yield [(_FILE.format(ids), [values]), (_LIST_OF_TASKS.format(of_tasks), [values])]
    return int(len(rows) == BATCH)


def unfile(agent: str, ids: Sequence[str]) -> Write:
    """Take tasks out of the indexes of lists and of sweeps. The caller has locked the tasks."""
    return _UNFILE, [(agent, task_id) for task_id in ids]


def list_conversations(agent: str, keys: Sequence[tuple[str, str]]) -> Write:
    """List the conversations (owner, id) of tasks that are deleted before they are filed."""
    of_keys, values = among('agent, owner, id', [(agent, *key) for key in keys])
    return _LIST.format(of_keys), [values]
