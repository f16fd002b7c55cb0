"""The port of the counters for quotas: requests of callers, and the usage of runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from pydantic_ai.usage import RunUsage

from ....reported_numbers import bounded, count_of


class Bucket(NamedTuple):
    """A token bucket of one caller: a burst of requests, then one request at a time."""

    subject: str
    """The caller's key."""
    name: str
    """The kind of counted requests."""
    interval: int
    """Microseconds until one more request is allowed."""
    burst: int
    """Requests in a full bucket. A new bucket is full."""


class Charge(NamedTuple):
    """The usage that a run adds to a sliding window. All charges of a run state the same usage."""

    subject: str
    window: int
    """Length of the window (ms)."""
    until: int
    """The time of deletion (ms)."""
    requests: int
    tokens: int
    cost: int
    """Billionths of a US dollar."""


def amounts_of(usage: RunUsage) -> tuple[int, int, int]:
    """Return the requests, tokens and cost of a run's usage, in the units of `Charge`, each at most 2**53."""
    tokens = count_of(usage.input_tokens) + count_of(usage.output_tokens)
    return count_of(usage.requests), count_of(tokens), count_of(bounded(usage.cost or 0) * 10**9)


class Spent(NamedTuple):
    """Usage with one expiry."""

    until: int
    """The time of deletion (ms)."""
    requests: int
    tokens: int
    cost: int
    """Billionths of a US dollar."""


class QuotaStore(ABC):
    """Counters of requests and usage, shared by all processes of the store. The caller of the port compares limits."""

    @abstractmethod
    async def take(self, bucket: Bucket, *, at: int) -> int:
        """Take a request out of a bucket; 0, or how long there is none yet (ms), and nothing is taken then.

        Whoever asks at the same time, no more is taken than there is. A bucket is filled up by what is set now.
        """

    @abstractmethod
    async def spent(self, subject: str, window: int, *, at: int) -> Sequence[Spent]:
        """Return the unexpired charges at the time `at`, in the order of expiry."""

    @abstractmethod
    async def charge(self, charges: Sequence[Charge]) -> None:
        """Add the usage of a run without a task, whole or not at all."""

    @abstractmethod
    async def settle(self, task_id: str, run: int, charges: Sequence[Charge]) -> None:
        """Charge a run after another process has ended the task, without the amounts charged before.

        The call can be repeated. A live task is not charged: the holder charges the whole run. An erased or swept task
        is not charged either, because the amounts charged before are unknown.
        """
