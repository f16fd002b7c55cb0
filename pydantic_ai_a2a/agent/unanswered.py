"""What a request to the model has used that was broken off: nobody tells, so it is estimated. Pure; knows no task.

Cancelled in time, a run would else cost its caller nothing, and whoever serves it all that was sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextContent, is_multi_modal_content
from pydantic_ai.models import Model
from pydantic_ai.usage import RequestUsage, RunUsage
from pydantic_core import to_json

__all__ = ('add_unanswered',)

_CHARACTERS = 4
"""That make a token."""
_FILE = 1_000
"""Tokens of a file, however large it is."""


def add_unanswered(usage: RunUsage, messages: Sequence[ModelMessage], model: Model) -> None:
    """Add to what a run has used what its last request has, if that was not answered, or not to its end.

    Args:
        usage: What is known by now.
        messages: The run's, with those before it.
        model: Was asked.
    """
    *sent, last = messages
    if isinstance(last, ModelRequest):
        usage.requests += 1
        estimated = RequestUsage(input_tokens=_tokens(messages))
    elif last.state == 'interrupted':  # what the provider says comes with the end of a stream, or grows with it
        known = last.usage
        estimated = RequestUsage(
            input_tokens=max(0, _tokens(sent) - known.input_tokens),
            output_tokens=max(0, _tokens([last]) - known.output_tokens),
        )
    else:
        return
    estimated.cost = _cost(estimated, model)
    usage.incr(estimated)


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
    """Characters of what a part tells, a file as so many as its tokens would have."""
    text = content.content if isinstance(content, TextContent) else content
    if text is None or isinstance(text, str):
        return len(text or '')
    if is_multi_modal_content(content):
        return _FILE * _CHARACTERS
    if isinstance(content, list | tuple):
        return sum(map(_size, cast('Sequence[Any]', content)))
    return len(to_json(content, bytes_mode='base64', serialize_unknown=True))
