"""All ports over one database: puts them together, and defines the ports of few methods."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.messages import ModelMessage

from ..history_cache import Histories
from ..ports import Backend, CredentialStore, PayloadStore, QuotaStore
from . import conversations, credentials, engine_payloads, queue_order, queue_pause, quotas
from .database import Database, Port, reading, writing
from .event_port import SqlEvents
from .hook_calls import SqlHookCalls
from .housekeeping import SqlHousekeeping
from .reader_port import SqlReader
from .task_queue import SqlQueue
from .webhook_ports import Due, SqlOutbox, SqlPushConfigs


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

    put = writing(engine_payloads.put_payloads)
    get = reading(engine_payloads.get_payload)


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
        self.hook_calls = SqlHookCalls(self)
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
