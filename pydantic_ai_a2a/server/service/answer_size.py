"""The size of an answer, before its bytes are made."""

from __future__ import annotations

from ...types.stored_tasks import StoredTask
from .direct_messages import DirectMessage
from .tasks import TaskList


def stored_size(result: object) -> int:
    """Return about how many bytes a result has; 0 for a short result, which holds no tasks."""
    if isinstance(result, DirectMessage | bytes):
        return len(result if isinstance(result, bytes) else result.body)
    if not isinstance(result, StoredTask):
        return sum(map(stored_size, result.page.tasks)) if isinstance(result, TaskList) else 0
    header = result.header
    bodies = (header.status_message or b'', header.metadata or b'', *(result.history or ()), *(result.artifacts or ()))
    return sum(map(len, bodies))
