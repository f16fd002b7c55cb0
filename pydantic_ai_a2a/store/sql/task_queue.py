"""The backends over SQL: the transaction behind each method of the ports, and the listeners that it notifies."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

from pydantic_ai.messages import ModelMessage

from ...errors import LeaseLost
from ...settings import Retention
from ...types import TERMINAL, StoredTask, TaskEvent, TaskHeader
from ..ended_task import ended_task
from ..event_bus import BusEnding
from ..histories import Histories
from ..ports import (
    Accepted,
    Backend,
    Charge,
    Checkpoint,
    Claim,
    CredentialStore,
    Ending,
    Erased,
    EventLog,
    ExportedConversation,
    ExportedTask,
    Finish,
    Housekeeping,
    Leased,
    Marks,
    OnExpired,
    Outbox,
    PushConfig,
    PushConfigs,
    QuotaStore,
    Slot,
    Status,
    Submission,
    Subscription,
    Swept,
    TaskQueue,
    TaskReader,
)
from ..ports.payloads import PayloadStore
from ..ports.queue import Tried
from ..status_events import Expired, report_expired
from . import claims, conversations, outbox, queue_counts, queue_order, quotas, reads, submitting, sweep, task_rows
from . import sweep as dead
from .database import Database, Port, Published, Rehearsal, WriteKind, always, reading, writing
from .transaction import Rows, Transaction


def _of_submit(result: submitting.Started, *_: Any, **__: Any) -> Published:
    return ((result[0].header.id, result[1]),)


def _of_cancel(result: tuple[TaskHeader, list[TaskEvent], bool], *_: Any, **__: Any) -> Published:
    return ((result[0].id, result[1]),)


def _of_claim(taken: claims.Claimed, *_: Any, **__: Any) -> Published:
    return [(claim.header.id, events) for claim, events in taken]


def _of_emit(_: None, agent: str, claim: Claim, events: Sequence[TaskEvent], *__: Any) -> Published:
    return ((claim.header.id, events),)


def _of_finish(result: tuple[Claim | None, list[TaskEvent], bool], agent: str, claim: Claim, end: Finish) -> Published:
    return ((claim.header.id, result[1]),)


def _of_sweep(result: tuple[object, Expired, object], *_: Any, **__: Any) -> Published:
    return [(header.id, (event,)) for header, event in result[1]]


def _of_erase(result: tuple[object, sweep.Told], *_: Any, **__: Any) -> Published:
    return [(task_id, (event,)) for task_id, event in result[1]]


def _unclaim(taken: claims.Claimed, agent: str, *_: Any, **__: Any) -> Transaction[None]:
    """Release tasks whose claiming caller has gone before it could run them."""
    for claim, _events in taken:
        yield from claims.release(agent, claim)


def _unclaim_submitted(result: submitting.Started, agent: str, *_: Any, **__: Any) -> Transaction[None]:
    """Release a task whose sender has gone since the claim."""
    if (claim := result[0].claim) is not None:
        yield from claims.release(agent, claim)


def _left_to_others(result: submitting.Started, *_: Any, **__: Any) -> bool:
    """Return true if a message has left a queued task to the workers."""
    accepted = result[0]
    return accepted.claim is None and accepted.header.queued and not accepted.replayed


def _begins_here(result: submitting.Started, *_: Any, **__: Any) -> bool:
    """Return true if a new task runs in this process from the first moment on."""
    claim = result[0].claim
    return claim is not None and claim.fence == 1


def _not_paused(*_: Any, pause: int | None = None, **__: Any) -> bool:
    """Return true if a released task may be claimed at once."""
    return pause is None


def _frees_another(result: tuple[Claim | None, list[TaskEvent], bool], *_: Any, **__: Any) -> bool:
    return result[2]


_PAUSES = (0.01, 0.02, 0.05, 0.1, 0.2)
"""Seconds before a locked task's lease is tried again: its run may be storing events. Then the next renewal tries."""
_SUBMIT = WriteKind(
    submitting.submit,
    _of_submit,
    locks=submitting.locks_of_submit,
    undo=_unclaim_submitted,
    ready=_left_to_others,
    private=_begins_here,
)
_CANCEL = WriteKind(submitting.cancel, _of_cancel, ready=always, cancels=True)
_CLAIM = WriteKind(claims.claim, _of_claim, undo=_unclaim)
_RENEW = WriteKind(claims.renew, first=True)
_EMIT = WriteKind(claims.emit, _of_emit)
_RELEASE = WriteKind(claims.release, ready=_not_paused)
_FINISH = WriteKind(claims.finish, _of_finish, locks=claims.locks_of_finish, ready=_frees_another)
_SWEEP = WriteKind(sweep.sweep, _of_sweep)
_ERASE_TASK = WriteKind(sweep.erase_task, _of_erase, erases=True)
_ERASE = WriteKind(sweep.erase, _of_erase, erases=True)
_RETRY_TASK = WriteKind(dead.retry_task, ready=always)
_WATCH = WriteKind(reads.watch)
_FILE = WriteKind(claims.file)
_COUNT = WriteKind(queue_order.count)
_COUNT_EVERY = 10.0
"""Seconds between two counts of the queue by a process that takes messages."""
_COUNT_FULL = 1.0
"""The same while the queue is full."""


