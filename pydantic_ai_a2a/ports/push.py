"""The seams to storage for push notifications: who is to be told of a task, and what they have not been told yet.

The rules of `ports` hold here too. Where a notification is sent to is kept as bytes that storage does not look into:
they may be encrypted. Deliveries are written by `TaskQueue`, in the transactions that store the events.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ..types import TaskEvent

__all__ = ('DeadDelivery', 'Delivery', 'Leased', 'Outbox', 'PushConfig', 'PushConfigs', 'Takes')

Takes = Literal['statuses', 'artifacts', 'chunks']
"""The delivered events: status updates; also whole artifacts; or every event as it is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConfig:
    """Somebody who is to be told of a task."""

    id: str
    """Names it among those of its task."""
    version: str
    """Name of the codec that it was registered through, which writes what it is told."""
    takes: Takes
    body: bytes = field(repr=False)
    """Address and credentials of the webhook; a secret."""


class PushConfigs(ABC):
    """The push notification configurations of tasks (§3.1.7 to §3.1.10). They go with their task.

    Every method raises TaskNotFoundError if the task is not there for this owner.
    """

    @abstractmethod
    async def create(self, task_id: str, owner: str, config: PushConfig, *, limit: int) -> None:
        """Add a configuration, which gets the events that are stored from now on; one with the same id is replaced.

        Raises:
            InvalidParamsError: The task has `limit` others already.
        """

    @abstractmethod
    async def get(self, task_id: str, owner: str, config_id: str | None) -> PushConfig:
        """One of them; the oldest for None.

        Raises:
            TaskNotFoundError: Also if there is no such configuration.
        """

    @abstractmethod
    async def list(self, task_id: str, owner: str) -> Sequence[PushConfig]:
        """All of a task, the oldest first."""

    @abstractmethod
    async def delete(self, task_id: str, owner: str, config_id: str) -> None:
        """Remove one, and what it has not been told; nothing if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """An event that one configuration is to be told next, and the right of its holder to try."""

    id: str
    """Names this event for this configuration, however often it is sent; visible ASCII."""
    task_id: str
    owner: str
    config: PushConfig
    event: TaskEvent
    failures: int
    """Number of failed tries."""
    place: int
    """Of the configuration, in the store."""
    lease: int
    """Grows with every lease of the configuration; who comes with an older one changes nothing."""
    traceparent: str | None = None
    """Of the request that the task goes on with, as W3C trace context."""


class Leased(NamedTuple):
    """The deliveries that a sender may try now."""

    deliveries: Sequence[Delivery]
    wait: int | None
    """Milliseconds until the sender could get another delivery: 0 for at once, None if no delivery waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadDelivery:
    """An event that could not be delivered."""

    id: str
    task_id: str
    config_id: str
    owner: str
    n: int
    """Number of the event in the task's log."""
    state: str | None
    """The state that it tells of; None for an artifact."""
    at: int
    """Time when the sender gave up (ms)."""
    failures: int
    error: str
    """Reason of the last failure, without the payload and the address."""


class Outbox(ABC):
    """Events on their way to webhooks, in order for each configuration. Many processes may send at once.

    The store measures leases and pauses by the clock that measures the leases of tasks: nobody sets it.
    """

    @abstractmethod
    async def lease(self, *, lease: int, limit: int, held: Mapping[str, int]) -> Leased:
        """Take the oldest undelivered event of up to `limit` configurations which are due and which nobody holds.

        A delivery whose lease has expired goes to the next sender that asks. A sender gets another delivery of an owner
        only while it has fewer of that owner than would be left of `limit`: so there is always room for other owners.

        Args:
            lease: Length of the leases in milliseconds. A lease of less than 0 has expired at once.
            limit: How many deliveries may be taken.
            held: How many deliveries of each owner the sender has already.
        """

    @abstractmethod
    async def done(self, delivery: Delivery) -> None:
        """It was delivered: forget it, and go on with the configuration's next one."""

    @abstractmethod
    async def failed(self, delivery: Delivery, *, at: int, pause: int | None, error: str) -> None:
        """Record that a try has failed.

        Args:
            delivery: The delivery, which is tried again before all that follow.
            at: The time (ms since the epoch), which `DeadDelivery.at` tells.
            pause: Milliseconds until the next try; None gives the delivery up.
            error: Why it failed.
        """

    @abstractmethod
    async def release(self, delivery: Delivery) -> None:
        """Hand it back as it was: somebody else may try at once."""

    @abstractmethod
    async def dead(
        self, owner: str | None = None, *, limit: int = 100, after: tuple[int, str] | None = None
    ) -> Sequence[DeadDelivery]:
        """Those that were given up, the first of them first; of any owner, if None.

        `after` is (at, id) of the last one of the page before.
        """

    @abstractmethod
    async def retry(self, delivery_id: str) -> None:
        """Try one that was given up once more, as often as a new one, and before those that came after it.

        Raises:
            UnsupportedOperationError: There is no such dead delivery.
        """

    @abstractmethod
    def listen(self, on_due: Callable[[], object]) -> Callable[[], None]:
        """Be told, in any thread, that something may have become due; a hint, never promised. Returns what stops it."""
