"""The remaining budget of an owner: limits of a run, and the charge for an interrupted request."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any, TypeVar

from pydantic_ai.run import AgentRun
from pydantic_ai.usage import UsageLimits

from ..quotas import Left
from .internals import model_of
from .unanswered import add_unanswered

__all__ = ('charge_unanswered', 'within')

T = TypeVar('T', int, Decimal)


def charge_unanswered(run: AgentRun[Any, Any], budget: Left | None) -> None:
    """Add the estimated usage of an interrupted request to the run, if the owner has a budget."""
    if budget is not None and run.new_messages():
        add_unanswered(run.usage, run.all_messages(), model_of(run))


def within(budget: Left, limits: UsageLimits) -> UsageLimits:
    """Return the limits of a run, none above the remaining budget."""
    if budget.nothing:
        return replace(limits, request_limit=0)
    return replace(
        limits,
        request_limit=_least(limits.request_limit, budget.requests),
        total_tokens_limit=_least(limits.total_tokens_limit, budget.tokens),
        cost_limit=_least(limits.cost_limit, budget.cost),
    )


def _least(one: T | None, other: T | None) -> T | None:
    return min((limit for limit in (one, other) if limit is not None), default=None)
