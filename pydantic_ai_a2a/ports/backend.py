"""All ports over one store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from pydantic_ai.conversation_store import ConversationStore
from pydantic_ai.messages import ModelMessage

from ..clock import SYSTEM, Clock
from .housekeeping import Housekeeping
from .push import Outbox, PushConfigs
from .quotas import QuotaStore
from .reading import EventLog, TaskReader
from .tasks import Claim, TaskQueue

__all__ = ('Backend',)


class Backend(ABC):
    """All ports over one store, for one agent namespace."""

    queue: TaskQueue
    reader: TaskReader
    events: EventLog
    housekeeping: Housekeeping
    quotas: QuotaStore
    push_configs: PushConfigs | None = None
    """None, and no outbox, for a backend that has no push notifications."""
    outbox: Outbox | None = None
    clock: Clock = SYSTEM
    durable: bool
    """True if tasks outlive the process."""
    flush_delay: float = 0.0
    """Seconds for which what a run streams is gathered, to be stored together; 0 stores each piece at once."""

    def now(self) -> int:
        """Milliseconds since the epoch, for timestamps, retention and expiry: the same for all who share the store.

        A database that machines share has a clock of its own, which is known after the first call.
        """
        return self.clock.now()

    def take_room(self, size: int) -> None:  # noqa: B027 - only what is kept in memory has a limit
        """Take the room of a message of so many bytes that is not submitted to the queue.

        Raises:
            OverloadedError: There is not as much.
        """

    @abstractmethod
    def conversations(self, owner: str) -> ConversationStore:
        """The conversations of one owner; the context id is the conversation id."""

    async def history(self, claim: Claim) -> Sequence[ModelMessage]:
        """Return the messages that a run continues: its context, then the task's own messages. Not to be changed."""
        history: Sequence[ModelMessage] = ()
        if claim.head is not None:
            history = await self.context(claim.header.owner, claim.header.context_id, claim.head)
        return history if claim.own_messages is None else [*history, *claim.own_messages]

    async def context(self, owner: str, context_id: str, head: str) -> Sequence[ModelMessage]:
        """Return the messages of an owner's conversation up to the entry `head`. Callers must not change them."""
        return [entry.message for entry in await self.conversations(owner).read_history(head)]

    @abstractmethod
    async def queued(self) -> bool:
        """Return true if any task waits for a worker, also behind another task of its context."""

    @abstractmethod
    def listen(self, on_ready: Callable[[str | None], None], on_cancel: Callable[[str], None]) -> Callable[[], None]:
        """Call back, in the writing caller's thread and context, for tasks that may be claimable or must be canceled.

        `on_ready` gets None for tasks of other processes; of those, the listener is told in its own event loop. Hints:
        none is promised. Returns the function that stops it.

        Raises:
            BackendUnusable: Another app of this process has the same tasks.
        """

    async def compact(self) -> None:  # noqa: B027 - a store that overwrites what was deleted needs none
        """Remove deleted data from the storage itself. This may take long, and hold up other writers."""

    async def check_writes(self) -> None:  # noqa: B027 - memory always takes writes
        """Write something small, unless it is known that the store takes writes: `/health/ready` asks this.

        Raises:
            StoreUnavailable: The store takes no writes now.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the backend's connections."""
