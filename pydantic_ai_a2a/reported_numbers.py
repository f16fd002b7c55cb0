"""Numbers that other parties report."""

from __future__ import annotations

from decimal import Decimal

LARGEST = 2**53
"""The largest number that is taken from another party. JSON has no larger whole numbers that all readers know."""


def bounded(number: float | Decimal) -> float | Decimal:
    """Return a number that another party has reported, or the nearest number from 0 to 2**53. NaN becomes 0."""
    try:
        return max(0, min(number, LARGEST))
    except ArithmeticError:  # NaN of `Decimal`
        return 0


def count_of(reported: object) -> int:
    """Return a count that another party has reported, as a whole number from 0 to 2**53. What is no number is 0."""
    return int(bounded(reported)) if isinstance(reported, int | float | Decimal) else 0
