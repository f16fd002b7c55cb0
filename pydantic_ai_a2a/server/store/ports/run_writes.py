"""The port for the writes of a running task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ....types.stored_events import TaskEvent
from .checkpoint import Checkpoint
from .claim import Claim
from .run_end import Finish
from .stored_status import Status


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
