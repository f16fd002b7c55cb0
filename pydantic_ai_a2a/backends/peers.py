"""State of a process about other processes on the same database, and the callbacks of local workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import Context
from typing import Any, NamedTuple

from .event_bus import EventBus
from .sql.notice import WATCH, Noticed

__all__ = ('Peers', 'WorkerCallbacks')


class WorkerCallbacks(NamedTuple):
    """A worker of this process."""

    loop: asyncio.AbstractEventLoop
    on_ready: Callable[[str | None], object]
    on_cancel: Callable[[str], object]


class Peers:
    """The workers and readers of this process that are told of writes by other processes.

    Args:
        tails: The readers of this process.
        now: The clock of the marks (ms), the same for all processes of the store, independent of the wall clock.
    """

    def __init__(self, event_bus: EventBus, now: Callable[[], int]) -> None:
        self.now = now
        self.listeners: list[WorkerCallbacks] = []
        self._event_bus = event_bus
        self._newest: Mapping[str, int | None] = {}
        """The newest known event number of each task with a local reader."""
        self._elsewhere: dict[str, int] = {}
        """Tasks with a reader in any process, each with the expiry of the mark (ms)."""
        self._private: set[str] = set()
        """Tasks running here since the submission, without readers and waiting callers in further processes."""
        self._ready = False
        """True if a task was waiting for a worker at the last look."""
        self._marked: dict[str, int] = {}
        """Tasks with local readers and a stored mark, each with the expiry of the mark (ms)."""

    def live(self) -> bool:
        """True if a worker with a running event loop listens."""
        return any(not listener.loop.is_closed() for listener in self.listeners)

    def interested(self) -> bool:
        """True if a worker or reader of this process needs the writes of other processes."""
        return bool(self.listeners) or self._event_bus.in_use

    def watched(self, task_id: str) -> bool:
        """True if a task has a reader in this process, or is marked as read by another process."""
        return self._event_bus.watched(task_id) or self.watched_elsewhere(task_id)

    def watched_elsewhere(self, task_id: str) -> bool:
        """True if a process has marked the task as read, and the mark has not expired."""
        return self._elsewhere.get(task_id, 0) > self.now()

    def tell(self, noticed: Noticed) -> bool:
        """Notify local readers and workers of new writes. Return True to poll again soon.

        Until the next poll, a queued task is left to the process of the request, which can run the task in the context
        of the request.
        """
        before, self._newest = self._newest, noticed.newest
        for task_id, newest in noticed.newest.items():
            if task_id not in before or before[task_id] != newest:
                self._event_bus.hint(task_id, newest)
        self._elsewhere = dict(noticed.watched)
        still_ready, self._ready = noticed.ready and self._ready, noticed.ready
        for task_id in noticed.canceled:
            self.cancel(task_id)
        for listener in tuple(self.listeners) if still_ready else ():
            _call(listener.loop, listener.on_ready, None)
        return noticed.ready and not still_ready

    def keep_private(self, task_ids: Iterable[str]) -> None:
        """Remember new tasks of this process as private."""
        self._private.update(task_ids)

    def share(self, task_ids: Iterable[str]) -> None:
        """Forget private tasks: after the end of the first run, or after a question of a further process."""
        self._private.difference_update(task_ids)

    def private(self, task_id: str) -> bool:
        """True if the events of a task concern this process alone."""
        return task_id in self._private and not self.watched_elsewhere(task_id)

    def is_watched(self, task_id: str, until: int) -> None:
        """Record the reader of a task in another process, until the expiry of the mark (ms)."""
        if self.listeners:  # only processes with workers need the mark
            self._elsewhere[task_id] = until

    def cancel(self, task_id: str) -> None:
        """Notify the local workers of a requested cancel."""
        self.share([task_id])  # the canceller waits for the end
        for listener in tuple(self.listeners):
            _call(listener.loop, listener.on_cancel, task_id)

    def will_mark(self, task_id: str, until: int) -> None:
        """Record the mark that is written together with the task."""
        self._marked[task_id] = until

    def mark_again(self, tasks: Iterable[str]) -> None:
        """Mark the tasks again at the next poll."""
        for task_id in tasks:
            self._marked.pop(task_id, None)

    def to_mark(self) -> tuple[list[str], int]:
        """Return the tasks with marks to renew, and the new expiry (ms)."""
        now = self.now()
        marked = {task_id: self._marked.get(task_id, 0) for task_id in self._event_bus.read_tasks()}
        due = [task_id for task_id, until in marked.items() if until < now + WATCH // 2]
        self._marked = marked | dict.fromkeys(due, now + WATCH)
        return due, now + WATCH


def _call(loop: asyncio.AbstractEventLoop, callback: Callable[[Any], object], value: str | None) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(callback, value, context=Context())
