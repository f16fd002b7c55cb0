"""Budgets for the model usage of callers and tenants."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Literal

from ..arguments import checked
from ..time_spans import Span
from .positive_numbers import positive


@checked
@dataclass(frozen=True, kw_only=True)
class Budget:
    """A budget for model usage of the runs of one caller, or of a whole tenant, within a sliding time window."""

    window: Span[timedelta] = Span()
    """Length of the window, in seconds or as a `timedelta`. Usage is counted up to a sixtieth longer."""
    requests: int | None = None
    """Requests to the model. Default None: not limited."""
    tokens: int | None = None
    """Tokens to and from the model. Default None: not limited."""
    cost: Decimal | float | None = None
    """US dollars, as far as Pydantic AI knows the prices of the model. Default None: not limited."""
    of: Literal['caller', 'tenant'] = 'caller'
    """Holder of the budget: each caller (`'caller'`, the default), or all callers of a tenant together (`'tenant'`)."""

    def __post_init__(self) -> None:
        positive(self)
        if self.requests is self.tokens is self.cost is None:
            raise ValueError('A Budget needs requests=, tokens= or cost=.')
