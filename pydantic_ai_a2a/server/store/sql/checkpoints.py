"""Checkpoints of runs: a row for each model message of the run's own turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_ai.usage import RunUsage

from ....errors import LeaseLost
from ..model_messages import dump_message, load_message_rows
from ..ports import Checkpoint, Claim
from ..run_usage import dump_usage, load_usage
from .task_rows import HELD, OF_TASK
from .transaction import Statement, Transaction, Write

_ADD = (
    'INSERT INTO checkpoint (agent, task_id, n, run, message, used, taken)'
    f' SELECT agent, id, ?, ?, ?, ?, ? FROM task WHERE {HELD} RETURNING n'
)


def checkpoint_of(agent: str, task_id: str) -> Statement:
    """Return the query of the checkpoint of a task, for `load_checkpoint`."""
    return f'SELECT run, message, used, taken FROM checkpoint WHERE {OF_TASK} ORDER BY n', (agent, task_id)


def load_checkpoint(rows: Sequence[Any]) -> Checkpoint:
    """Return the checkpoint of the rows of a task."""
    messages = load_message_rows(row[1] for row in rows)
    run, _, used, taken = rows[-1]
    return Checkpoint(run=run, messages=messages, usage=load_usage(used), taken=taken)


def save_checkpoint(agent: str, claimed: Claim, checkpoint: Checkpoint) -> Transaction[None]:
    """Replace the stored messages from the first message of the checkpoint on.

    Raises:
        LeaseLost: The claim is no longer valid.
    """
    task_id = claimed.header.id
    yield f'DELETE FROM checkpoint WHERE {OF_TASK} AND n >= ?', (agent, task_id, checkpoint.first)
    used = dump_usage(checkpoint.usage)
    for n, message in enumerate(checkpoint.messages, checkpoint.first):
        body = dump_message(message)
        row = (n, checkpoint.run, body, used, checkpoint.taken)
        rows = yield _ADD, (*row, agent, task_id, claimed.fence, claimed.holder)
        if not rows:
            raise LeaseLost


def move_checkpoint(agent: str, task_id: str, new_id: str, messages: Sequence[int]) -> Transaction[RunUsage | None]:
    """Move the checkpoint of a task to a new task, for the first run of the new task.

    Return the usage in the checkpoint; None without a checkpoint.

    Args:
        agent: Namespace.
        task_id: The task.
        new_id: The new task, with copies of the unfinished messages.
        messages: The numbers of the copied messages.
    """
    rows = yield f'SELECT used, taken FROM checkpoint WHERE {OF_TASK} ORDER BY n DESC LIMIT 1', (agent, task_id)
    if not rows:
        return None
    used, taken = rows[0]
    entered = sum(row <= taken for row in messages)
    yield (
        'UPDATE checkpoint SET task_id = ?, taken = COALESCE('
        '(SELECT MAX(seq) FROM (SELECT 1 AS seq UNION ALL SELECT seq FROM item'
        f" WHERE {OF_TASK} AND kind = 'message' AND answer IS NOT NULL ORDER BY seq LIMIT ?) AS entered), 0)"
        f' WHERE {OF_TASK}',
        (new_id, agent, new_id, entered, agent, task_id),
    )
    return load_usage(used)


def drop_checkpoint(agent: str, task_id: str) -> Write:
    """Delete the checkpoint of a task."""
    return f'DELETE FROM checkpoint WHERE {OF_TASK}', [(agent, task_id)]