@dataclass(slots=True)
class Backlog:
    """The number of queued tasks, as far as this process knows: a count, and the changes of this process since."""

    queued: int = 0
    counted_at: float = -math.inf
    """Time of the count, as `time.monotonic`."""


class SqlQueue(Port, TaskQueue):
    """The queue of a database.

    Args:
        database: The database.
        due: Told of tasks that have webhooks.
        rehearsed: For a rehearsal, the backlog of the queue. The rehearsal changes copies.
    """

    def __init__(self, database: Database, due: Due, rehearsed: Backlog | None = None) -> None:
        super().__init__(database)
        self._due = due
        self._backlog = rehearsed or Backlog()
        self._rehearses = rehearsed is not None
        self._ends = count(1)

    async def submit(
        self, submission: Submission, *, queue_limit: int, idempotency_window: int, slot: Slot | None = None
    ) -> Accepted:
        self.database.take_room(submission.size)
        backlog = replace(self._backlog) if self._rehearses else self._backlog
        full, queued = submission.new and backlog.queued >= queue_limit, False
        if submission.new and time.monotonic() - backlog.counted_at > (_COUNT_FULL if full else _COUNT_EVERY):
            full = await self._count(backlog, _COUNT_FULL if full else _COUNT_EVERY) >= queue_limit
        expected = submission.new and slot is None
        backlog.queued += expected  # before the commit: messages at the same time count each other
        try:
            accepted, events = await self.database.write(
                _SUBMIT,
                self.agent,
                submission,
                queue_limit=queue_limit,
                idempotency_window=idempotency_window,
                slot=slot,
                full=full,
            )
            waits = accepted.claim is None and accepted.header.queued and not accepted.replayed
            queued = waits and (submission.new or bool(events))  # a message with events has answered a waiting task
        finally:
            backlog.queued += queued - expected
        claim = accepted.claim
        if claim is not None:
            self.database.begin([claim])
        if submission.push is not None or (claim is not None and claim.push):
            self._due.add(accepted.header.id)
        if accepted.header.id in self._due.tasks:
            self._due.tell()
        if waits:
            for worker in tuple(self.database.workers):
                worker.on_ready(accepted.header.id)
        return accepted

    async def _count(self, backlog: Backlog, every: float) -> int:
        """Count the queued tasks, or read the count of another process."""
        backlog.counted_at = time.monotonic()  # messages at the same time do not count the queue too
        # Half of the time, so that the count is not the one that this process has made the last time.
        backlog.queued = await self.database.write(_COUNT, self.agent, age=round(500 * every))
        return backlog.queued

    async def cancel(self, task_id: str, owner: str | None, *, at: int, force: bool = False) -> TaskHeader:
        header, _, was_queued = await self.database.write(_CANCEL, self.agent, task_id, owner, at=at, force=force)
        self._backlog.queued -= was_queued and not self._rehearses
        if task_id in self._due.tasks:
            self._due.tell()
        for worker in tuple(self.database.workers):
            worker.on_cancel(task_id)
        return header

    async def claim(
        self,
        slot: Slot,
        *,
        at: int,
        limit: int,
        task_id: str | None = None,
        skip: Collection[str] = (),
        lost: bool = True,
    ) -> list[Claim]:
        taken = await self.database.write(
            _CLAIM, self.agent, slot, at=at, limit=limit, task_id=task_id, skip=skip, lost=lost
        )
        self._backlog.queued -= 0 if self._rehearses else len(taken)
        claims = [claim for claim, _ in taken]
        self.database.begin(claims)
        for claim in claims:
            if claim.push:
                self._due.add(claim.header.id)
                self._due.tell()
        return claims

    async def renew(self, holder: str, tasks: Sequence[str], *, lease: int) -> Marks:
        marks, locked = await self.database.write(_RENEW, self.agent, holder, tasks, lease=lease)
        for pause in _PAUSES:
            if not locked:
                break
            await asyncio.sleep(pause)
            rest, locked = await self.database.write(_RENEW, self.agent, holder, locked, lease=lease)
            marks = Marks([*marks.lost, *rest.lost], [*marks.cancel, *rest.cancel])
        self.database.leave(*marks.lost)
        place = tasks.index
        return Marks(sorted(marks.lost, key=place), sorted(marks.cancel, key=place))

    async def emit(
        self,
        claim: Claim,
        events: Sequence[TaskEvent],
        status: Status | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        try:
            await self.database.write(_EMIT, self.agent, claim, events, status, checkpoint)
        except LeaseLost:
            self.database.leave(claim.header.id)
            raise
        if claim.header.id in self._due.tasks:
            self._due.tell()

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        self.database.event_bus.prepare(claim.header.id, finish.final, partial(ended_task, claim, finish))
        try:
            if next(self._ends) % claims.EVERY == 0:
                await self.database.write(_FILE, self.agent)
            following, *_ = await self.database.write(_FINISH, self.agent, claim, finish)
        finally:
            self.database.leave(claim.header.id, over=finish.status.state in TERMINAL)
        if following is not None:
            self.database.begin([following])
        if claim.header.id in self._due.tasks:
            self._due.tell()
        return following

    async def release(
        self, claim: Claim, tried: Tried | None = None, *, pause: int | None = None, charges: Sequence[Charge] = ()
    ) -> None:
        self.database.leave(claim.header.id)
        await self.database.write(_RELEASE, self.agent, claim, tried, pause=pause, charges=charges)

    def rehearsal(self) -> SqlQueue:
        return SqlQueue(Rehearsal(self.database), Due(), self._backlog)


class SqlReader(Port, TaskReader):
    """Reads the tasks of a database."""

    load = reading(reads.load)

    async def watch(self, task_id: str, owner: str | None, *, live: bool = True) -> StoredTask | None:
        self.database.wake()
        task = await self.load(task_id, owner)
        if task is None or task.header.state in TERMINAL:
            return task
        return await self.database.write(_WATCH, self.agent, task_id, owner, live=live)

    list = reading(reads.page)
    pause = reading(reads.pause)
    unread = reading(reads.unread)


class SqlEvents(Port, EventLog):
    """The event logs of a database, with the readers of this process."""

    def subscribe(self, task_id: str, on_drop: Callable[[], object], *, live: bool = False) -> Subscription:
        return self.database.event_bus.subscribe(task_id, on_drop, live=live)

    def expect(self, task_id: str) -> Ending | None:
        return BusEnding(self.database.event_bus, task_id, partial(self._stopped_after, task_id))

    async def wait(self, task_id: str, after: int) -> None:
        on_wait = self.database.wake  # once the waiter is registered: a look before would not tell others of the waiter
        await self.database.event_bus.wait(task_id, after, partial(self._stopped_after, task_id), on_wait)

    _stopped_after = reading(reads.stopped_after)

    def release(self, held: Callable[[str], bool]) -> None:
        self.database.event_bus.release(held)

    def watched(self, task_id: str, *, live: bool = False) -> bool:
        return self.database.watched(task_id, live=live)

    has = reading(reads.resumable)


class SqlQuotas(Port, QuotaStore):
    """Counts the requests and the usage of the callers of a database."""

    take = writing(quotas.take)
    spent = reading(quotas.spent)
    charge = writing(quotas.charge)
    settle = writing(quotas.settle)


class SqlCredentials(Port, CredentialStore):
    """Reads the credentials of the tasks of a database."""

    load = reading(task_rows.load_credentials)


class SqlPayloads(Port, PayloadStore):
    """Keeps the data of runs at an engine in a database."""

    put = writing(task_rows.put_payloads)
    get = reading(task_rows.get_payload)


class SqlHousekeeping(Port, Housekeeping):
    """Keeps a database small, and does what operators want.

    A loop over batches or tasks gives way to the event loop in between: a database in memory never waits.
    """

    async def sweep(self, retention: Retention, *, at: int, on_expired: OnExpired | None = None) -> Swept:
        await asyncio.sleep(0)
        swept, ended, gone = await self.database.write(_SWEEP, self.agent, retention, at, self.database.most_kept)
        for owner, context_id in gone:
            self.database.forget(owner, context_id)
        report_expired(ended, on_expired)
        await self.database.after_sweep(swept)
        return swept

    async def erase_task(self, task_id: str, owner: str | None, *, at: int) -> bool:
        there, _ = await self.database.write(_ERASE_TASK, self.agent, task_id, owner, at)
        return there

    async def erase(self, owner: str, context_id: str | None = None, *, at: int) -> Erased:
        await asyncio.sleep(0)
        erased, _ = await self.database.write(_ERASE, self.agent, owner, context_id, at)
        self.database.forget(owner, context_id)
        return erased

    set_erasing = writing(submitting.set_erasing)
    check_erasing = reading(submitting.check_erasing)
    dead_letters = reading(dead.dead_letters)
    queues = reading(queue_counts.counts)
    pause = writing(queue_counts.pause, ready=always)

    async def retry(
        self, task_id: str, *, new_id: str, at: int, again: bool = False, failed: bool = False
    ) -> TaskHeader:
        header = await self.database.write(
            _RETRY_TASK, self.agent, task_id, new_id=new_id, at=at, again=again, failed=failed
        )
        for worker in tuple(self.database.workers):
            worker.on_ready(header.id)
        return header

    async def export(
        self, owner: str, context_id: str | None = None
    ) -> AsyncIterator[ExportedTask | ExportedConversation]:
        async for task_id in self._task_ids(owner, context_id):
            task = await self.database.read(reads.load, self.agent, task_id, owner)
            if task is not None:  # it may have been swept meanwhile
                yield ExportedTask(task, await self.database.read(sweep.export_requests, self.agent, task_id))
        async for conversation_id in self._ids(sweep.conversation_ids, owner, context_id):
            loaded = await self.database.read(conversations.load, self.agent, owner, conversation_id)
            if loaded is not None:
                record, (messages, *branches) = loaded
                yield ExportedConversation(record, messages, branches)

    async def _task_ids(self, owner: str, context_id: str | None) -> AsyncIterator[str]:
        # First, because such a task may be filed behind the batches, or before them.
        moving = dict.fromkeys(await self.database.read(sweep.moving_ids, self.agent, owner, context_id))
        async for task_id in self._ids(sweep.filed_ids, owner, context_id):
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


# --- the ports of push notifications for all SQL backends -------------------------------------------------------------

_CREATE = WriteKind(outbox.create_config)
_LEASE = WriteKind(outbox.lease)
_RETRY_DELIVERY = WriteKind(outbox.retry)


_KNOWN = 10_000


class Due:
    """The senders of this process, and the tasks with webhooks, for whose events the senders are woken."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[], object]] = []
        self.tasks: set[str] = set()

    def add(self, task_id: str) -> None:
        """Remember that a task has push configurations."""
        if len(self.tasks) >= _KNOWN:
            self.tasks.clear()  # senders find the forgotten tasks at the next poll
        self.tasks.add(task_id)

    def tell(self) -> None:
        """Wake the senders, because a delivery may be due."""
        for listener in tuple(self.listeners):
            listener()


class SqlPushConfigs(Port, PushConfigs):
    """The configurations of a database."""

    def __init__(self, database: Database, due: Due) -> None:
        super().__init__(database)
        self._due = due

    async def create(self, task_id: str, owner: str, config: PushConfig, *, limit: int) -> None:
        await self.database.write(_CREATE, self.agent, task_id, owner, config, limit=limit)
        self._due.add(task_id)
        self._due.tell()  # the task may have stored an event between the commit and `add`

    get = reading(outbox.get_config)
    list = reading(outbox.list_all)
    delete = writing(outbox.delete_config)


class SqlOutbox(Port, Outbox):
    """The deliveries of a database."""

    def __init__(self, database: Database, due: Due) -> None:
        super().__init__(database)
        self._due = due

    async def lease(self, *, lease: int, limit: int, held: Mapping[str, int]) -> Leased:
        wait = await self.database.read(outbox.wait, self.agent, limit=limit, held=held)
        if wait != 0:  # a sender without work writes nothing
            return Leased((), wait)
        return await self.database.write(_LEASE, self.agent, lease=lease, limit=limit, held=held)

    done = writing(outbox.done)
    failed = writing(outbox.failed)
    release = writing(outbox.release)
    dead = reading(outbox.dead)

    async def retry(self, delivery_id: str) -> None:
        await self.database.write(_RETRY_DELIVERY, self.agent, delivery_id)
        self._due.tell()

    def listen(self, on_due: Callable[[], object]) -> Callable[[], None]:
        self._due.listeners.append(on_due)
        return partial(self._due.listeners.remove, on_due)


# --- all ports over one database --------------------------------------------------------------------------------------


class SqlBackend(Backend, Database):
    """All ports over a database.

    Args:
        namespace: Stable name of the stored tasks.
    """

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._histories = Histories()
        self.due = Due()
        self.queue = SqlQueue(self, self.due)
        self.reader = SqlReader(self)
        self.events = SqlEvents(self)
        self.housekeeping = SqlHousekeeping(self)
        self.quotas = SqlQuotas(self)
        self.credentials = SqlCredentials(self)
        self.payloads = SqlPayloads(self)
        self.push_configs, self.outbox = SqlPushConfigs(self, self.due), SqlOutbox(self, self.due)

    def conversations(self, owner: str) -> conversations.SqlConversationStore:
        return conversations.SqlConversationStore(self, self.namespace, owner)

    async def context(self, owner: str, context_id: str, head: str) -> Sequence[ModelMessage]:
        return await self._histories.read(self.conversations(owner), owner, context_id, head)

    async def queued(self) -> bool:
        return await self.read(queue_order.any_queued, self.namespace)

    async def paused(self) -> bool:
        return await self.read(queue_counts.paused, self.namespace)

    def forget(self, owner: str, context_id: str | None = None) -> None:
        self._histories.forget(owner, context_id)
