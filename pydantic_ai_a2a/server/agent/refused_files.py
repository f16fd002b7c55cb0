"""Files that only the model, or its provider, knows that it does not take.

Profiles of models name no formats of images, audio and video. Models of Pydantic AI raise different exceptions for a
format that they cannot send, and providers answer HTTP 400. Without this module, both would look like internal errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from pydantic_ai.exceptions import (
    AgentRunError,
    ModelAuthenticationError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelRequestRejectedError,
    UserError,
)
from pydantic_ai.messages import BinaryContent, FileUrl, ModelMessage, UserPromptPart
from pydantic_ai.models import Model

from ...errors import FileRefused

_OTHER_CAUSES = (ModelAuthenticationError, ModelContextWindowExceededError, ModelNotFoundError)
_REJECTED = frozenset({400, 413, 415, 422})
"""HTTP statuses of a rejected request, for a `ModelHTTPError` of no class of its own."""
_NO_FORMAT = frozenset({AssertionError, NotImplementedError, RuntimeError, UserError, ValueError})
"""What the models of Pydantic AI raise while they build a request with a file that they cannot send. Other subclasses,
such as a `ValidationError` or a `RecursionError`, are faults."""
_MADE_UP = re.compile('[0-9a-f]{6}')
"""The identifier that Pydantic AI gives a file without a name."""


def check_files(error: Exception, messages: Sequence[ModelMessage], request: ModelMessage) -> None:
    """Check whether a failed request to the model had files that may be the reason.

    Args:
        error: The exception of the request.
        messages: The messages of the request.
        request: The newest of them. The provider has accepted the files of the others.

    Raises:
        FileRefused: The model or its provider did not take the request, and it has files.
    """
    while isinstance(error, ExceptionGroup):  # a FallbackModel's: the error of the last model
        error = cast('ExceptionGroup[Exception]', error).exceptions[-1]
    if isinstance(error, AgentRunError):
        files = [*_files([request])] if _is_rejected(error) else []
    else:
        is_refused = type(error) in _NO_FORMAT and _is_of_model(error)
        files = [*_files([request])] or [*_files(messages)] if is_refused else []
    if files:
        raise FileRefused(dict.fromkeys(files)) from error


def _is_rejected(error: AgentRunError) -> bool:
    """Return whether a provider has rejected the content of a request."""
    if isinstance(error, ModelRequestRejectedError):
        return not isinstance(error, _OTHER_CAUSES)
    return type(error) is ModelHTTPError and error.status_code in _REJECTED


def _is_of_model(error: Exception) -> bool:
    """Return whether a method of a model has raised an exception."""
    traceback = error.__traceback__
    while traceback is not None:
        if isinstance(traceback.tb_frame.f_locals.get('self'), Model):
            return True
        traceback = traceback.tb_next
    return False


def _files(messages: Iterable[ModelMessage]) -> Iterator[str]:
    """Yield the name and the media type of each file in the prompts of messages."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, UserPromptPart) and not isinstance(part.content, str):
                yield from (_named(item) for item in part.content if isinstance(item, BinaryContent | FileUrl))


def _named(file: Any) -> str:
    name = '' if _MADE_UP.fullmatch(file.identifier) else f'{file.identifier} '
    try:
        return f'{name}({file.media_type})'
    except ValueError:  # a URL of the user's code tells no type
        return f'{name}(unknown type)'
