"""The queue of all SQL backends: the transaction behind each method, and the listeners that it notifies."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

from ...errors import LeaseLost
from ...types import TERMINAL, TaskEvent, TaskHeader
from ..ended_task import ended_task
from ..ports import Accepted, Charge, Checkpoint, Claim, Finish, Marks, Slot, Status, Submission, TaskQueue
from ..ports.claim import Tried
from . import canceling, claims, emitting, filing, finishing, queue_counts, submitting
from .database import Database, Port, Published, WriteKind, always
from .rehearsal import Rehearsal
from .transaction import Transaction
from .webhook_ports import Due

_RENEWAL_WAITS = (0.01, 0.02, 0.05, 0.1, 0.2)
"""Seconds before a locked task's lease is tried again: its run may be storing events. Then the next renewal tries."""
_RENEW = WriteKind(claims.renew, first=True)
_FILE = WriteKind(filing.file)
_COUNT = WriteKind(queue_counts.count_queued)
_COUNT_EVERY = 10.0
"""Seconds between two counts of the queue by a process that takes messages."""
_COUNT_FULL = 1.0
"""The same while the queue is full."""


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


_SUBMIT = WriteKind(
    submitting.submit,
    _of_submit,
    locks=submitting.locks_of_submit,
    undo=_unclaim_submitted,
    ready=_left_to_others,
    private=_begins_here,
)


_CANCEL = WriteKind(canceling.cancel, _of_cancel, ready=always, cancels=True)


_CLAIM = WriteKind(claims.claim, _of_claim, undo=_unclaim)


_EMIT = WriteKind(emitting.emit, _of_emit)


_RELEASE = WriteKind(claims.release, ready=_not_paused)


_FINISH = WriteKind(finishing.finish, _of_finish, locks=finishing.locks_of_finish, ready=_frees_another)


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
        for pause in _RENEWAL_WAITS:
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
            if next(self._ends) % filing.EVERY == 0:
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
