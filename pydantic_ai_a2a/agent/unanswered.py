"""An estimate of the usage of an interrupted model request, for which the provider reports no usage.

Without the estimate, a run cancelled in time would cost its caller nothing, but the operator all sent tokens.
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
"""Characters of a token."""
_FILE = 1_000
"""Tokens of a file of any size."""


def add_unanswered(usage: RunUsage, messages: Sequence[ModelMessage], model: Model) -> None:
    """Add the estimated usage of the last request to the usage of a run, if the request was not answered to its end.

    Args:
        usage: The known usage.
        messages: The run's messages, with the conversation before.
        model: The model of the request.
    """
    *sent, last = messages
    if isinstance(last, ModelRequest):
        usage.requests += 1
        estimated = RequestUsage(input_tokens=_tokens(messages))
    elif last.state == 'interrupted':  # a stream reports usage at its end, or step by step
        reported = last.usage
        estimated = RequestUsage(
            input_tokens=max(0, _tokens(sent) - reported.input_tokens),
            output_tokens=max(0, _tokens([last]) - reported.output_tokens),
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
    """Return the characters of a part's content. A file counts as the characters of its tokens."""
    text = content.content if isinstance(content, TextContent) else content
    if text is None or isinstance(text, str):
        return len(text or '')
    if is_multi_modal_content(content):
        return _FILE * _CHARACTERS
    if isinstance(content, list | tuple):
        return sum(map(_size, cast('Sequence[Any]', content)))
    return len(to_json(content, bytes_mode='base64', serialize_unknown=True))
