"""A queue around another one, so that a test can let one of its methods fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from pydantic_ai_a2a.errors import StoreUnavailable
from pydantic_ai_a2a.store.ports import Accepted, Checkpoint, Claim, Finish, Marks, Slot, Status, Submission, TaskQueue
from pydantic_ai_a2a.types import TaskEvent, TaskHeader


class StorageError(Exception):
    """What a store raises that is broken."""


class Wrapped(TaskQueue):
    """Does what the queue inside does; a subclass overrides what a test is about."""

    def __init__(self, inner: TaskQueue) -> None:
        self.inner = inner

    async def submit(
        self, submission: Submission, *, queue_limit: int, idempotency_window: int, slot: Slot | None = None
    ) -> Accepted:
        return await self.inner.submit(
            submission, queue_limit=queue_limit, idempotency_window=idempotency_window, slot=slot
        )

    async def cancel(self, task_id: str, owner: str | None, *, at: int, force: bool = False) -> TaskHeader:
        return await self.inner.cancel(task_id, owner, at=at, force=force)

    async def claim(self, holder: str, *, at: int, lease: int, limit: int, task_id: str | None = None) -> list[Claim]:
        return await self.inner.claim(holder, at=at, lease=lease, limit=limit, task_id=task_id)

    async def renew(self, holder: str, tasks: Sequence[str], *, lease: int) -> Marks:
        return await self.inner.renew(holder, tasks, lease=lease)

    async def emit(
        self,
        claim: Claim,
        events: Sequence[TaskEvent],
        status: Status | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        await self.inner.emit(claim, events, status, checkpoint)

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        return await self.inner.finish(claim, finish)

    async def release(self, claim: Claim) -> None:
        await self.inner.release(claim)


class Cancels(Wrapped):
    """Counts the cancellations that the store has taken."""

    def __init__(self, inner: TaskQueue) -> None:
        super().__init__(inner)
        self._taken = asyncio.Semaphore(0)

    async def cancel(self, task_id: str, owner: str | None, *, at: int, force: bool = False) -> TaskHeader:
        header = await super().cancel(task_id, owner, at=at, force=force)
        self._taken.release()
        return header

    async def taken(self, count: int = 1) -> None:
        """Wait until the store has taken so many cancellations."""
        for _ in range(count):
            await self._taken.acquire()


class InDoubt(Wrapped):
    """Ends a run, the first time without an answer: a connection that was lost in the middle of a commit."""

    answers = False

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        following = await super().finish(claim, finish)
        if self.answers:
            return following
        self.answers = True
        raise StoreUnavailable


class Overtaken(Wrapped):
    """Has something else come first, once, when a message to a task has been checked against what the task waits with.

    Args:
        inner: The queue.
        first: What comes first.
    """

    def __init__(self, inner: TaskQueue, first: Callable[[], Awaitable[object]]) -> None:
        super().__init__(inner)
        self._first: Callable[[], Awaitable[object]] | None = first

    async def submit(
        self, submission: Submission, *, queue_limit: int, idempotency_window: int, slot: Slot | None = None
    ) -> Accepted:
        if self._first is not None:
            first, self._first = self._first, None
            await first()
        return await super().submit(
            submission, queue_limit=queue_limit, idempotency_window=idempotency_window, slot=slot
        )
