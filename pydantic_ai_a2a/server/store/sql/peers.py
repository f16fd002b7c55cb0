"""Processes on one database: which tasks they read, that they live, and what they see of each other's writes.

A process learns from three hints what others have written. All are hints: each process also looks by itself (`look`),
so without a hint it is late, and misses nothing.

| hint | where | written by | read by | goes |
|---|---|---|---|---|
| "I live, and hear …" | row of `process` | `keep`, twice in `WATCH` | who notifies others, `look` | after `WATCH` |
| "I read task t" | row of `reader` | `keep`, or the message of the task (`read_by`) | who runs the task | see below |
| "t has news" | `NOTIFY` (PostgreSQL), `data_version` (SQLite) | a commit | `Peers`, event bus, workers | at once |

- `process.hears`: 0 no notifications, 1 of tasks that it reads, 2 of readers too (it has a worker), 3 of queued tasks
  too (the worker has a free slot). From 1 on, it also hears of each cancel and erasure. A process that hears nothing,
  such as with SQLite, has a row only while it reads tasks.
- `reader.wants`: 0 that the task stops, 1 all events, 2 live text too. The row goes with its process, and when nobody
  there reads the task any longer. The process that runs the task learns of it by the claim (`Claim.wanted`), by a
  notification, or by `look`.
- A notification is a letter and tasks with numbers: `-` events, `c` a cancel, `g` an erased task, `w` a new reader; or
  `r` alone for queued tasks. `data_version` only says that something was written: then `look` reads what.
- `own`: the tasks that run here. Only this process writes their events, so its readers need no row. If no other process
  wants such events (`reader.wants`), they are `private`: they need no notification.
- `storing`: tasks whose message is being stored, maybe with a row of a reader. The commit may come before or after a
  look, so `to_keep` leaves these rows alone.

After more was told (`kept` returns True), the process looks once more: others may have written before they could know.
A task that waits for a worker is told to the workers here only at the second look. Until then it is left to the process
of the request.

Threads: `tell`, `to_keep` and `kept` run in the thread of the database, and all else in any thread. A change of one
entry needs no lock; whoever goes through a dict or set copies it first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from os import urandom
from typing import Any, NamedTuple

from ..event_bus import EventBus
from ..ports import Claim
from .database import WorkerCallbacks
from .queue_order import QUEUED
from .task_rows import IS_DUE, LAST_EVENT
from .transaction import LockName, Transaction, Write, sql

WATCH = 10_000
"""Milliseconds for which the row of a process counts. A process renews its row after half of this time."""
_RENEW = 'UPDATE process SET until = a2a_clock() + ?, hears = ? WHERE agent = ? AND id = ? RETURNING id'
_ENTER = 'INSERT INTO process (agent, id, until, hears) VALUES (?, ?, a2a_clock() + ?, ?)'
FORGET_PROCESSES = 'DELETE FROM process WHERE agent = ? AND until < a2a_clock()'
_FORGET_READERS = 'DELETE FROM reader WHERE agent = ? AND process NOT IN (SELECT id FROM process WHERE agent = ?)'
_READ = sql("""
    INSERT INTO reader (agent, task_id, process, wants) VALUES (?, ?, ?, ?)
    ON CONFLICT (agent, task_id, process) DO UPDATE SET wants = excluded.wants
""")
_READ_NO_MORE = 'DELETE FROM reader WHERE agent = ? AND task_id = ? AND process = ?'
_LOOK = sql(f"""
    -- the newest event of each task that this process reads; NULL for an unknown task
    SELECT 'newest', r.task_id, (SELECT {LAST_EVENT} FROM task WHERE agent = r.agent AND id = r.task_id), 0
    FROM reader r WHERE r.agent = ? AND r.process = ?

    -- the tasks that other living processes read: for how long, and what they want
    UNION ALL SELECT 'read', r.task_id, MAX(p.until) - a2a_clock(), MAX(r.wants)
    FROM process p JOIN reader r ON r.agent = p.agent AND r.process = p.id
    WHERE p.agent = ? AND p.id <> ? AND p.until > a2a_clock()
    GROUP BY r.task_id

    -- the running tasks to cancel, here or elsewhere
    UNION ALL SELECT 'canceled', id, 0, 0
    FROM task WHERE agent = ? AND state = 'working' AND cancel_requested = 1
""")
_READY = sql(f"""
    SELECT 1
    WHERE EXISTS (SELECT 1 FROM task WHERE agent = ? AND {QUEUED})
        OR EXISTS (
            SELECT 1 FROM task
            WHERE agent = ? AND state = 'working' AND queued = 0 AND holder IS NULL AND {IS_DUE}
        )
