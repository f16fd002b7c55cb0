"""The housekeeping of all SQL backends: retention, erasing, exporting, and what operators want."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from ....settings.retention import Retention
from ....types.stored_tasks import TaskHeader
from ..ports import Erased, ExportedConversation, ExportedTask, Housekeeping, OnExpired, Swept
from . import (
    dead_letters,
    erasing,
    erasure_marks,
    export,
    queue_counts,
    queue_pause,
    sweep,
    task_reads,
)
from .database import Port, reading, writing
from .transaction import Rows, Transaction
from .unanswered_tasks import report_expired


class SqlHousekeeping(Port, Housekeeping):
    """Keeps a database small, and does what operators want.

    A loop over batches or tasks gives way to the event loop in between: a database in memory never waits.
    """

    async def sweep(self, retention: Retention, *, at: int, on_expired: OnExpired | None = None) -> Swept:
        await asyncio.sleep(0)
        swept, ended, gone = await self.database.write(sweep.sweep, self.agent, retention, at, self.database.most_kept)
        for owner, context_id in gone:
            self.database.forget(owner, context_id)
        report_expired(ended, on_expired)
        await self.database.after_sweep(swept)
        return swept

    async def erase_task(self, task_id: str, owner: str | None, *, at: int) -> bool:
        return await self.database.write(erasing.erase_task, self.agent, task_id, owner, at)

    async def erase(self, owner: str, context_id: str | None = None, *, at: int) -> Erased:
        await asyncio.sleep(0)
        erased = await self.database.write(erasing.erase, self.agent, owner, context_id, at)
        self.database.forget(owner, context_id)
        return erased

    set_erasing = writing(erasure_marks.set_erasing)
    check_erasing = reading(erasure_marks.check_erasing)
    dead_letters = reading(dead_letters.dead_letters)
    queues = reading(queue_counts.counts)
    pause = writing(queue_pause.pause)

    async def retry(
        self, task_id: str, *, new_id: str, at: int, again: bool = False, failed: bool = False
    ) -> TaskHeader:
        header = await self.database.write(
            dead_letters.retry_task, self.agent, task_id, new_id=new_id, at=at, again=again, failed=failed
        )
        for worker in tuple(self.database.workers):
            worker.on_ready(header.id)
        return header

    async def export(
        self, owner: str, context_id: str | None = None
    ) -> AsyncIterator[ExportedTask | ExportedConversation]:
        async for task_id in self._task_ids(owner, context_id):
            task = await self.database.read(task_reads.load, self.agent, task_id, owner)
            if task is not None:  # it may have been swept meanwhile
                yield ExportedTask(task, await self.database.read(export.export_requests, self.agent, task_id))
        async for conversation_id in self._ids(export.conversation_ids, owner, context_id):
            loaded = await self.database.read(export.exported_conversation, self.agent, owner, conversation_id)
            if loaded is not None:
                record, (messages, *branches) = loaded
                yield ExportedConversation(record, messages, branches)

    async def _task_ids(self, owner: str, context_id: str | None) -> AsyncIterator[str]:
        # First, because such a task may be filed behind the batches, or before them.
        moving = dict.fromkeys(await self.database.read(export.moving_ids, self.agent, owner, context_id))
        async for task_id in self._ids(export.filed_ids, owner, context_id):
            if task_id not in moving:
                yield task_id
        for task_id in moving:
            await asyncio.sleep(0)
            yield task_id

    async def _ids(
        self, make: Callable[..., Transaction[Rows]], owner: str, context_id: str | None
    ) -> AsyncIterator[str]:
        after = None
        while rows := await self.database.read(make, self.agent, owner, context_id, after):
            for *_, row_id in rows:
                await asyncio.sleep(0)
                yield row_id
            after = tuple(rows[-1])
