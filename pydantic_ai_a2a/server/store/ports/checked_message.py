"""What a client's message gives to the store, and what the store answers."""

from __future__ import annotations

from typing import NamedTuple

from ....types.a2a_objects import TaskState
from ....types.frozen_values import frozen
from ....types.stored_tasks import TaskHeader
from .checked_answer import Answer
from .claim import Claim
from .credentials import SealedCredential
from .push_configs import PushConfig


@frozen
class Submission:
    """A client's message after all checks without storage."""

    owner: str
    anonymous: bool
    message_id: str
    digest: bytes
    """Digest of the content: two messages with the same id and digest are one message, sent twice."""
    body: bytes
    """The message as 1.0 JSON, without taskId and contextId."""
    task_id: str
    """Id of the continued or created task."""
    new: bool
    """True if the message creates a task."""
    context_id: str | None
    """The context of a new task; for a continued task the context in the request or of the pause, or None."""
    request: bytes | None = None
    """The fields of the request for the run, as a JSON object."""
    traceparent: str | None = None
    dialect: str = '1.0'
    """Name of the codec of the request, stored with a new task."""
    at: int
    """Now (ms)."""
    logged: bool = False
    """True if the sender reads the events of the task: the log has all events from the message on."""
    reader: tuple[str, int] | None = None
    """The accepting process, if its clients read the task or wait for it, and what they want. The store sets the value,
    for another process that runs the task."""
    answers_calls: bool = False
    """True if the message has answers to calls: only a task with pending calls accepts the message."""
    answer: Answer | None = None
    """The checked answer, if the task waits for one."""
    only_waiting: bool = False
    """True if a queued or running task must refuse the message."""
    pause: int | None = None
    """Number of the event of the answered pause: a task that has resumed since refuses the message."""
    task_limit: int | None = None
    """Limit of the owner's queued and running tasks, including the message's task."""
    size: int = 0
    """Bytes of the stored parts."""
    unread_limit: int | None = None
    """Limit of unread messages in the task, without the message and the running one; None: `queue_limit`."""
    refusal: Exception | None = None
    """Error to raise for a message that was not accepted before."""
    push: PushConfig | None = None
    """A webhook for the task, as by `PushConfigs.create`, from the first event after the message."""
    push_limit: int = 0
    """Limit of the task's push configurations."""

    credential: SealedCredential | None = None
    """The credential for the run, stored with the message and deleted at the end of the task."""

    def header(self, state: TaskState = 'submitted') -> TaskHeader:
        """Return the header of the new task; a submitted task is queued."""
        assert self.context_id is not None, 'a new message has one'
        return TaskHeader(
            id=self.task_id,
            context_id=self.context_id,
            owner=self.owner,
            state=state,
            status_at=self.at,
            status_message=None,
            metadata=None,
            last_event=0,
            dialect=self.dialect,
            queued=state == 'submitted',
        )


class Accepted(NamedTuple):
    """The result of a submission."""

    header: TaskHeader
    after: int
    """Number of the newest event at the first acceptance of the message: a blocking send waits for later events."""
    replayed: bool
    """True if the message was accepted before: this submission stored nothing."""
    claim: Claim | None = None
    """The claim of the task for the offered slot; None if the task waits, or if the message queued no task."""

    @property
    def waits(self) -> bool:
        """True if the message has left its task to the workers."""
        return self.claim is None and self.header.queued and not self.replayed
