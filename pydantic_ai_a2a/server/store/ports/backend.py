"""All ports over one store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from pydantic_ai.conversation_store import ConversationStore
from pydantic_ai.messages import ModelMessage

from ....clock import SYSTEM, Clock
from .claim import Claim
from .credentials import CredentialStore
from .engine_payloads import PayloadStore
from .event_log import EventLog
from .hook_calls import HookCalls
from .housekeeping import Erased, Housekeeping
from .outbox import Outbox
from .push_configs import PushConfigs
from .quotas import QuotaStore
from .task_queue import TaskQueue
from .task_reader import TaskReader


class Backend(ABC):
    """All ports over one store, for one agent namespace."""

    queue: TaskQueue
    reader: TaskReader
    events: EventLog
    housekeeping: Housekeeping
    quotas: QuotaStore
    push_configs: PushConfigs | None = None
    """Push configurations; None, like `outbox`, for a backend without push notifications."""
    outbox: Outbox | None = None
    credentials: CredentialStore | None = None
    """Credentials of tasks; None for a backend that stores none."""
    hook_calls: HookCalls | None = None
    """Calls of the hook `on_waiting`; None for a backend without the hook."""
    payloads: PayloadStore
    """Data of runs at an engine, for durable backends."""
    clock: Clock = SYSTEM
    durable: bool
    """True if tasks outlive the process."""
    flush_delay: float = 0.0
    """Seconds for gathering streamed pieces of a run into one write; 0: each piece is stored at once."""

    def now(self) -> int:
        """Return milliseconds since the epoch for timestamps, retention and expiry, the same for all processes.

        The clock of a shared database is known after the first call to the database.
        """
        return self.clock.now()

    def take_room(self, size: int) -> None:  # noqa: B027 - only what is kept in memory has a limit
        """Take the room of a message of so many bytes that is not submitted to the queue.

        Raises:
            OverloadedError: The store has no room for the message.
        """

    @abstractmethod
    def conversations(self, owner: str) -> ConversationStore:
        """Return the conversations of one owner. The context id is the conversation id."""

    async def history(self, claim: Claim) -> Sequence[ModelMessage]:
        """Return the messages before a run: the context, then the task's own messages. Do not change the list."""
        history: Sequence[ModelMessage] = ()
        if claim.head is not None:
            history = await self.context(claim.header.owner, claim.header.context_id, claim.head)
        return history if claim.own_messages is None else [*history, *claim.own_messages]

    async def context(self, owner: str, context_id: str, head: str) -> Sequence[ModelMessage]:
        """Return the messages of an owner's conversation up to the entry `head`. Callers must not change them."""
        return [entry.message for entry in await self.conversations(owner).read_history(head)]

    async def announce(self, service: str, *, lease: int) -> None:  # noqa: B027 - only processes that share a store
        """Tell the other processes of this namespace for `lease` milliseconds what this one serves; 0 at its end.

        The first call of a process logs what is surprising: other processes that serve something else, or no data in a
        store with other namespaces.
        """

    @abstractmethod
    async def queued(self) -> bool:
        """Return True if any task is queued, also behind another task of the context."""

    async def paused(self) -> bool:
        """Return True if `Housekeeping.pause` keeps tasks from being claimed."""
        return False

    @abstractmethod
    def listen(self, on_ready: Callable[[str | None], None], on_cancel: Callable[[str], None]) -> Callable[[], None]:
        """Call back for claimable tasks and for tasks to cancel, in the thread and context of the writing caller.

        `on_ready` gets None for tasks of other processes, in the event loop of the listener. Callbacks are hints and
        may be missing. Return a function to stop.

        Raises:
            BackendUnusable: Another app of this process uses the same tasks.
        """

    def set_idle(self, holder: str, *, idle: bool) -> None:  # noqa: B027 - a hint
        """Note that a worker has a free slot and has found no further task, or that it will look without a hint."""

    async def erase(self, owner: str, context_id: str | None, *, grace: float = 0) -> Erased:
        """Erase a batch as `Housekeeping.erase`. Messages are refused for `grace` seconds and a minute from now on.

        After the last batch, `Housekeeping.set_erasing` accepts messages again.
        """
        until = self.now() + round(1000 * (60 + grace))
        await self.housekeeping.set_erasing(owner, context_id, until=until)
        return await self.housekeeping.erase(owner, context_id, at=self.now())

    async def compact(self) -> None:  # noqa: B027 - a store that overwrites what was deleted needs none
        """Remove deleted data from the storage. The removal may take long and block other writers."""

    async def check_writes(self) -> None:  # noqa: B027 - memory always takes writes
        """Probe the store with a small write, unless a recent write has succeeded, for `/health/ready`.

        Raises:
            StoreUnavailable: The store takes no writes now.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the backend's connections."""