""")


class Peers:
    """The workers and readers of this process that are told of writes by other processes.

    Args:
        event_bus: The readers of this process.
        now: A steady clock (ms).
    """

    def __init__(self, event_bus: EventBus, now: Callable[[], int]) -> None:
        self.id = urandom(6).hex()
        """Names this process in the database."""
        self.listeners: list[WorkerCallbacks] = []
        self._now = now
        self._event_bus = event_bus
        self._newest: Mapping[str, int | None] = {}
        """The newest known event number of each task with a local reader."""
        self._elsewhere: dict[str, tuple[int, int]] = {}
        """Tasks with readers in other processes: until when they count (ms), and what they want."""
        self._own: set[str] = set()
        """Tasks that run here: this process alone writes their events."""
        self.storing: set[str] = set()
        """Tasks whose messages are being stored, maybe together with their rows: a look leaves these rows alone."""
        self._idle: set[str] = set()
        """The workers with free slots for tasks of other processes."""
        self._ready = False
        """True if a task was waiting for a worker at the last look."""
        self._known: dict[str, int] = {}
        """The tasks that other processes are told of, each with what is wanted here."""
        self._hears = 0
        self.kept_until = 0
        """When the row of this process expires (ms)."""

    def live(self) -> bool:
        """True if a worker with a running event loop listens."""
        return any(not listener.loop.is_closed() for listener in self.listeners)

    def interested(self) -> bool:
        """True if a worker or reader of this process needs the writes of other processes."""
        return bool(self.listeners) or self._event_bus.in_use

    def watched(self, task_id: str, *, live: bool = False) -> bool:
        """True if a task has a reader in this or in another process. See `EventLog`."""
        return self._event_bus.watched(task_id, live=live) or self._wanted_elsewhere(task_id) >= 1 + live

    def _wanted_elsewhere(self, task_id: str) -> int:
        """Return what other processes want of a task; -1 for nothing."""
        until, wants = self._elsewhere.get(task_id, (0, -1))
        return wants if until > self._now() else -1

    def tell(self, noticed: Noticed) -> bool:
        """Notify local readers and workers of new writes. Return True to poll again soon.

        Until the next poll, a queued task is left to the process of the request, which can run the task in the context
        of the request.
        """
        before, self._newest = self._newest, noticed.newest
        for task_id, newest in noticed.newest.items():
            self._known.setdefault(task_id, -1)  # also a row whose submit was cancelled: the next look drops it
            # Of an unknown task at each look: it may have been stored and erased since the last one.
            if newest is None or newest != before.get(task_id):
                self._event_bus.hint(task_id, newest)
        # Others stay until they expire: this process may have heard of them during the look.
        now = self._now()
        # In place, and over a copy: a claim adds tasks in another thread.
        for task_id, (until, _) in self._elsewhere.copy().items():
            if until <= now:
                self._elsewhere.pop(task_id, None)
        self._elsewhere.update((task_id, (now + left, wants)) for task_id, (left, wants) in noticed.readers.items())
        still_ready, self._ready = noticed.ready and self._ready, noticed.ready
        for task_id in noticed.canceled:
            self.cancel(task_id)
        for listener in tuple(self.listeners) if still_ready else ():
            _call(listener.loop, listener.on_ready, None)
        return noticed.ready and not still_ready

    def begin(self, claims: Iterable[Claim]) -> None:
        """Remember that tasks run here, and who reads them elsewhere."""
        for claim in claims:
            task_id, wants = claim.header.id, claim.wanted
            self._own.add(task_id)
            if wants is not None and task_id not in self._known:  # else the row may be the one of this process
                self.is_read(task_id, wants)

    def own(self, task_ids: Iterable[str]) -> None:
        """Remember that tasks run here."""
        self._own.update(task_ids)

    def leave(self, task_ids: Iterable[str]) -> None:
        """Forget tasks that do not run here any longer, or that another process cancels."""
        self._own.difference_update(task_ids)

    def private(self, task_id: str, wants: int = 0) -> bool:
        """True if no other process wants some events of a task, as far as this process knows.

        Only a process with a worker hears of readers.
        """
        return bool(self.listeners) and task_id in self._own and self._wanted_elsewhere(task_id) < wants

    def is_read(self, task_id: str, wants: int) -> None:
        """Record the reader of a task in another process, until the next look or for `WATCH`."""
        if self.listeners:  # only processes with workers need it
            wants = max(wants, self._wanted_elsewhere(task_id))
            self._elsewhere[task_id] = self._now() + WATCH, wants

    def cancel(self, task_id: str) -> None:
        """Notify the local workers of a requested cancel."""
        self.leave([task_id])  # the canceller waits for the end
        for listener in tuple(self.listeners):
            _call(listener.loop, listener.on_cancel, task_id)

    def set_idle(self, holder: str, *, idle: bool) -> bool:
        """Remember if a worker has free slots. Return True for a change."""
        changed = (holder in self._idle) != idle
        (self._idle.add if idle else self._idle.discard)(holder)
        return changed

    # --- the rows of this process -----------------------------------------------------------------------------------

    def reader(self, task_id: str) -> tuple[str, int] | None:
        """Return what other processes have to know if they run a task; None if nobody here waits for their events."""
        wants = None if task_id in self._own else self._event_bus.wants(task_id)
        return None if wants is None else (self.id, wants)

    def has_row(self, task_id: str, reader: tuple[str, int]) -> None:
        """Remember the row that was written together with the task."""
        self._known[task_id] = reader[1]

    def to_keep(self, *, listens: bool = False) -> Kept | None:
        """Return the rows of this process, if they change or expire soon.

        Args:
            listens: True if the process hears notifications.
        """
        # A submit may end meanwhile, in another thread: the row that it adds then is not known yet, and is not dropped.
        known, storing = self._known.copy(), self.storing.copy()
        reads = {task_id: wants for task_id, wants in self._event_bus.wanted().items() if task_id not in self._own}
        wanted = {task_id: wants for task_id, wants in reads.items() if task_id not in storing}
        added = {task_id: wants for task_id, wants in wanted.items() if known.get(task_id) != wants}
        dropped = known.keys() - wanted.keys() - storing
        hears = (1 + bool(self.listeners) + bool(self.listeners and self._idle)) * listens
        same = hears == self._hears and not added and not dropped
        if same and (self.kept_until > self._now() + WATCH // 2 or not (listens or wanted)):
            return None
        return Kept(hears, added, dropped, reads)

    def kept(self, kept: Kept) -> bool:
        """Remember that the rows were written. Return True if others are told of more than before."""
        for task_id in kept.dropped:
            self._known.pop(task_id, None)
        self._known.update(kept.added)
        told = bool(kept.added) or kept.hears > self._hears
        self._hears, self.kept_until = kept.hears, self._now() + WATCH
        return told


def _call(loop: asyncio.AbstractEventLoop, callback: Callable[[Any], object], value: str | None) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(callback, value, context=Context())


class Kept(NamedTuple):
    """The rows of a process."""

    hears: int
    """See `process.hears`."""
    added: dict[str, int]
    """The tasks whose rows are new or change, each with `reader.wants`."""
    dropped: Collection[str]
    """The tasks whose rows go."""
    reads: Mapping[str, int]
    """All tasks that the process reads or waits for, also those that are stored together with their rows."""


class Noticed(NamedTuple):
    """What a process sees of the writes of others."""

    newest: Mapping[str, int | None]
    """The newest event number of each task that the process reads; None for an unknown task."""
    readers: Mapping[str, tuple[int, int]]
    """Tasks that other processes read: for how many milliseconds their rows count, and what they want."""
    canceled: Sequence[str]
    """Running tasks to cancel."""
    ready: bool
    """True if a task waits for a worker, or was handed back."""


def keep(agent: str, process: str, kept: Kept) -> Transaction[Mapping[str, int]]:
    """Renew the row of a process, and write the rows of the tasks that it reads. Return the tasks of the new rows."""
    added = kept.added
    if not (yield _RENEW, (WATCH, kept.hears, agent, process)):
        # The first row, or another process has taken this one for dead: its other rows may be gone, also those that are
        # stored with their tasks. One process at a time: it must see who has entered before it forgets their rows.
        yield LockName((agent, 'processes'))
        yield [
            (_ENTER, [(agent, process, WATCH, kept.hears)]),
            (FORGET_PROCESSES, [(agent,)]),
            (_FORGET_READERS, [(agent, agent)]),
        ]
        added = kept.reads
    yield [
        (_READ, [(agent, task_id, process, wants) for task_id, wants in added.items()]),
        (_READ_NO_MORE, [(agent, task_id, process) for task_id in kept.dropped]),
    ]
    return added


def read_by(agent: str, task_id: str, reader: tuple[str, int]) -> Write:
    """Write that a process (id, wants) reads a task."""
    return _READ, [(agent, task_id, *reader)]


def look(agent: str, process: str) -> Transaction[Noticed]:
    """Read what others have written for a process."""
    rows = yield _LOOK, (agent, process) * 2 + (agent,)
    ready = yield _READY, (agent, agent)
    return Noticed(
        {task_id: newest for kind, task_id, newest, _ in rows if kind == 'newest'},
        {task_id: (left, wants) for kind, task_id, left, wants in rows if kind == 'read'},
        [task_id for kind, task_id, *_ in rows if kind == 'canceled'],
        bool(ready),
    )
