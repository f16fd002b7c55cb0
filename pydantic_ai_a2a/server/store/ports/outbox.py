"""The port for deliveries of events to webhooks that are not done yet.

`TaskQueue` writes deliveries in the transactions of the events.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ....types.frozen_values import frozen
from ....types.stored_events import TaskEvent
from .push_configs import PushConfig


@frozen
class Delivery:
    """The next event for a configuration, with the sender's right to try."""

    id: str
    """Id of the event for this configuration, the same in all tries; visible ASCII."""
    task_id: str
    owner: str
    config: PushConfig
    event: TaskEvent
    failures: int
    """Number of failed tries."""
    place: int
    """Row of the configuration in the store."""
    lease: int
    """Number that grows with every lease of the configuration; writes with an older number change nothing."""
    traceparent: str | None = None
    """Trace and baggage of the request that created the task, as JSON."""


class Leased(NamedTuple):
    """The leased deliveries of a sender."""

    deliveries: Sequence[Delivery]
    wait: int | None
    """Milliseconds until the sender can lease another delivery; 0: now; None: no delivery is pending."""


@frozen
class DeadDelivery:
    """An undeliverable event."""

    id: str
    task_id: str
    config_id: str
    owner: str
    n: int
    """Number of the event in the task's log."""
    state: str | None
    """State of a status update; None for an artifact."""
    at: int
    """Time when the sender gave up (ms)."""
    failures: int
    error: str
    """Reason of the last failure, without the payload and the address."""


class Outbox(ABC):
    """Events on their way to webhooks, in order for each configuration. Many processes may send at once.

    The store measures leases and pauses by the clock of task leases.
    """

    @abstractmethod
    async def lease(self, *, lease: int, limit: int, held: Mapping[str, int]) -> Leased:
        """Lease the oldest undelivered event of up to `limit` due configurations without a holder.

        A delivery with an expired lease goes to the next sender. A sender gets another delivery of an owner only while
        the sender has fewer deliveries of the owner than free places in `limit`: other owners always have a place.

        Args:
            lease: Length of the leases in milliseconds. A lease of less than 0 has expired at once.
            limit: The most deliveries to lease.
            held: Number of deliveries of each owner in the sender already.
        """

    @abstractmethod
    async def done(self, delivery: Delivery) -> None:
        """Delete a delivery after success; the next event of the configuration becomes due."""

    @abstractmethod
    async def failed(self, delivery: Delivery, *, at: int, pause: int | None, error: str) -> None:
        """Record a failed try.

        Args:
            delivery: The delivery. Later events of the configuration wait for the next try.
            at: Time of the failure (ms since the epoch), for `DeadDelivery.at`.
            pause: Milliseconds until the next try; None gives the delivery up.
            error: Reason of the failure.
        """

    @abstractmethod
    async def release(self, delivery: Delivery) -> None:
        """Release a delivery without a try: any sender may try at once."""

    @abstractmethod
    async def dead(
        self, owner: str | None = None, *, limit: int = 100, after: tuple[int, str] | None = None
    ) -> Sequence[DeadDelivery]:
        """Return a page of dead deliveries, the oldest first; of all owners, if `owner` is None.

        `after` is (at, id) of the last delivery of the previous page.
        """

    @abstractmethod
    async def retry(self, delivery_id: str) -> None:
        """Try a dead delivery again, with as many tries as a new delivery, before later events.

        Raises:
            UnsupportedOperationError: No dead delivery has this id.
        """

    @abstractmethod
    def listen(self, on_due: Callable[[], object]) -> Callable[[], None]:
        """Call `on_due`, in any thread, when a delivery may be due; return a function to stop. Hints may be missing."""
