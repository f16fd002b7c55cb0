"""The port for reading tasks for all SQL backends."""

from __future__ import annotations

from ....task_states import TERMINAL
from ....types.stored_tasks import StoredTask
from ..ports import TaskReader
from . import approver_reads, task_reads, waiting_tasks
from .database import Port, reading, writing


class SqlReader(Port, TaskReader):
    """Reads the tasks of a database."""

    load = reading(task_reads.load)
    queued_among = reading(task_reads.queued_among)

    async def watch(self, task_id: str, owner: str | None, *, live: bool = True) -> StoredTask | None:
        self.database.wake()
        task = await self.load(task_id, owner)
        if task is None or task.header.state in TERMINAL:
            return task
        return await self.database.write(task_reads.watch, self.agent, task_id, owner, live=live)

    list = reading(task_reads.page)
    pause = reading(waiting_tasks.pause)
    open_approvals = reading(approver_reads.open_approvals)
    count_open_approvals = reading(approver_reads.count_open_approvals)
    page_key = writing(approver_reads.page_key)
    unread = reading(task_reads.unread)
