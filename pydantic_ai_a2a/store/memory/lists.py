"""The lists of tasks, newest status first, and the ended and waiting tasks for sweeps, oldest status first.

A changed task is noted, and enters the lists with many others at once: a task that starts, works and ends meanwhile
enters the lists once.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from ...types import INTERRUPTED, TERMINAL, TaskQuery, TaskState
from .records import Key, Task

_NOTED = 64
"""Changed tasks that wait for the lists at most."""
_STATES: Sequence[TaskState] = (
    'submitted',
    'working',
    'completed',
    'failed',
    'canceled',
    'input-required',
    'rejected',
    'auth-required',
)


class TaskLists:
    """Sorted lists of (time of the status, id), for each owner, context and state."""

    def __init__(self) -> None:
        self._noted: dict[str, Task] = {}
        self._lists: dict[tuple[str | None, TaskState], list[Key]] = {}
        """For each owner and state; with the owner None, of all owners."""
        self._contexts: dict[str, list[tuple[str, TaskState, int, str]]] = {}
        """For each owner: context, state, time of the status, id."""
        self._unswept: list[Key] = []
        """Ended tasks with events."""

    def note(self, task: Task) -> None:
        """Note a task whose status has changed."""
        self._noted[task.id] = task
        if len(self._noted) > _NOTED:
            self._write()

    def forget(self, task: Task) -> None:
        """Take a deleted task off the lists."""
        self._noted.pop(task.id, None)
        self._remove(task)

    def events_swept(self, task: Task) -> None:
        """Note that an ended task has no events any longer."""
        self._write()
        _drop(self._unswept, (task.status_at, task.id))

    def _write(self) -> None:
        for task in self._noted.values():
            self._remove(task)
            key = task.status_at, task.id
            task.listed, task.listed_at = task.state, task.status_at
            for owner in (task.owner, None):
                insort(self._lists.setdefault((owner, task.state), []), key)
            insort(self._contexts.setdefault(task.owner, []), (task.context_id, task.state, *key))
            if task.state in TERMINAL and not task.events_swept:
                insort(self._unswept, key)
        self._noted.clear()

    def _remove(self, task: Task) -> None:
        if task.listed is None:
            return
        state, key = task.listed, (task.listed_at, task.id)
        for owner in (task.owner, None):
            keys = self._lists[owner, state]
            _drop(keys, key)
            if not keys:
                del self._lists[owner, state]
        contexts = self._contexts[task.owner]
        _drop(contexts, (task.context_id, state, *key))
        if not contexts:
            del self._contexts[task.owner]
        if state in TERMINAL and not task.events_swept:
            _drop(self._unswept, key)
        task.listed = None

    def page(self, query: TaskQuery, limit: int) -> tuple[list[Key], int]:
        """Return the keys of the newest tasks of a query, at most `limit`, and the number of all tasks."""
        self._write()
        keys: list[Key] = []
        total = 0
        for part, prefix in self._parts(query):
            end = bisect_left(part, (*prefix[:-1], _after(prefix[-1]))) if prefix else len(part)
            start = bisect_left(part, (*prefix, query.since)) if query.since is not None else bisect_left(part, prefix)
            total += end - start
            if query.before is not None:
                end = bisect_left(part, (*prefix, *query.before))
            keys += [entry[-2:] for entry in part[max(start, end - limit) : end]]
        keys.sort(reverse=True)
        return keys[:limit], total

    def _parts(self, query: TaskQuery) -> Iterator[tuple[list[Any], tuple[str, ...]]]:
        """Return sorted lists that hold the tasks of a query together, each with the prefix of the entries."""
        states = _STATES if query.state is None else (query.state,)
        if query.context_id is None:
            for state in states:
                yield self._lists.get((query.owner, state), []), ()
            return
        owners = self._contexts if query.owner is None else (query.owner,)
        for owner in owners:
            for state in states:
                yield self._contexts.get(owner, []), (query.context_id, state)

    def ids(self, owner: str, context_id: str | None) -> list[str]:
        """Return the ids of an owner's tasks, or of one context of the owner."""
        self._write()
        entries = self._contexts.get(owner, [])
        if context_id is not None:
            entries = entries[bisect_left(entries, (context_id,)) : bisect_left(entries, (_after(context_id),))]
        return [entry[-1] for entry in entries]

    def waits(self, owner: str, context_id: str) -> bool:
        """Return True if a task of a context waits for its client."""
        self._write()
        entries = self._contexts.get(owner, [])
        return any(
            bisect_left(entries, (context_id, state)) < bisect_left(entries, (context_id, _after(state)))
            for state in INTERRUPTED
        )

    def oldest(self, states: Iterable[TaskState], limit: int) -> list[Key]:
        """Return the keys of the tasks with the oldest statuses in some states."""
        self._write()
        return sorted(chain.from_iterable(self._lists.get((None, state), [])[:limit] for state in states))[:limit]

    def oldest_unswept(self, limit: int) -> list[Key]:
        """Return the keys of the oldest ended tasks with events."""
        self._write()
        return self._unswept[:limit]

    def number(self, states: Iterable[TaskState]) -> int:
        """Return the number of tasks in some states."""
        self._write()
        return sum(len(self._lists.get((None, state), ())) for state in states)


def _after(text: str) -> str:
    """Return the first text after a text in the order of texts."""
    return text + '\0'


def _drop(keys: list[Any], key: object) -> None:
    del keys[bisect_left(keys, key)]
