"""The data of the store in memory, and the steps that several writes share.

Every write holds the lock, checks first and changes afterwards: an error leaves the store as it was. Events are
published under the lock, in the order of the writes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from threading import RLock

from ...clock import Clock
from ...errors import OverloadedError, TaskNotFoundError
from ...protocol import stored
from ...types import TERMINAL, TaskEvent
from ..events import EventBus
from ..histories import Histories
from ..ports import DEAD_LETTERS, SealedCredential, Status
from .conversations import Conversations
from .lists import TaskLists
from .push import Webhooks
from .quotas import Quotas
from .records import NO_EVENTS, OVER, Key, Message, Task
from .waiting import Waiting

_COPIES = 4
"""Copies of a message: in the task, in the conversation, and in later values."""
_ROW = 4_096
"""The least bytes of a message with all that follows from it."""
_TASK, _MESSAGE, _ITEM, _EVENT = 1_200, 600, 100, 150
"""Bytes of a task, an accepted message, a message or an artifact, and an event, besides their JSON."""


class Store:
    """All tasks and conversations of one backend.

    Args:
        clock: Measures leases.
        limit: Limit of the stored bytes; None for none.
    """

    def __init__(self, clock: Clock, event_bus: EventBus, limit: int | None) -> None:
        self.clock = clock
        self.event_bus = event_bus
        self.lock = RLock()
        self.tasks: dict[str, Task] = {}
        self.waiting = Waiting()
        self.lists = TaskLists()
        self.conversations = Conversations()
        self.quotas = Quotas()
        self.webhooks = Webhooks(clock)
        self.histories = Histories()
        self.credentials: dict[str, dict[str, SealedCredential]] = {}
        """The credentials of tasks that have not ended, by task and id."""
        self.repeatable: dict[str, dict[bytes, Message]] = {}
        """The messages that are recognised if they are repeated, by owner and key."""
        self.dead: dict[str | None, list[Key]] = {}
        """Dead letters of each owner, and with the key None of all owners, the oldest failure first."""
        self.listeners: list[tuple[Callable[[str], object], Callable[[str], object]]] = []
        """Callbacks for tasks that may be claimable, and for tasks to cancel."""
        self._limit = limit
        self._size = 0
        """Bytes of all tasks."""
        self._messages = 0

    def tell_ready(self, task_id: str) -> None:
        """Tell the workers of a task that may be claimable, after the write."""
        for on_ready, _ in tuple(self.listeners):
            on_ready(task_id)

    # --- bytes ------------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Estimate of the stored bytes."""
        return self._size + self.conversations.size + self.webhooks.size

    def check_room(self, size: int) -> None:
        """Refuse a message of so many bytes if it could exceed the limit.

        Raises:
            OverloadedError: The store has no room for the message.
        """
        if self._limit is not None and self.size + _COPIES * size + _ROW > self._limit:
            raise OverloadedError(headers={'Retry-After': '60'})

    def _grow(self, task: Task, size: int) -> None:
        task.size += size
        self._size += size

    # --- tasks ------------------------------------------------------------------------------------------------------

    def find(self, task_id: str, owner: str | None) -> Task:
        """Return a task.

        Raises:
            TaskNotFoundError: The owner has no such task.
        """
        task = self.tasks.get(task_id)
        if task is None or owner not in (None, task.owner):
            raise TaskNotFoundError
        return task

    def busy(self, owner: str, context_id: str) -> bool:
        """Return True if a task of a context has not ended."""
        return self.waiting.first_live(owner, context_id) is not None or self.lists.waits(owner, context_id)

    def add(self, task: Task) -> None:
        """Add a new task to the queue."""
        self.tasks[task.id] = task
        self._grow(task, _TASK + len(task.request or b''))
        self.waiting.add(task)
        self.lists.note(task)

    def accept(self, message: Message, key: bytes | None) -> None:
        """Add a client's message to its task."""
        task = message.task
        self._messages += 1
        message.seq = self._messages
        task.inbox += (message,)
        task.history += (message.body,)
        size = _MESSAGE + len(message.body) + len(message.request or b'')
        task.size += size
        self._size += size
        if key is not None:
            message.key = key
            self.repeatable.setdefault(task.owner, {})[key] = message

    def add_messages(self, task: Task, *bodies: bytes) -> None:
        """Add messages to the history of a task."""
        task.history += bodies
        self._grow(task, sum(map(len, bodies)) + _ITEM * len(bodies))

    def add_artifacts(self, task: Task, artifacts: Sequence[tuple[str, bytes]]) -> None:
        """Add artifacts to a task. A new artifact replaces the artifact with the same id."""
        bodies = task.progress.artifacts
        for artifact_id, body in artifacts:
            self._grow(task, len(body) + _ITEM - len(bodies.pop(artifact_id, b'')))
            bodies[artifact_id] = body

    def streamed(self, task: Task) -> list[tuple[str, bytes]]:
        """Return the artifacts of a task without a result, with the streamed parts: readers have seen them (§4.2.2)."""
        updates = task.updates()
        bodies = stored.assemble(task.artifacts, updates, partial=False) if updates else ()
        return [(stored.load_artifact(body)['artifact_id'], body) for body in bodies]

    def set_status(self, task: Task, status: Status) -> None:
        """Set the status; the previous status message moves into the history (§3.7)."""
        if task.status_message is not None:
            self.add_messages(task, task.status_message)
        task.state, task.status_at, task.status_message = status
        self.lists.note(task)

    def log(self, task: Task, events: Sequence[TaskEvent], artifacts: Sequence[tuple[str, bytes]] = ()) -> None:
        """Add events to the log of a task, for its webhooks, too, and publish the events.

        Args:
            task: The task.
            events: The next events.
            artifacts: The final artifacts of the task, if known: (artifactId, JSON).
        """
        if not events:
            return
        task.last_event = events[-1].n
        size = 0
        for event in events:
            size += len(event.payload) + _EVENT
            if event.state is not None:
                task.progress.shown = event.state
        if task.state in TERMINAL and task.logged_after is None and not task.push:
            # Nobody resumes in the log of a task that had no reader. The log would be a fifth of a finished task.
            size = 0
            for event in task.events:
                size -= len(event.payload) + _EVENT
            task.events = NO_EVENTS
        else:
            task.events += events
        task.size += size
        self._size += size
        if task.push:
            self.webhooks.enqueue(task, events, artifacts)
        self.event_bus.publish(task.id, events)

    def end_unheld(self, task: Task, status: Status, failure: str | None = None) -> TaskEvent:
        """End a task without the holder: the new fence refuses a late result of the holder."""
        turn = self.conversations.closed_turn(task, status.at) if status.state == 'canceled' else None
        artifacts, event = self.streamed(task), task.status_event(status)
        if turn is not None:
            self.conversations.append(turn)
        self.add_artifacts(task, artifacts)
        if task.live:
            self.waiting.remove(task)
        task.fence += 1
        task.failure = failure
        self.set_status(task, status)
        self.log(task, [event])
        task.results, task.progress = (*task.progress.artifacts.values(),), OVER
        self.credentials.pop(task.id, None)
        return event

    def sweep_credentials(self, at: int) -> int:
        """Delete expired credentials, and return the number."""
        expired = [
            (task_id, credential.id)
            for task_id, credentials in self.credentials.items()
            for credential in credentials.values()
            if credential.until <= at
        ]
        for task_id, credential_id in expired:
            del self.credentials[task_id][credential_id]
        return len(expired)

    def forget(self, owner: str, context_id: str | None = None) -> None:
        """Drop the cached messages of an erased context, or of all contexts of the owner."""
        self.histories.forget(owner, context_id)

    def drop_events(self, task: Task, limit: int) -> int:
        """Delete the oldest events of a task, and return the number."""
        dropped = task.events[:limit]
        del task.events[:limit]
        self._grow(task, -sum(len(event.payload) + _EVENT for event in dropped))
        return len(dropped)

    def drop_task(self, task: Task) -> int:
        """Delete a task that is not live, with messages and artifacts, and return the number of all."""
        del self.tasks[task.id]
        self._size -= task.size
        self.lists.forget(task)
        self.forget_dead(task)
        self.webhooks.drop(task)
        self.credentials.pop(task.id, None)
        repeatable = self.repeatable.get(task.owner, {})
        for message in task.inbox:
            if message.key is not None and repeatable.get(message.key) is message:
                del repeatable[message.key]
        if not repeatable:
            self.repeatable.pop(task.owner, None)
        return len(task.history) + len(task.artifacts) + 1

    # --- dead letters -----------------------------------------------------------------------------------------------

    def note_dead(self, task: Task) -> None:
        """List a failed task as a dead letter."""
        for owner in (task.owner, None):
            insort(self.dead.setdefault(owner, []), (task.status_at, task.id))

    def forget_dead(self, task: Task) -> None:
        """Take a deleted task off the list of dead letters."""
        if task.failure not in DEAD_LETTERS:
            return
        for owner in (task.owner, None):
            keys = self.dead[owner]
            del keys[bisect_left(keys, (task.status_at, task.id))]
            if not keys:
                del self.dead[owner]
