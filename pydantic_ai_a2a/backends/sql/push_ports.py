"""The ports of push notifications, once for all SQL backends. Knows no driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ...ports import DeadDelivery, Delivery, Leased, Outbox, PushConfig, PushConfigs
from . import outbox, webhooks
from .database import Database, WriteKind

__all__ = ('Due', 'SqlOutbox', 'SqlPushConfigs')

_CREATE = WriteKind(webhooks.create)
_DELETE = WriteKind(webhooks.delete)
_LEASE = WriteKind(outbox.lease)
_DONE = WriteKind(outbox.done)
_FAILED = WriteKind(outbox.failed)
_RELEASE = WriteKind(outbox.release)
_RETRY = WriteKind(outbox.retry)

_KNOWN = 10_000


class Due:
    """Who of this process sends, and the tasks for which it is worth telling them that something was stored."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[], object]] = []
        self.tasks: set[str] = set()

    def add(self, task_id: str) -> None:
        """The task has configurations."""
        if len(self.tasks) >= _KNOWN:
            self.tasks.clear()  # of those that are forgotten, senders find out a little later
        self.tasks.add(task_id)

    def tell(self) -> None:
        """Something may have become due."""
        for listener in tuple(self.listeners):
            listener()


class SqlPushConfigs(PushConfigs):
    """The configurations of a database."""

    def __init__(self, database: Database, due: Due) -> None:
        self._database = database
        self._agent = database.namespace
        self._due = due

    async def create(self, task_id: str, owner: str, config: PushConfig, *, limit: int) -> None:
        await self._database.write(_CREATE, self._agent, task_id, owner, config, limit=limit)
        self._due.add(task_id)

    async def get(self, task_id: str, owner: str, config_id: str | None) -> PushConfig:
        return await self._database.read(webhooks.get, self._agent, task_id, owner, config_id)

    async def list(self, task_id: str, owner: str) -> Sequence[PushConfig]:
        return await self._database.read(webhooks.list_all, self._agent, task_id, owner)

    async def delete(self, task_id: str, owner: str, config_id: str) -> None:
        await self._database.write(_DELETE, self._agent, task_id, owner, config_id)


class SqlOutbox(Outbox):
    """The deliveries of a database."""

    def __init__(self, database: Database, due: Due) -> None:
        self._database = database
        self._agent = database.namespace
        self._due = due

    async def lease(self, *, lease: int, limit: int, held: Mapping[str, int]) -> Leased:
        wait = await self._database.read(outbox.wait, self._agent, limit=limit, held=held)
        if wait != 0:  # a sender without work writes nothing
            return Leased((), wait)
        return await self._database.write(_LEASE, self._agent, lease=lease, limit=limit, held=held)

    async def done(self, delivery: Delivery) -> None:
        await self._database.write(_DONE, self._agent, delivery)

    async def failed(self, delivery: Delivery, *, at: int, pause: int | None, error: str) -> None:
        await self._database.write(_FAILED, self._agent, delivery, at=at, pause=pause, error=error)

    async def release(self, delivery: Delivery) -> None:
        await self._database.write(_RELEASE, self._agent, delivery)

    async def dead(
        self, owner: str | None = None, *, limit: int = 100, after: tuple[int, str] | None = None
    ) -> Sequence[DeadDelivery]:
        return await self._database.read(outbox.dead, self._agent, owner, limit=limit, after=after)

    async def retry(self, delivery_id: str) -> None:
        await self._database.write(_RETRY, self._agent, delivery_id)
        self._due.tell()

    def listen(self, on_due: Callable[[], object]) -> Callable[[], None]:
        self._due.listeners.append(on_due)
        return partial(self._due.listeners.remove, on_due)
