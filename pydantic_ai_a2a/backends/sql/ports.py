"""The ports, once for all SQL backends: which transaction serves which method, and whom it tells. Knows no driver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from ...ports import (
    Accepted,
    Bucket,
    Charge,
    Checkpoint,
    Claim,
    DeadLetter,
    Erased,
    EventLog,
    ExportedConversation,
    Finish,
    Housekeeping,
    Marks,
    OnExpired,
    QuotaStore,
    Spent,
    Status,
    Submission,
    Subscription,
    TaskQueue,
    TaskReader,
)
from ...settings import Retention
from ...types import Page, StoredTask, TaskEvent, TaskHeader, TaskQuery
from ..memory_budget import COPIES, ROW, MemoryBudget
from . import conversations, erase, export, quotas, reads, runs, sweep
from . import dead_letters as dead
from . import submit as accept
from .database import Database, Published, WriteKind
from .push_ports import Due
from .transaction import Transaction

__all__ = ('SqlEvents', 'SqlHousekeeping', 'SqlQueue', 'SqlQuotas', 'SqlReader')


def _of_submit(result: tuple[Accepted, list[TaskEvent]], *_: Any, **__: Any) -> Published:
    return ((result[0].header.id, result[1]),)


def _of_cancel(result: tuple[TaskHeader, list[TaskEvent]], *_: Any, **__: Any) -> Published:
    return ((result[0].id, result[1]),)


def _of_claim(taken: list[tuple[Claim, list[TaskEvent]]], *_: Any, **__: Any) -> Published:
    return [(claim.header.id, events) for claim, events in taken]


def _of_emit(_: None, agent: str, claim: Claim, events: Sequence[TaskEvent], *__: Any) -> Published:
    return ((claim.header.id, events),)


def _of_finish(result: tuple[Claim | None, list[TaskEvent]], agent: str, claim: Claim, end: Finish) -> Published:
    return ((claim.header.id, result[1]),)


def _of_sweep(result: tuple[object, sweep.Expired], *_: Any, **__: Any) -> Published:
    return [(header.id, (event,)) for header, event in result[1]]


def _of_erase(result: tuple[object, sweep.Told], *_: Any, **__: Any) -> Published:
    return [(task_id, (event,)) for task_id, event in result[1]]


def _unclaim(taken: list[tuple[Claim, list[TaskEvent]]], agent: str, *_: Any, **__: Any) -> Transaction[None]:
    """Hand back what was claimed for somebody who is no longer there to run it."""
    for claim, _events in taken:
        yield from runs.release(agent, claim)


_PAUSES = (0.01, 0.02, 0.05, 0.1, 0.2)
"""Seconds before a locked task's lease is tried again: its run may be storing events. Then the next renewal tries."""
_SUBMIT = WriteKind(accept.submit, _of_submit, locks=accept.locks_of_submit, ready=True)
_CANCEL = WriteKind(accept.cancel, _of_cancel, ready=True, cancels=True)
_CLAIM = WriteKind(runs.claim, _of_claim, undo=_unclaim)
_RENEW = WriteKind(runs.renew, first=True)
_EMIT = WriteKind(runs.emit, _of_emit)
_FINISH = WriteKind(runs.finish, _of_finish, locks=runs.locks_of_finish, ready=True)
_RELEASE = WriteKind(runs.release, ready=True)
_SWEEP = WriteKind(sweep.sweep, _of_sweep)
_ERASE_TASK = WriteKind(sweep.erase_task, _of_erase, erases=True)
_ERASE = WriteKind(erase.erase, _of_erase, erases=True)
_RETRY = WriteKind(dead.retry, ready=True)
_TAKE = WriteKind(quotas.take)
_CHARGE = WriteKind(quotas.charge)
_SETTLE = WriteKind(quotas.settle)


