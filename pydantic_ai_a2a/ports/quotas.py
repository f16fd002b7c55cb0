"""The seam to what counts for quotas, an abstract class like those of `ports`: plain values, and no decision."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from pydantic_ai.usage import RunUsage

__all__ = ('Bucket', 'Charge', 'QuotaStore', 'Spent', 'amounts_of')


class Bucket(NamedTuple):
    """A token bucket of one caller: a burst of requests, then one request at a time."""

    subject: str
    """The caller's key."""
    name: str
    """For what."""
    interval: int
    """Microseconds after which there is one request more."""
    burst: int
    """Requests that are in it when it is full, as at first."""


class Charge(NamedTuple):
    """The usage that a run adds to a sliding window. All charges of a run state the same usage."""

    subject: str
    window: int
    """Names the window, by its length (ms)."""
    until: int
    """The time of deletion (ms)."""
    requests: int
    tokens: int
    cost: int
    """Billionths of a US dollar."""


def amounts_of(usage: RunUsage) -> tuple[int, int, int]:
    """Return the requests, tokens and cost of a run's usage, in the units of `Charge`."""
    return usage.requests, usage.total_tokens, int((usage.cost or 0) * 10**9)


class Spent(NamedTuple):
    """Usage that expires at one time."""

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
        """Return the charges that have not expired at the time `at`, in the order of their expiry."""

    @abstractmethod
    async def charge(self, charges: Sequence[Charge]) -> None:
        """Add what was used by a run of no task; all of it or nothing."""

    @abstractmethod
    async def settle(self, task_id: str, run: int, charges: Sequence[Charge]) -> None:
        """Charge a run whose task was ended by somebody else, except for what the run was charged before.

        The call can be repeated. Nothing is charged while the task goes on, with this run or another one: its holder
        charges for the whole run. Nothing is charged either if the task was erased or swept, since nobody knows then
        what the run was charged before.
        """
