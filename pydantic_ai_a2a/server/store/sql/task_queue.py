"""The queue of all SQL backends: the transaction behind each method, and the listeners that it notifies."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ....errors import LeaseLost
from ....task_states import TERMINAL
from ....types.stored_events import TaskEvent
from ....types.stored_tasks import TaskHeader
from ..ended_task import ended_task
from ..ports import Accepted, Charge, Checkpoint, Claim, Finish, Marks, Slot, Status, Submission, TaskQueue
from ..ports.failed_tries import Tried
from . import canceling, claims, emitting, filing, finishing, queue_counts, submitting
from .database import Database, Port
from .rehearsal import Rehearsal
from .webhook_ports import Due

_RENEWAL_WAITS = (0.01, 0.02, 0.05, 0.1, 0.2)
"""Seconds before a locked task's lease is tried again: its run may be storing events. Then the next renewal tries."""
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

    takes_next = True

    def __init__(self, database: Database, due: Due, rehearsed: Backlog | None = None) -> None:
        super().__init__(database)
        self._due = due
        self._backlog = rehearsed or Backlog()
        self._rehearses = rehearsed is not None
        self._ends = 0

    async def submit(
        self, submission: Submission, *, queue_limit: int, idempotency_window: int, slot: Slot | None = None
    ) -> Accepted:
        self.database.take_room(submission.size)
        backlog = replace(self._backlog) if self._rehearses else self._backlog
        full, queued = submission.new and backlog.queued >= queue_limit, False
        if submission.new and time.monotonic() - backlog.counted_at > (_COUNT_FULL if full else _COUNT_EVERY):
            full = await self._count(backlog, _COUNT_FULL if full else _COUNT_EVERY) >= queue_limit
        # Tasks of a context are queued in the order of commits: the context of a new or answered task is locked.
        answer = submission.answer
        context_id = submission.context_id if submission.new else answer and answer.pause.context_id
        context = (self.agent, submission.owner, context_id) if context_id else None
        expected = submission.new and slot is None
        backlog.queued += expected  # before the commit: messages at the same time count each other
        try:
            accepted, queued = await self.database.write_in(
                context,
                submitting.submit,
                self.agent,
                submission,
                queue_limit=queue_limit,
                idempotency_window=idempotency_window,
                slot=slot,
                full=full,
            )
        finally:
            backlog.queued += queued - expected
        claim = accepted.claim
        if claim is not None:
            self.database.begin([claim])
        if submission.push is not None or (claim is not None and claim.push):
            self._due.add(accepted.header.id)
        if accepted.header.id in self._due.tasks:
            self._due.tell()
        if accepted.waits:
            for worker in tuple(self.database.workers):
                worker.on_ready(accepted.header.id)
        return accepted

    async def _count(self, backlog: Backlog, every: float) -> int:
        """Count the queued tasks, or read the count of another process."""
        backlog.counted_at = time.monotonic()  # messages at the same time do not count the queue too
        # Half of the time, so that the count is not the one that this process has made the last time.
        backlog.queued = await self.database.write(queue_counts.count_queued, self.agent, age=round(500 * every))
        backlog.counted_at = time.monotonic()  # a busy store may have stored the count much later
        return backlog.queued

    async def cancel(self, task_id: str, owner: str | None, *, at: int, force: bool = False) -> TaskHeader:
        header, was_queued = await self.database.write(canceling.cancel, self.agent, task_id, owner, at=at, force=force)
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
            claims.claim, self.agent, slot, at=at, limit=limit, task_id=task_id, skip=skip, lost=lost
        )
        self._backlog.queued -= 0 if self._rehearses else len(taken)
        self.database.begin(taken)
        for claim in taken:
            if claim.push:
                self._due.add(claim.header.id)
                self._due.tell()
        return taken

    async def renew(self, holder: str, tasks: Sequence[str], *, lease: int) -> Marks:
        marks, locked = await self.database.write_first(claims.renew, self.agent, holder, tasks, lease=lease)
        for pause in _RENEWAL_WAITS:
            if not locked:
                break
            await asyncio.sleep(pause)
            rest, locked = await self.database.write_first(claims.renew, self.agent, holder, locked, lease=lease)
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
            await self.database.write(emitting.emit, self.agent, claim, events, status, checkpoint)
        except LeaseLost:
            self.database.leave(claim.header.id)
            raise
        if claim.header.id in self._due.tasks:
            self._due.tell()

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        self.database.event_bus.prepare(claim.header.id, finish.final, partial(ended_task, claim, finish))
        # The conversation of the context may grow, and a new message of the context must see the end, or be seen.
        context = self.agent, claim.header.owner, claim.header.context_id
        self._ends += 1
        try:
            if self._ends % filing.EVERY == 0:
                await self.database.write(filing.file, self.agent)
            following = await self.database.write_in(context, finishing.finish, self.agent, claim, finish)
        finally:
            self.database.leave(claim.header.id, over=finish.status.state in TERMINAL)
        if following is not None:
            self.database.begin([following])
            self._backlog.queued -= following.header.id != claim.header.id and not self._rehearses
        if claim.header.id in self._due.tasks:
            self._due.tell()
        return following

    async def release(
        self, claim: Claim, tried: Tried | None = None, *, pause: int | None = None, charges: Sequence[Charge] = ()
    ) -> None:
        self.database.leave(claim.header.id)
        await self.database.write(claims.release, self.agent, claim, tried, pause=pause, charges=charges)

    def rehearsal(self) -> SqlQueue:
        return SqlQueue(Rehearsal(self.database), Due(), self._backlog)
