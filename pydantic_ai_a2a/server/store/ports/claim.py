"""The claim of a task, and what the holder of the claim writes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from pydantic_ai.messages import ModelMessage
from pydantic_ai.usage import RunUsage

from ....types.a2a_objects import TaskState
from ....types.frozen_values import frozen
from ....types.stored_events import TaskEvent
from ....types.stored_tasks import TaskHeader
from .quotas import Charge


@frozen
class Claim:
    """A claimed task, with the holder's right to write."""

    header: TaskHeader
    holder: str
    fence: int
    """Number that grows with every claim; writes with an older fence are refused."""
    attempt: int
    """Number of the attempt, from 1: each lost holder adds 1."""
    run: int
    """Counts the agent runs of the task, from 1."""
    turn: int
    """Number of the run's turn, from 1. A turn begins with a prompt. Attempts after a crash and resumed runs belong to
    the same turn."""
    inbox: int
    """Row of the newest client message of this run and all earlier runs, without answers."""
    message: bytes
    """The message to run now, as JSON."""
    head: str | None
    """Newest entry of the continued conversation; None for a new conversation."""
    own_messages: Sequence[ModelMessage] | None
    """Model messages of the interrupted task, not yet in the context."""
    request: bytes | None
    """The fields of the request of `message` for the run, as a JSON object."""
    traceparent: str | None
    checkpoint: Checkpoint | None = None
    """The stored progress of earlier attempts; None without progress."""
    push: bool = False
    """True if the task has, or had, push notification configurations."""
    pending: bytes | None = None
    """The task's pending calls with their answers; None if the task waited only for a message."""
    tried: Tried | None = None
    """The failed tries of the run; None without a failed try."""
    wanted: int | None = None
    """What the readers in other processes want, if the store knows them."""

    @property
    def used(self) -> RunUsage | None:
        """Usage of the run in earlier attempts and tries; None without any."""
        tried, checkpoint = self.tried, self.checkpoint
        if tried is None or (checkpoint is not None and checkpoint.usage.requests > tried.usage.requests):
            return None if checkpoint is None else checkpoint.usage
        return tried.usage


class Status(NamedTuple):
    """A status to store with an event."""

    state: TaskState
    at: int
    message: bytes | None


@frozen
class Checkpoint:
    """The progress of a run, for the next holder of the task."""

    run: str
    """Id of the run, the same in all attempts."""
    messages: Sequence[ModelMessage]
    """The model messages of the run, over all attempts, without the earlier messages of the conversation."""
    usage: RunUsage
    """The run's usage over all attempts."""
    first: int = 0
    """In a write: number of the first stored message to replace by `messages`; earlier messages stay. In a read: 0."""
    taken: int = 0
    """Row of the newest client message in `messages` that entered the running run; 0 if no message did."""


@frozen
class Tried:
    """The tries of a run that an error of the model has ended."""

    number: int
    """Number of the tries since the last stored step of the run."""
    spent: float
    """Seconds of all tries of the run, with the pauses between them."""
    usage: RunUsage
    """The run's usage over all attempts and tries."""


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
    last: bool = False
    """True to end the task despite unread messages."""


class Marks(NamedTuple):
    """Changes to the holder's tasks since its last renewal."""

    lost: Sequence[str]
    """Tasks of other holders by now: this holder stops the runs and writes nothing."""
    cancel: Sequence[str]
    """Tasks to cancel."""


class Sink(ABC):
    """The writes of a running task."""

    @abstractmethod
    async def emit(
        self,
        claim: Claim,
        events: Sequence[TaskEvent],
        status: Status | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        """Store events, and the status of the task if one is given.

        The message of the previous status moves into the history. If the last event is a `note` for readers of live
        text, the status stays, and the message of the note goes into the history. A checkpoint is stored in the same
        transaction, and `claim` returns the checkpoint to the task's next holder. Only durable backends get
        checkpoints. After `StoreUnavailable` the caller repeats the call: the events are stored once.

        Raises:
            LeaseLost: The claim is no longer valid.
        """

    @abstractmethod
    async def finish(self, claim: Claim, finish: Finish) -> Claim | None:
        """End a run in one transaction, and release the task.

        A task with unread messages does not end when the run completes, fails or rejects the task: the result is
        stored, the message of the status goes into the history, and the claim for the first run of the next turn is
        returned. With `finish.last`, as a dead letter, or canceled, the task ends despite unread messages. A waiting
        task keeps unread messages for later. The usage of the run is charged in the same transaction, without the usage
        charged before: a run can continue the checkpoint of a dead letter.

        The run's checkpoint is deleted, except for a dead letter (`failure` is one of `DEAD_LETTERS`). After
        `StoreUnavailable` the caller repeats the call: if the first call was stored, the second call returns the same
        result.

        Raises:
            LeaseLost: The claim is no longer valid.
        """
