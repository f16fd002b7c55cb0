"""The content that an agent accepts: the files that its model accepts, or the types that the app declares."""

from __future__ import annotations

from typing import get_args

from pydantic_ai.messages import BinaryContent, DocumentMediaType, ImageMediaType

from ...settings.messages import HTTPS_ONLY
from ...types.frozen_values import frozen
from ...wire.parts.media_types import in_ranges, is_text

DOCUMENTS: frozenset[DocumentMediaType] = frozenset(get_args(DocumentMediaType))
"""The document types that a profile lists. `supports_document_input` alone decides about other documents."""
_IMAGES: tuple[str, ...] = get_args(ImageMediaType)
WAV_AND_MP3 = ('audio/wav', 'audio/mpeg')


@frozen
class Accepts:
    """The content that an agent accepts: the files that its model accepts, or the types that the app declares."""

    images: bool = True
    documents: frozenset[str] = DOCUMENTS
    """The accepted document types among the known ones."""
    other_documents: bool = True
    """True if the model accepts documents of other types, such as presentations."""
    audio: bool = True
    audio_types: frozenset[str] | None = None
    """The accepted audio types, if `audio` is True; None: all."""
    video: bool = True
    url_schemes: frozenset[str] = HTTPS_ONLY
    """Accepted schemes of URLs, in lower case."""
    force_download: bool = True
    """True if downloadable URLs are downloaded here, and not left to the provider."""
    declared: tuple[str, ...] = ()
    """Media types and ranges such as `image/*` that the app declares. Then no other type is accepted, and a file may
    have each of them, whatever the model accepts."""

    def takes(self, media_type: str) -> bool:
        """Return True if a file of the type may be sent. The prompt can hold text, so text needs no support."""
        if self.declared:
            return in_ranges(media_type, self.declared)
        return is_text(media_type) or self.reads(media_type)

    def reads(self, media_type: str) -> bool:
        """Return True if the model gets a file of the type as a file, if the type is taken."""
        if self.declared and not is_text(media_type):
            return True
        if is_text(media_type) or media_type in DOCUMENTS:
            return media_type in self.documents if media_type in DOCUMENTS else self.other_documents
        match media_type.partition('/')[0]:
            case 'image':
                return self.images
            case 'audio':
                return self.audio and (self.audio_types is None or media_type in self.audio_types)
            case 'video':
                return self.video
            case _:
                return self.other_documents and BinaryContent(b'', media_type=media_type).is_document

    @property
    def input_modes(self) -> list[str]:
        """The accepted media types for the agent card."""
        if self.declared:
            return [*self.declared]
        documents = sorted(self.documents - {'text/plain'}, key=lambda name: (name != 'application/pdf', name))
        return [
            'text/plain',
            'application/json',
            *(_IMAGES if self.images else ()),
            *documents,
            *(WAV_AND_MP3 if self.audio else ()),
            *(('video/mp4',) if self.video else ()),
        ]
