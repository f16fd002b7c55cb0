"""The task that a caller names, as stored, or the error of a task that the caller does not have."""

from __future__ import annotations

from ...errors import TaskNotFoundError
from ...types.stored_tasks import StoredTask
from ..store.ports import Backend


async def loaded(backend: Backend, task_id: str, owner: str | None, history_length: int | None) -> StoredTask:
    """Return a task of an owner, or of any owner for None.

    Raises:
        TaskNotFoundError: The owner has no such task.
    """
    task = await backend.reader.load(task_id, owner, history_length=history_length)
    if task is None:
        raise TaskNotFoundError
    return task
