"""Pauses between attempts that fail: each longer than the one before, up to a limit, and random in part."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count

_MOST_DOUBLED = 64
"""Pauses that may be longer than the one before. Later, a power of the number of failures would be too large."""


def backoff_after(failures: int, first: float, longest: float, *, factor: float = 2.0) -> float:
    """Return the seconds to pause after a number of failures, at least one: `factor` times as long after each."""
    return min(first * factor ** min(failures - 1, _MOST_DOUBLED), longest)


def backoff(first: float, longest: float, *, factor: float = 2.0) -> Iterator[float]:
    """Return the pauses after the first failure, after the second, and so on."""
    return (backoff_after(failures, first, longest, factor=factor) for failures in count(1))


def spread(seconds: float, least: float = 0.5, most: float = 1.0, *, chance: float | None = None) -> float:
    """Return a random part of a pause, so that callers who failed together do not try again together.

    Args:
        seconds: The pause.
        least: The smallest part.
        most: The largest part; more than 1 makes the pause longer.
        chance: A number from 0 to 1, by default a random one.
    """
    chosen = random.random() if chance is None else chance  # nosec B311 - nothing secret
    return seconds * (least + (most - least) * chosen)
