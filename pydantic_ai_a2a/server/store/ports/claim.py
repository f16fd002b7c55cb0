"""The claim of a task: the holder's right to write. `server.store.sql.claims` tells how it is made and lost."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.messages import ModelMessage
from pydantic_ai.usage import RunUsage

from ....types.frozen_values import frozen
from ....types.stored_tasks import TaskHeader
from .checkpoint import Checkpoint
from .failed_tries import Tried


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
    """Row of the newest client message of this run and all earlier runs, without answers. Stored workflows have the
    name."""
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
    damage: str | None = None
    """What the store cannot read of the run, for the log: the run fails. None if the claim is whole."""

    @property
    def used(self) -> RunUsage | None:
        """Usage of the run in earlier attempts and tries; None without any."""
        tried, checkpoint = self.tried, self.checkpoint
        if tried is None or (checkpoint is not None and checkpoint.usage.requests > tried.usage.requests):
            return None if checkpoint is None else checkpoint.usage
        return tried.usage
