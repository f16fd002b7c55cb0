"""Rate limits of requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from ..arguments import checked
from ..time_spans import Span
from .positive_numbers import positive


@checked
@dataclass(frozen=True)
class Rate:
    """A rate limit: `count` requests per time span."""

    count: int
    """Number of requests in the time span."""
    per: Span[timedelta] = Span()
    """Time span, in seconds or as a `timedelta`."""
    burst: int | None = field(default=None, kw_only=True)
    """Number of requests allowed at once after a pause. Default None: `count`."""

    def __post_init__(self) -> None:
        positive(self)
