"""The event logs of the tasks in a user's FastA2A storage: in memory, for tasks of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import UnsupportedOperationError
from ..store.memory.backend import MemoryBackend
from ..store.ports import EventLog, Subscription
from ..types import TaskEvent

__all__ = ('StorageEvents',)


class StorageEvents(EventLog):
    """The event logs in memory, for tasks whose messages this process has accepted."""

    def __init__(self, memory: MemoryBackend) -> None:
        self._memory = memory

    def subscribe(self, task_id: str, on_drop: Callable[[], object]) -> Subscription:
        return _Subscription(self._memory, task_id, on_drop)

    async def wait(self, task_id: str, after: int) -> None:
        await self._memory.events.wait(task_id, after)

    def watched(self, task_id: str) -> bool:
        return self._memory.events.watched(task_id)

    async def has(self, task_id: str, n: int) -> bool:
        return await self._memory.events.has(task_id, n)


class _Subscription(Subscription):
    """A position in the log of a task that may have no log here."""

    def __init__(self, memory: MemoryBackend, task_id: str, on_drop: Callable[[], object]) -> None:
        self._memory = memory
        self._task_id = task_id
        self._on_drop = on_drop
        self._inner = memory.events.subscribe(task_id, self._dropped)

    def _dropped(self) -> None:
        self.dropped = True
        self._on_drop()

    def start(self, after: int) -> None:
        if self._task_id not in self._memory.store.tasks:
            self.close()
            raise UnsupportedOperationError(
                'Another process began the task and has the events of the task: use GetTask.'
            )
        self._inner.start(after)

    async def next(self) -> Sequence[TaskEvent]:
        events = await self._inner.next()
        self.dropped = self._inner.dropped
        return events

    def nudge(self) -> None:
        self._inner.nudge()

    def close(self) -> None:
        self._inner.close()
