"""What quotas can be set to."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from pydantic_ai_a2a import Budget, Quotas, Rate

DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ('make', 'wrong'),
    [
        (lambda: Rate(0, DAY), 'Rate.count must be positive, not 0.'),
        (lambda: Rate(1, timedelta()), 'Rate.per must be positive, not 0.0.'),
        (lambda: Rate(1, DAY, burst=0), 'Rate.burst must be positive, not 0.'),
        (lambda: Budget(window=timedelta(), tokens=1), 'Budget.window must be positive, not 0.0.'),
        (lambda: Budget(window=DAY, requests=0), 'Budget.requests must be positive, not 0.'),
        (lambda: Budget(window=DAY, tokens=-1), 'Budget.tokens must be positive, not -1.'),
        (lambda: Budget(window=DAY, cost=0.0), 'Budget.cost must be positive, not 0.0.'),
        (lambda: Budget(window=DAY), 'A Budget needs requests=, tokens= or cost=.'),
        (lambda: Quotas(streams=0), 'Quotas.streams must be positive, not 0.'),
        (lambda: Quotas(tasks=0), 'Quotas.tasks must be positive, not 0.'),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, wrong: str) -> None:
    with pytest.raises(ValueError, match=f'^{re.escape(wrong)}$'):
        make()
