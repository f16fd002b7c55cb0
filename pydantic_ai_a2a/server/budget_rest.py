"""What is left of the budgets of a caller."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NamedTuple


class Left(NamedTuple):
    """The rest of a caller's budgets for one run; None: not limited."""

    requests: int | None
    tokens: int | None
    cost: Decimal | None
    """US dollars."""

    @property
    def nothing(self) -> bool:
        """True if a budget is used up."""
        return any(rest is not None and rest <= 0 for rest in self)

    def with_paid(self, paid: Any) -> Left:
        """Return the limits of the whole usage of a run that has paid for a part of its usage, a `RunUsage`."""
        requests, tokens, cost = self
        if self.nothing:
            return self
        return Left(
            requests and requests + paid.requests,
            tokens and tokens + paid.total_tokens,
            cost and cost + (paid.cost or 0),
        )
