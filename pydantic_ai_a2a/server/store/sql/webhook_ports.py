"""The ports of push notifications for all SQL backends, and the senders that are woken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ..ports import Leased, Outbox, PushConfig, PushConfigs
from . import outbox, push_configs
from .database import Database, Port, reading, writing

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
        await self.database.write(push_configs.create_config, self.agent, task_id, owner, config, limit=limit)
        self._due.add(task_id)
        self._due.tell()  # the task may have stored an event between the commit and `add`

    get = reading(push_configs.get_config)
    list = reading(push_configs.list_all)
    delete = writing(push_configs.delete_config)


class SqlOutbox(Port, Outbox):
    """The deliveries of a database."""

    def __init__(self, database: Database, due: Due) -> None:
        super().__init__(database)
        self._due = due

    async def lease(self, *, lease: int, limit: int, held: Mapping[str, int]) -> Leased:
        wait = await self.database.read(outbox.wait, self.agent, limit=limit, held=held)
        if wait != 0:  # a sender without work writes nothing
            return Leased((), wait)
        return await self.database.write(outbox.lease, self.agent, lease=lease, limit=limit, held=held)

    done = writing(outbox.done)
    failed = writing(outbox.failed)
    release = writing(outbox.release)
    dead = reading(outbox.dead)

    async def retry(self, delivery_id: str) -> None:
        await self.database.write(outbox.retry, self.agent, delivery_id)
        self._due.tell()

    def listen(self, on_due: Callable[[], object]) -> Callable[[], None]:
        self._due.listeners.append(on_due)
        return partial(self._due.listeners.remove, on_due)
