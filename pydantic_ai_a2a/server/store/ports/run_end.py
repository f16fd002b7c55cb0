"""The end of a run: all values of the last transaction."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.messages import ModelMessage
from pydantic_ai.usage import RunUsage

from ....types.frozen_values import frozen
from ....types.stored_events import TaskEvent
from .offered_slot import Slot
from .quotas import Charge
from .stored_status import Status


@frozen
class Finish:
    """The end of a run: all values of the last transaction."""

    status: Status
    events: Sequence[TaskEvent] = ()
    """Events before the status update, such as the closing artifact update."""
    final: TaskEvent
    """The status update; not stored if another message of the task is run next."""
    history: Sequence[tuple[str, bytes]] = ()
    """Messages to add to the task's history: (messageId, JSON)."""
    artifacts: Sequence[tuple[str, bytes]] | None = None
    """Artifacts to add to the task: (artifactId, JSON). A new artifact replaces the artifact with the same id. None
    keeps the artifacts in the log of a run that ends the task or the turn."""
    messages: Sequence[ModelMessage] = ()
    """The run's new model messages. Completed or canceled: appended to the context. Interrupted: kept with the task.
    Failed or rejected: dropped; the context stays as before the run."""
    rewritten: Sequence[ModelMessage] | None = None
    """The whole context with `messages`, if a completed run has summarised earlier messages.

    Replaces the context, and the newest entry before becomes a branch of the `ConversationRecord`. If the newest entry
    is not `Claim.head` any more, `messages` are appended instead."""
    usage: RunUsage | None = None
    """The run's usage, added to the conversation's usage."""
    metadata: bytes | None = None
    failure: str | None = None
    """Class of the failure, for a failed task."""
    pending: bytes | None = None
    """The pending calls of an interrupted task, to check answers."""
    charges: Sequence[Charge] = ()
    """The run's usage over all attempts, as charges of the quotas."""
    taken: int = 0
    """Row of the newest client message that entered the running run, now marked as read; 0 if no message did."""
    hook_lease: int | None = None
    """Milliseconds for which the call of `on_waiting` for this pause belongs to this process; None to store no call."""
    last: bool = False
    """True to end the task despite unread messages."""
    slot: Slot | None = None
    """The slot of the run, if the next queued task may have it: see `TaskQueue.takes_next`."""
