"""A queue around another one, so that a test can let one of its methods fail, and a reader that is overtaken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pydantic_ai_a2a import A2AApp
from pydantic_ai_a2a.errors import StoreUnavailable
from pydantic_ai_a2a.server.store.ports import Accepted, Claim, Finish, Pause, Slot, Submission, TaskQueue, TaskReader
from pydantic_ai_a2a.server.store.sql.reader_port import SqlReader
from pydantic_ai_a2a.store import WrappedQueue
from pydantic_ai_a2a.types import TaskHeader


class StorageError(Exception):
    """What a store raises that is broken."""


class CancelCounter(WrappedQueue):
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


class FinishInDoubt(WrappedQueue):
    """Ends a run, the first time without an answer: a connection that was lost in the middle of a commit."""

    answers = False

    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        following = await super().finish(claim, finish)
        if self.answers:
            return following
        self.answers = True
        raise StoreUnavailable


class BeforeSubmit(WrappedQueue):
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


def run_before_submit(app: A2AApp, first: Callable[[], Awaitable[object]]) -> None:
    """Let something come first, once, when the app has checked its next message."""
    app.backend.queue = BeforeSubmit(app.backend.queue, first)


class BeforePause(SqlReader):
    """Has `first` come first, once, between the read of a task and the read of its pause."""

    watch = TaskReader.watch
    first: Callable[[], Awaitable[object]] | None = None

    async def pause(self, task_id: str, owner: str) -> Pause | None:
        first, self.first = self.first, None
        if first is not None:
            await first()
        return await super().pause(task_id, owner)
