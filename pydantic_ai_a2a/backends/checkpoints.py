"""How far the runs of tasks have come: a row for each model message of the run's own turn. Pure, like `sql`."""

from __future__ import annotations

from ..errors import LeaseLost
from ..ports import Checkpoint, Claim
from . import conversations
from .sql import HELD, Transaction, Write

__all__ = ('KEPT', 'MIGRATION', 'load', 'move', 'save')

MIGRATION = (
    """
    CREATE TABLE checkpoint (
        agent TEXT NOT NULL,
        task_id TEXT NOT NULL,
        n BIGINT NOT NULL,
        run TEXT NOT NULL,
        message BLOB NOT NULL,
        used BLOB NOT NULL,
        PRIMARY KEY (agent, task_id, n)
    )
    """,
)

KEPT = 'EXISTS (SELECT 1 FROM checkpoint k WHERE k.agent = task.agent AND k.task_id = task.id)'
"""Whether the task of a row has a checkpoint."""
_OF_TASK = 'agent = ? AND task_id = ?'
_ADD = (
    'INSERT INTO checkpoint (agent, task_id, n, run, message, used)'
    f' SELECT agent, id, ?, ?, ?, ? FROM task WHERE {HELD} RETURNING n'
)


def load(agent: str, task_id: str) -> Transaction[Checkpoint]:
    """The checkpoint of a task that has one."""
    rows = yield f'SELECT run, message, used FROM checkpoint WHERE {_OF_TASK} ORDER BY n', (agent, task_id)
    messages = conversations.load_messages(b'[' + b','.join(row[1] for row in rows) + b']')
    run, _, used = rows[-1]
    return Checkpoint(run=run, messages=messages, usage=conversations.load_usage(used))


def save(agent: str, claimed: Claim, checkpoint: Checkpoint) -> Transaction[None]:
    """Replace what is stored from the checkpoint's first message on; LeaseLost if the claim is no longer valid."""
    task_id = claimed.header.id
    yield f'DELETE FROM checkpoint WHERE {_OF_TASK} AND n >= ?', (agent, task_id, checkpoint.first)
    used = conversations.dump_usage(checkpoint.usage)
    for n, message in enumerate(checkpoint.messages, checkpoint.first):
        body = conversations.dump_message(message)
        rows = yield _ADD, (n, checkpoint.run, body, used, agent, task_id, claimed.fence, claimed.holder)
        if not rows:
            raise LeaseLost


def move(agent: str, task_id: str, new_id: str) -> Write:
    """Give the checkpoint of a task to another one, whose first run goes on from it."""
    return f'UPDATE checkpoint SET task_id = ? WHERE {_OF_TASK}', [(new_id, agent, task_id)]
