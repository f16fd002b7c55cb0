"""Files of Pydantic AI as A2A parts, and back."""

from __future__ import annotations

import mimetypes
from contextlib import suppress
from typing import TypeAlias

from pydantic_ai.messages import AudioUrl, BinaryContent, DocumentUrl, FileUrl, ImageUrl, VideoUrl

from ...types.a2a_objects import Part
from .media_types import is_text

File: TypeAlias = BinaryContent | FileUrl
"""A file by its bytes or by its URL."""


def file_part(file: File) -> Part:
    """Return a file as a `raw` part, or as a `url` part."""
    if isinstance(file, BinaryContent):
        return Part(raw=file.base64, media_type=file.media_type, filename=_filename(file))
    part = Part(url=file.url)
    with suppress(ValueError):  # the media type is unknown
        part['media_type'] = file.media_type
    if file.identifier != type(file)(file.url).identifier:  # else Pydantic AI has derived the identifier from the URL
        part['filename'] = file.identifier
    return part


def _filename(file: BinaryContent) -> str:
    """Return the file's identifier, with an extension that says its type."""
    try:
        extension = f'.{file.format}'
    except ValueError:
        extension = mimetypes.guess_extension(file.media_type) or ''
    name = file.identifier
    is_complete = name.lower().endswith(extension) or mimetypes.guess_type(f'/{name}')[0] == file.media_type
    return name if is_complete else f'{name}{extension}'


def url_kind(media_type: str) -> type[ImageUrl | AudioUrl | VideoUrl | DocumentUrl]:
    """Return the class of Pydantic AI for the URL of a file."""
    if is_text(media_type):
        return DocumentUrl
    kinds = {'image': ImageUrl, 'audio': AudioUrl, 'video': VideoUrl}
    return kinds.get(media_type.partition('/')[0], DocumentUrl)
