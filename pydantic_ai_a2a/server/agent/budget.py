"""The remaining budget of an owner: limits of a run, and the charge for an interrupted request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, TypeVar, cast

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextContent, is_multi_modal_content
from pydantic_ai.models import Model
from pydantic_ai.run import AgentRun
from pydantic_ai.usage import RequestUsage, UsageLimits
from pydantic_core import to_json

from ..budget_rest import Left
from .pydantic_ai_internals import model_of

T = TypeVar('T', int, Decimal)

_CHARACTERS = 4
"""Characters of a token."""
_FILE = 1_000
"""Tokens of a file of any size."""


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


def charge_unanswered(run: AgentRun[Any, Any], budget: Left | None) -> None:
    """Add the estimated usage of an interrupted request to the run, if the owner has a budget.

    Providers report no usage for such a request. Without the estimate, a run cancelled in time would cost its caller
    nothing, but the operator all sent tokens.
    """
    if budget is None or not run.new_messages():
        return
    messages = run.all_messages()
    *sent, last = messages
    if isinstance(last, ModelRequest):
        run.usage.requests += 1
        estimated = RequestUsage(input_tokens=_tokens(messages))
    elif last.state == 'interrupted':  # a stream reports usage at its end, or step by step
        reported = last.usage
        estimated = RequestUsage(
            input_tokens=max(0, _tokens(sent) - reported.input_tokens),
            output_tokens=max(0, _tokens([last]) - reported.output_tokens),
        )
    else:
        return
    estimated.cost = _cost(estimated, model_of(run))
    run.usage.incr(estimated)


def _cost(usage: RequestUsage, model: Model) -> Any:
    """US dollars, as far as Pydantic AI knows the model's prices."""
    response = ModelResponse(parts=[], usage=usage, model_name=model.model_name, provider_name=model.system)
    try:
        return response.cost().total_price
    except (LookupError, ValueError):
        return None


def _tokens(messages: Sequence[ModelMessage]) -> int:
    characters = 0
    for message in messages:
        characters += _size(getattr(message, 'instructions', None))
        for part in message.parts:
            characters += _size(getattr(part, 'content', None)) + _size(getattr(part, 'args', None))
    return characters // _CHARACTERS


def _size(content: Any) -> int:
    """Return the characters of a part's content. A file counts as the characters of its tokens."""
    text = content.content if isinstance(content, TextContent) else content
    if text is None or isinstance(text, str):
        return len(text or '')
    if is_multi_modal_content(content):
        return _FILE * _CHARACTERS
    if isinstance(content, list | tuple):
        return sum(map(_size, cast('Sequence[Any]', content)))
    return len(to_json(content, bytes_mode='base64', serialize_unknown=True))
