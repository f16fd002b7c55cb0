"""Quotas in memory: request buckets of callers, and the usage of runs in sliding windows.

A bucket is one number: the time of the next full bucket. Each request adds an interval to the time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

from ..ports import Bucket, Charge, Spent


class Quotas:
    """The counters of all callers."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, str], int] = {}
        """Time of the next full bucket (microseconds), by subject and name."""
        self._full: list[tuple[int, str, str]] = []
        """The buckets in the order of these times."""
        self._spent: dict[tuple[str, int], list[Spent]] = {}
        """The charges of each subject and window, in the order of expiry."""
        self._until: list[tuple[int, str, int]] = []
        """All charges in the order of expiry: time, subject, window."""

    def take(self, bucket: Bucket, *, at: int) -> int:
        """See `QuotaStore.take`."""
        subject, name, interval, burst = bucket
        now = at * 1000
        latest = now + (burst - 1) * interval  # the latest `full_at` with room for one more
        full_at = self._buckets.get((subject, name))
        if full_at is not None:
            if full_at > latest:
                return -(-(full_at - latest) // 1000)
            del self._full[bisect_left(self._full, (full_at, subject, name))]
        full_at = max(now, full_at or 0) + interval
        self._buckets[subject, name] = full_at
        insort(self._full, (full_at, subject, name))
        return 0

    def spent(self, subject: str, window: int, *, at: int) -> list[Spent]:
        """See `QuotaStore.spent`."""
        charges = self._spent.get((subject, window), [])
        return charges[bisect_left(charges, (at + 1,)) :]

    def charge(self, charges: Iterable[Charge]) -> None:
        """See `QuotaStore.charge`."""
        for subject, window, until, requests, tokens, cost in charges:
            rows = self._spent.setdefault((subject, window), [])
            place = bisect_left(rows, (until,))
            if place < len(rows) and rows[place].until == until:
                _, *before = rows[place]
                rows[place] = Spent(until, before[0] + requests, before[1] + tokens, before[2] + cost)
            else:
                rows.insert(place, Spent(until, requests, tokens, cost))
                insort(self._until, (until, subject, window))

    def sweep(self, *, at: int, limit: int) -> int:
        """Delete full buckets and expired charges, and return their number."""
        full = self._full[: min(limit, bisect_left(self._full, (at * 1000 + 1,)))]
        del self._full[: len(full)]
        for _, *key in full:
            del self._buckets[key[0], key[1]]
        over = self._until[: min(limit, bisect_right(self._until, (at + 1,)))]
        del self._until[: len(over)]
        for until, subject, window in over:
            rows = self._spent[subject, window]
            del rows[bisect_left(rows, (until,))]
            if not rows:
                del self._spent[subject, window]
        return len(full) + len(over)
