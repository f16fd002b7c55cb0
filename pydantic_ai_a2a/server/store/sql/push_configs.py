"""The push notification configurations of tasks."""

from __future__ import annotations

from collections.abc import Mapping

from ....errors import InvalidParamsError, TaskNotFoundError
from ..ports import PushConfig, Takes
from .task_rows import OF_TASK, TASK, find, find_locked
from .transaction import Transaction

_FIELDS = 'id, version, takes, body'
TAKES: Mapping[Takes, int] = {'statuses': 0, 'artifacts': 1, 'chunks': 2}
"""The values of the column `push_config.takes`."""


NAMES: dict[int, Takes] = {number: name for name, number in TAKES.items()}
"""The kinds of events that a configuration takes, by their stored number."""


def create_config(agent: str, task_id: str, owner: str, config: PushConfig, *, limit: int) -> Transaction[None]:
    """See `PushConfigs.create`."""
    yield from find_locked(agent, task_id, owner)  # the lock orders the configuration before or after each event
    yield from put_config(agent, task_id, owner, config, limit)


def put_config(agent: str, task_id: str, owner: str, config: PushConfig, limit: int) -> Transaction[None]:
    """Add a configuration to a locked task, or replace the configuration with the same id.

    Raises:
        InvalidParamsError: The task has `limit` configurations.
    """
    takes = TAKES[config.takes]
    replaced = yield (
        f'UPDATE push_config SET version = ?, takes = ?, body = ? WHERE {OF_TASK} AND id = ? RETURNING seq',
        (config.version, takes, config.body, agent, task_id, config.id),
    )
    if not replaced:
        rows = yield f'SELECT COUNT(*) FROM push_config WHERE {OF_TASK}', (agent, task_id)
        if rows[0][0] >= limit:
            raise InvalidParamsError(
                f'The task already has the maximum of {limit} push notification configurations: delete one first.'
            )
        yield (
            'INSERT INTO push_config (agent, task_id, owner, id, version, takes, body) VALUES (?, ?, ?, ?, ?, ?, ?)',
            (agent, task_id, owner, config.id, config.version, takes, config.body),
        )
    push = max(takes, TAKES['artifacts'])
    yield f'UPDATE task SET push = CASE WHEN push < ? THEN ? ELSE push END WHERE {TASK}', (push, push, agent, task_id)


def copy_configs(agent: str, task_id: str, new_id: str) -> Transaction[None]:
    """Copy the configurations of a task to a new task."""
    yield [
        (
            'INSERT INTO push_config (agent, task_id, owner, id, version, takes, body)'
            ' SELECT agent, CAST(? AS TEXT), owner, id, version, takes, body FROM push_config'
            f' WHERE {OF_TASK} ORDER BY seq',
            [(new_id, agent, task_id)],
        ),
        (
            f'UPDATE task SET push = (SELECT old.push FROM task old WHERE old.agent = ? AND old.id = ?) WHERE {TASK}',
            [(agent, task_id, agent, new_id)],
        ),
    ]


def get_config(agent: str, task_id: str, owner: str, config_id: str | None) -> Transaction[PushConfig]:
    """See `PushConfigs.get`."""
    configs = yield from list_all(agent, task_id, owner)
    for config in configs:
        if config_id in (None, config.id):
            return config
    raise TaskNotFoundError(
        'The task has no push notification configuration with this id: list the configurations of the task.'
    )


def list_all(agent: str, task_id: str, owner: str) -> Transaction[list[PushConfig]]:
    """See `PushConfigs.list`."""
    yield from find(agent, task_id, owner)
    rows = yield f'SELECT {_FIELDS} FROM push_config WHERE {OF_TASK} ORDER BY seq', (agent, task_id)
    return [PushConfig(id=row[0], version=row[1], takes=NAMES[row[2]], body=row[3]) for row in rows]


def delete_config(agent: str, task_id: str, owner: str, config_id: str) -> Transaction[None]:
    """See `PushConfigs.delete`."""
    yield from find_locked(agent, task_id, owner)
    rows = yield (
        f'DELETE FROM push_config WHERE {OF_TASK} AND id = ? RETURNING seq',
        (agent, task_id, config_id),
    )
    for (seq,) in rows:
        yield f'DELETE FROM delivery WHERE {OF_TASK} AND config = ?', (agent, task_id, seq)
