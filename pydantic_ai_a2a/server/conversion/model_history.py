"""The history of an A2A task as a message history of Pydantic AI."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai.messages import FilePart, ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_core import to_json

from ...types.a2a_objects import Message, Part
from ...wire.parts.media_types import OCTET_STREAM, MediaType
from .accepted_content import Accepts
from .detected_media_types import detect_media_type
from .received_files import binary_content, bytes_of, declared_type
from .user_prompts import user_prompt


def model_messages(history: Sequence[Message], accepts: Accepts) -> list[ModelMessage]:
    """Return an A2A history as a Pydantic AI message history, for a `fasta2a.Worker`.

    Raises:
        InvalidParamsError: As for `user_prompt`.
        ContentTypeNotSupportedError: As for `user_prompt`.
    """
    messages: list[ModelMessage] = []
    for index, message in enumerate(history):
        field = f'history[{index}]'
        if message['role'] == 'user':
            content = user_prompt(message, accepts, field=field)
            messages.append(ModelRequest(parts=[UserPromptPart(content=content)]))
        else:
            parts = (_answer(part, f'{field}.parts[{i}]') for i, part in enumerate(message['parts']))
            messages.append(ModelResponse(parts=list(parts)))
    return messages


def _answer(part: Part, field: str) -> TextPart | FilePart:
    """Return a part of an earlier answer of the agent: files stay files, links and data become text."""
    if 'raw' in part:
        data = bytes_of(part['raw'], field)
        media = declared_type(part, field) or MediaType(detect_media_type(data) or OCTET_STREAM, None)
        return FilePart(binary_content(data, media.name, part))
    if 'data' in part:
        return TextPart(to_json(part['data']).decode())
    return TextPart(part['text'] if 'text' in part else part.get('url', ''))
