"""The input of a run, from the messages of a worker's `build_message_history`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pydantic_ai.messages import ModelMessage, ModelRequest, UserContent, UserPromptPart

__all__ = ('Prompt', 'prompt_of')


class Prompt(NamedTuple):
    """The input of one run."""

    content: str | Sequence[UserContent]
    """The user's newest message."""
    before: Sequence[ModelMessage]
    """Further messages, between the context and the prompt."""


def prompt_of(messages: Sequence[ModelMessage]) -> Prompt:
    """Return the last user prompt, and all other messages.

    Raises:
        ValueError: The messages have no user prompt.
    """
    for index in reversed(range(len(messages))):
        request = messages[index]
        prompts = [part for part in request.parts if isinstance(part, UserPromptPart)]
        if isinstance(request, ModelRequest) and prompts:
            rest = [part for part in request.parts if not isinstance(part, UserPromptPart)]
            request_rest = [ModelRequest(parts=rest)] if rest else []
            return Prompt(_content(prompts), [*messages[:index], *request_rest, *messages[index + 1 :]])
    raise ValueError('build_message_history() of the worker must return a ModelRequest with a UserPromptPart.')


def _content(prompts: Sequence[UserPromptPart]) -> str | Sequence[UserContent]:
    if len(prompts) == 1:
        return prompts[0].content
    contents = ([part.content] if isinstance(part.content, str) else part.content for part in prompts)
    return [item for content in contents for item in content]
