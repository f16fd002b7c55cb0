"""The port of the event logs for all SQL backends."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..event_bus import BusEnding
from ..ports import Ending, EventLog, Subscription
from . import event_log, task_reads
from .database import Port, reading


class SqlEvents(Port, EventLog):
    """The event logs of a database, with the readers of this process."""

    def subscribe(self, task_id: str, on_drop: Callable[[], object], *, live: bool = False) -> Subscription:
        return self.database.event_bus.subscribe(task_id, on_drop, live=live)

    def expect(self, task_id: str) -> Ending | None:
        return BusEnding(self.database.event_bus, task_id, partial(self._load_stopped, task_id))

    async def wait(self, task_id: str, after: int) -> None:
        on_wait = self.database.wake  # once the waiter is registered: a look before would not tell others of the waiter
        await self.database.event_bus.wait(task_id, after, partial(self._stopped_after, task_id), on_wait)

    _load_stopped = reading(task_reads.load_stopped)
    _stopped_after = reading(event_log.stopped_after)

    def release(self, held: Callable[[str], bool]) -> None:
        self.database.event_bus.release(held)

    def watched(self, task_id: str, *, live: bool = False) -> bool:
        return self.database.watched(task_id, live=live)

    has = reading(event_log.resumable)