class SqlQueue(TaskQueue):
    """The queue of a database; `due` is told of tasks that have webhooks."""

    def __init__(self, database: Database, due: Due | None = None, budget: MemoryBudget | None = None) -> None:
        self._database = database
        self._budget = budget
        self._agent = database.namespace
        self._due = due or Due()

    async def submit(self, submission: Submission, *, queue_limit: int, idempotency_window: int) -> Accepted:
        if (budget := self._budget) is not None:
            needed = COPIES * submission.size + ROW
            budget.left -= needed
            if budget.left < 0:
                budget.measure(needed)
        accepted, _ = await self._database.write(
            _SUBMIT, self._agent, submission, queue_limit=queue_limit, idempotency_window=idempotency_window
        )
        if submission.push is not None:
            self._due.add(accepted.header.id)
        if accepted.header.id in self._due.tasks:
            self._due.tell()
        if not accepted.replayed and accepted.header.queued:
            for listener in tuple(self._database.ready_listeners):
                listener(accepted.header.id)
        return accepted

    async def cancel(self, task_id: str, owner: str | None, *, at: int, force: bool = False) -> TaskHeader:
        header, _ = await self._database.write(_CANCEL, self._agent, task_id, owner, at=at, force=force)
        if task_id in self._due.tasks:
            self._due.tell()
        for listener in tuple(self._database.cancel_listeners):
            listener(task_id)
        return header

    async def claim(self, holder: str, *, at: int, lease: int, limit: int, task_id: str | None = None) -> list[Claim]:
        taken = await self._database.write(
            _CLAIM, self._agent, holder, at=at, lease=lease, limit=limit, task_id=task_id
        )
        for claim, _ in taken:
            if claim.push:
                self._due.add(claim.header.id)
                self._due.tell()
        return [claim for claim, _ in taken]

    async def renew(self, holder: str, tasks: Sequence[str], *, lease: int) -> Marks:
        marks, locked = await self._database.write(_RENEW, self._agent, holder, tasks, lease=lease)
        for pause in _PAUSES:
            if not locked:
                break
            await asyncio.sleep(pause)
            rest, locked = await self._database.write(_RENEW, self._agent, holder, locked, lease=lease)
            marks = Marks([*marks.lost, *rest.lost], [*marks.cancel, *rest.cancel])
        place = tasks.index
        return Marks(sorted(marks.lost, key=place), sorted(marks.cancel, key=place))

    async def emit(
        self,
        claim: Claim,
        events: Sequence[TaskEvent],
        status: Status | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        await self._database.write(_EMIT, self._agent, claim, events, status, checkpoint)
        if claim.header.id in self._due.tasks:
            self._due.tell()

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        following, _ = await self._database.write(_FINISH, self._agent, claim, finish)
        if claim.header.id in self._due.tasks:
            self._due.tell()
        return following

    async def release(self, claim: Claim) -> None:
        await self._database.write(_RELEASE, self._agent, claim)


class SqlReader(TaskReader):
    """Reads the tasks of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(
        self, task_id: str, owner: str | None, *, history_length: int | None = None, artifacts: bool = True
    ) -> StoredTask | None:
        return await self._database.read(
            reads.load,
            self._database.namespace,
            task_id,
            owner,
            history_length=history_length,
            artifacts=artifacts,
            checks=self._database.durable,
        )

    async def list(self, query: TaskQuery) -> Page:
        return await self._database.read(reads.page, self._database.namespace, query, checks=self._database.durable)

    async def unread(self, task_id: str, after: int) -> Sequence[tuple[int, bytes]]:
        return await self._database.read(reads.unread, self._database.namespace, task_id, after)


class SqlEvents(EventLog):
    """The log of a database, and who reads it in this process."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def subscribe(self, task_id: str, on_drop: Callable[[], object]) -> Subscription:
        return self._database.event_bus.subscribe(task_id, on_drop)

    async def wait(self, task_id: str, after: int) -> None:
        async def stopped() -> bool:
            return await self._database.read(reads.stopped_after, self._database.namespace, task_id, after)

        await self._database.event_bus.wait(task_id, stopped)

    def release(self, held: Callable[[str], bool]) -> None:
        self._database.event_bus.release(held)

    def watched(self, task_id: str) -> bool:
        return self._database.event_bus.watched(task_id)

    async def has(self, task_id: str, n: int) -> bool:
        return await self._database.read(reads.resumable, self._database.namespace, task_id, n)


class SqlQuotas(QuotaStore):
    """What callers of a database have taken and used."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._agent = database.namespace

    async def take(self, bucket: Bucket, *, at: int) -> int:
        return await self._database.write(_TAKE, self._agent, bucket, at=at)

    async def spent(self, subject: str, window: int, *, at: int) -> Sequence[Spent]:
        return await self._database.read(quotas.spent, self._agent, subject, window, at=at)

    async def charge(self, charges: Sequence[Charge]) -> None:
        await self._database.write(_CHARGE, self._agent, charges)

    async def settle(self, task_id: str, run: int, charges: Sequence[Charge]) -> None:
        await self._database.write(_SETTLE, self._agent, task_id, run, charges)


class SqlHousekeeping(Housekeeping):
    """Keeps a database small, and does what operators want."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._agent = database.namespace

    async def sweep(self, retention: Retention, *, at: int, on_expired: OnExpired | None = None) -> int:
        swept, ended = await self._database.write(_SWEEP, self._agent, retention, at)
        sweep.tell_expired(ended, on_expired)
        return swept

    async def erase_task(self, task_id: str, owner: str | None, *, at: int) -> bool:
        there, _ = await self._database.write(_ERASE_TASK, self._agent, task_id, owner, at)
        return there

    async def erase(self, owner: str, context_id: str | None = None, *, at: int) -> Erased:
        erased, _ = await self._database.write(_ERASE, self._agent, owner, context_id, at)
        self._database.forget(owner, context_id)
        return erased

    async def dead_letters(
        self, owner: str | None = None, *, limit: int = 100, after: tuple[int, str] | None = None
    ) -> Sequence[DeadLetter]:
        return await self._database.read(dead.dead_letters, self._agent, owner, limit=limit, after=after)

    async def retry(self, task_id: str, *, new_id: str, at: int, again: bool = False) -> TaskHeader:
        header = await self._database.write(_RETRY, self._agent, task_id, new_id=new_id, at=at, again=again)
        for listener in tuple(self._database.ready_listeners):
            listener(header.id)
        return header

    async def export(
        self, owner: str, context_id: str | None = None
    ) -> AsyncIterator[StoredTask | ExportedConversation]:
        async for task_id in self._ids(export.task_ids, owner, context_id):
            task = await self._database.read(
                reads.load,
                self._agent,
                task_id,
                owner,
                history_length=None,
                artifacts=True,
                checks=self._database.durable,
            )
            if task is not None:  # it may have been swept meanwhile
                yield task
        async for conversation_id in self._ids(export.conversation_ids, owner, context_id):
            loaded = await self._database.read(conversations.load, self._agent, owner, conversation_id)
            if loaded is not None:
                record, (messages, *branches) = loaded
                yield ExportedConversation(record, messages, branches)

    async def _ids(
        self, make: Callable[..., Transaction[list[str]]], owner: str, context_id: str | None
    ) -> AsyncIterator[str]:
        after = ''
        while ids := await self._database.read(make, self._agent, owner, context_id, after):
            for each in ids:
                yield each
            after = ids[-1]
