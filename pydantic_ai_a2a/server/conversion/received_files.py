"""A file in a part of a message: its bytes, its declared media type, and its name."""

from __future__ import annotations

import re

from pydantic_ai.messages import BinaryContent, BinaryImage

from ...errors import InvalidParamsError
from ...types.a2a_objects import Part
from ...wire.parts.media_types import OCTET_STREAM, MediaType, parse_media_type
from .accepted_content import Accepts
from .base64_text import decode_base64

_FILENAME = re.compile(r'[^\x00-\x1f\x7f"<>]{1,255}')
"""File names that cannot break out of their frame in the prompt."""

UNDECLARED = Accepts()
"""The content of an agent whose app declares no types."""


def bytes_of(raw: str, field: str) -> bytes:
    """Return the bytes of a `raw` part.

    Raises:
        InvalidParamsError: The part has no base64.
    """
    try:
        return decode_base64(raw)
    except ValueError:
        raise InvalidParamsError.of(f'{field}.raw', 'must be base64') from None


def binary_content(data: bytes, media_type: str, part: Part) -> BinaryContent:
    """Return a file for the model, with the name of the part."""
    kind = BinaryImage if media_type.startswith('image/') else BinaryContent
    return kind(data, media_type=media_type, identifier=identifier_of(part))


def identifier_of(part: Part) -> str | None:
    """Return the file's name if the prompt can hold it."""
    filename = part.get('filename', '')
    return filename if _FILENAME.fullmatch(filename) else None


def declared_type(part: Part, field: str, accepts: Accepts = UNDECLARED) -> MediaType | None:
    """Return the media type of the part; None for an absent one, and for one that means bytes of an unknown type.

    Raises:
        InvalidParamsError: The part has another text as its media type.
    """
    value = part.get('media_type')
    if not value:
        return None
    media = parse_media_type(value)
    if media is None:
        raise InvalidParamsError.of(f'{field}.mediaType', 'must be a media type, such as image/png')
    return None if media.name == OCTET_STREAM and OCTET_STREAM not in accepts.declared else media
