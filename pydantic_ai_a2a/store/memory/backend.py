"""The backend in memory: all ports over plain data structures of one process.

In memory means one process and no durability. The calling thread does all work under one lock, so that several threads
and event loops may use one app.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydantic_ai.messages import ModelMessage

from ...clock import SYSTEM, Clock
from ...types import TaskEvent
from ..events import EventBus
from ..histories import prepare
from ..ports import Backend
from .conversation_store import MemoryConversationStore
from .ports import (
    MemoryCredentials,
    MemoryEvents,
    MemoryHousekeeping,
    MemoryOutbox,
    MemoryPushConfigs,
    MemoryQueue,
    MemoryQuotas,
    MemoryReader,
)
from .store import Store


class MemoryBackend(Backend):
    """Tasks and conversations in the memory of one process.

    Args:
        namespace: Name of the agent; a backend in memory serves one agent.
        reader_lag: Bytes that a reader may be behind.
        max_bytes: Limit of the stored bytes; None for none.
        clock: Measures leases and gives timestamps.
    """

    durable = False

    def __init__(self, namespace: str, *, reader_lag: int, max_bytes: int | None = None, clock: Clock = SYSTEM) -> None:
        self.clock = clock
        self.namespace = namespace
        self.store = Store(clock, EventBus(self._read_events, reader_lag), max_bytes)
        self.queue = MemoryQueue(self.store)
        self.reader = MemoryReader(self.store)
        self.events = MemoryEvents(self.store)
        self.housekeeping = MemoryHousekeeping(self.store)
        self.quotas = MemoryQuotas(self.store)
        self.credentials = MemoryCredentials(self.store)
        self.push_configs = MemoryPushConfigs(self.store)
        self.outbox = MemoryOutbox(self.store)

    async def _read_events(self, task_id: str, after: int, limit: int) -> list[TaskEvent]:
        with self.store.lock:
            task = self.store.tasks.get(task_id)
            return [] if task is None else task.events_after(after)[:limit]

    def take_room(self, size: int) -> None:
        self.store.check_room(size)

    def conversations(self, owner: str) -> MemoryConversationStore:
        return MemoryConversationStore(self.store, owner)

    async def context(self, owner: str, context_id: str, head: str) -> Sequence[ModelMessage]:
        return await self.store.histories.read(self.conversations(owner), owner, context_id, head)

    async def queued(self) -> bool:
        return self.store.waiting.queued > 0

    def listen(self, on_ready: Callable[[str], None], on_cancel: Callable[[str], None]) -> Callable[[], None]:
        prepare()
        listeners = on_ready, on_cancel
        self.store.listeners.append(listeners)

        def stop() -> None:
            self.store.listeners.remove(listeners)

        return stop

    def close(self) -> None:
        """Do nothing: the memory goes with the backend."""
