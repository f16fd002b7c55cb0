"""All ports over one database: puts them together, and defines the ports of few methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from pydantic_ai.messages import ModelMessage

from ...types import TERMINAL, StoredTask
from ..event_bus import BusEnding
from ..histories import Histories
from ..ports import Backend, CredentialStore, Ending, EventLog, PayloadStore, QuotaStore, Subscription, TaskReader
from . import conversations, credentials, event_log, interrupted, payloads, queue_order, queue_pause, quotas, reads
from .database import Database, Port, reading, writing
from .housekeeping import SqlHousekeeping
from .task_queue import SqlQueue
from .webhooks import Due, SqlOutbox, SqlPushConfigs


class SqlReader(Port, TaskReader):
    """Reads the tasks of a database."""

    load = reading(reads.load)

    async def watch(self, task_id: str, owner: str | None, *, live: bool = True) -> StoredTask | None:
        self.database.wake()
        task = await self.load(task_id, owner)
        if task is None or task.header.state in TERMINAL:
            return task
        return await self.database.write(reads.watch, self.agent, task_id, owner, live=live)

    list = reading(reads.page)
    pause = reading(interrupted.pause)
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

    _stopped_after = reading(event_log.stopped_after)

    def release(self, held: Callable[[str], bool]) -> None:
        self.database.event_bus.release(held)

    def watched(self, task_id: str, *, live: bool = False) -> bool:
        return self.database.watched(task_id, live=live)

    has = reading(event_log.resumable)


class SqlQuotas(Port, QuotaStore):
    """Counts the requests and the usage of the callers of a database."""

    take = writing(quotas.take)
    spent = reading(quotas.spent)
    charge = writing(quotas.charge)
    settle = writing(quotas.settle)


class SqlCredentials(Port, CredentialStore):
    """Reads the credentials of the tasks of a database."""

    load = reading(credentials.load_credentials)


class SqlPayloads(Port, PayloadStore):
    """Keeps the data of runs at an engine in a database."""

    put = writing(payloads.put_payloads)
    get = reading(payloads.get_payload)


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
        return await self.read(queue_pause.paused, self.namespace)

    def forget(self, owner: str, context_id: str | None = None) -> None:
        self._histories.forget(owner, context_id)
