"""The queue: queued tasks in fair rounds over owners, and the order of the tasks in one context.

Owners take turns: a round has one task of each owner. The first task of a context gets a round: the round after the
owner's last queued task, or the current round for an owner without queued tasks.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from .records import Task


class Waiting:
    """The queued and running tasks."""

    def __init__(self) -> None:
        self._contexts: dict[tuple[str, str], dict[str, Task]] = {}
        """The live tasks of each context, in the order of their runs."""
        self._owners: dict[str, dict[str, Task]] = {}
        """The live tasks of each owner."""
        self._ready: list[tuple[int, int, Task]] = []
        """Claimable tasks in the order of claims: round, `queue_seq`."""
        self._rounds: dict[str, dict[int, Task]] = {}
        """The claimable tasks of each owner, by round, in the order of rounds."""
        self._running: dict[str, Task] = {}
        self._soonest = 0
        """No lease of a running task expires before this time."""
        self._numbers = 0
        self.queued = 0
        """Number of queued tasks."""

    def live(self, owner: str) -> int:
        """Return the number of an owner's queued and running tasks."""
        return len(self._owners.get(owner, ()))

    def first_live(self, owner: str, context_id: str | None) -> Task | None:
        """Return a queued or running task of an owner, or of one context of the owner."""
        tasks = self._owners.get(owner) if context_id is None else self._contexts.get((owner, context_id))
        return None if tasks is None else next(iter(tasks.values()))

    def add(self, task: Task) -> None:
        """Queue a task behind the other tasks of its context."""
        progress = task.progress
        self._numbers += 1
        progress.queue_seq = self._numbers
        progress.queued = True
        self.queued += 1
        self._owners.setdefault(task.owner, {})[task.id] = task
        context = self._contexts.setdefault((task.owner, task.context_id), {})
        progress.behind = bool(context)
        context[task.id] = task
        if not progress.behind:
            self._make_ready(task)

    def _make_ready(self, task: Task) -> None:
        rounds = self._rounds.setdefault(task.owner, {})
        number = self._ready[0][0] if self._ready else 0
        if rounds:
            number = max(number, next(reversed(rounds)) + 1)
        progress = task.progress
        progress.behind = False
        progress.round = number
        rounds[number] = task
        insort(self._ready, (number, progress.queue_seq, task))

    def remove(self, task: Task) -> None:
        """Take an ended or interrupted task away; the next task of the context becomes claimable."""
        if task.progress.queued:
            self._unqueue(task)
        self._running.pop(task.id, None)
        owned = self._owners[task.owner]
        del owned[task.id]
        if not owned:
            del self._owners[task.owner]
        context = self._contexts[task.owner, task.context_id]
        del context[task.id]
        if not context:
            del self._contexts[task.owner, task.context_id]
            return
        following = next(iter(context.values()))
        if following.progress.behind:
            self._make_ready(following)

    def _unqueue(self, task: Task) -> None:
        progress = task.progress
        progress.queued = False
        self.queued -= 1
        if progress.behind:
            return
        del self._ready[bisect_left(self._ready, (progress.round, progress.queue_seq))]
        rounds = self._rounds[task.owner]
        del rounds[progress.round]
        if not rounds:
            del self._rounds[task.owner]

    def claimable(self, task: Task, holder: str, now: int) -> bool:
        """Return True if the holder may claim a task now."""
        progress = task.progress
        if progress.queued:
            return not progress.behind
        if task.state != 'working':
            return False
        return progress.holder is None or (progress.holder != holder and progress.lease_until < now)

    def is_next(self, task: Task) -> bool:
        """Return True if a task is the only claimable task of the queue."""
        return len(self._ready) == 1 and self._ready[0][2] is task

    def next(self, holder: str, now: int, limit: int) -> list[Task]:
        """Return claimable tasks in the order of claims: tasks without a holder or a valid lease first."""
        tasks: list[Task] = []
        if now > self._soonest:
            running = self._running.values()
            tasks = sorted((task for task in running if self.claimable(task, holder, now)), key=_queue_seq)[:limit]
            self._soonest = min((task.progress.lease_until for task in running), default=now)
        return tasks + [task for *_, task in self._ready[: limit - len(tasks)]]

    def run(self, task: Task, lease_until: int) -> None:
        """Note a claim of a task."""
        if task.progress.queued:
            self._unqueue(task)
            self._running[task.id] = task
        task.progress.lease_until = lease_until
        self._soonest = min(self._soonest, lease_until)

    def renew(self, task: Task, lease_until: int) -> None:
        """Note a new lease."""
        task.progress.lease_until = lease_until
        self._soonest = min(self._soonest, lease_until)

    def hand_back(self, task: Task) -> None:
        """Note that a running task has no holder any longer."""
        task.progress.holder = None
        self.renew(task, -1)


def _queue_seq(task: Task) -> int:
    return task.progress.queue_seq
