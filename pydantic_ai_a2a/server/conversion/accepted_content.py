"""The content that an agent accepts, by the profiles of its models or by the app's declaration."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import get_args

from pydantic_ai.messages import BinaryContent, DocumentMediaType, ImageMediaType
from pydantic_ai.models import Model, infer_model_profile
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.profiles import DEFAULT_PROFILE, ModelProfile

from ...settings import HTTPS_ONLY
from ...types import frozen
from ...wire.parts.media_types import in_ranges, is_text

_DOCUMENTS: frozenset[DocumentMediaType] = frozenset(get_args(DocumentMediaType))
"""The document types that a profile lists. `supports_document_input` alone decides about other documents."""
_IMAGES: tuple[str, ...] = get_args(ImageMediaType)
_WAV_AND_MP3 = ('audio/wav', 'audio/mpeg')


@frozen
class Accepts:
    """The content that an agent accepts: the files that its model accepts, or the types that the app declares."""

    images: bool = True
    documents: frozenset[str] = _DOCUMENTS
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
        if is_text(media_type) or media_type in _DOCUMENTS:
            return media_type in self.documents if media_type in _DOCUMENTS else self.other_documents
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
            *(_WAV_AND_MP3 if self.audio else ()),
            *(('video/mp4',) if self.video else ()),
        ]


def accepts(
    profile: ModelProfile,
    url_schemes: Collection[str] = HTTPS_ONLY,
    *,
    force_download: bool = True,
    audio_types: frozenset[str] | None = None,
) -> Accepts:
    """Return the files that a model with the profile accepts. Support is the default for each kind of file."""
    documents = profile.get('supports_document_input', True)
    return Accepts(
        images=profile.get('supports_image_input', True),
        documents=_DOCUMENTS & profile.get('supported_document_media_types', _DOCUMENTS) if documents else frozenset(),
        other_documents=documents,
        audio=profile.get('supports_audio_file_input', True),
        audio_types=audio_types,
        video=profile.get('supports_video_input', True),
        url_schemes=frozenset(scheme.lower() for scheme in url_schemes),
        force_download=force_download,
    )


def resolve_profile(models: Sequence[Model | str]) -> ModelProfile:
    """Return one profile for the files that all of the models accept, without a provider's key or package.

    A model with an unknown profile has the default profile.
    """
    profiles = [profile for model in models for profile in _profiles(model)]
    if len(profiles) <= 1:
        return profiles[0] if profiles else DEFAULT_PROFILE
    documents = (profile.get('supported_document_media_types', _DOCUMENTS) for profile in profiles)
    return ModelProfile(
        supports_image_input=all(profile.get('supports_image_input', True) for profile in profiles),
        supports_document_input=all(profile.get('supports_document_input', True) for profile in profiles),
        supports_audio_file_input=all(profile.get('supports_audio_file_input', True) for profile in profiles),
        supports_video_input=all(profile.get('supports_video_input', True) for profile in profiles),
        supported_document_media_types=_DOCUMENTS.intersection(*documents),
    )


def _profiles(model: Model | str) -> Iterator[ModelProfile]:
    """Yield the profile of a model, or of each model that it may fall back to."""
    try:
        yield model.profile if isinstance(model, Model) else infer_model_profile(model)
    except NotImplementedError:  # a `FallbackModel` and its wrappers have no profile
        if isinstance(model, FallbackModel):
            yield from (profile for inner in model.models for profile in _profiles(inner))
        elif isinstance(model, WrapperModel):
            yield from _profiles(model.wrapped)
        else:
            yield DEFAULT_PROFILE
    except ImportError:
        # The optional package of the provider is missing. The server still serves the card.
        yield DEFAULT_PROFILE


def resolve_audio_types(models: Sequence[Model | str]) -> frozenset[str] | None:
    """Return the audio types that all of the models accept, if they accept audio; None: all types.

    No profile has these types. The API of OpenAI, and APIs like it, take WAV and MP3.
    """
    of_openai = any(_is_of_openai(model) for model in models)
    return frozenset(_WAV_AND_MP3) if of_openai else None


def _is_of_openai(model: Model | str) -> bool:
    """Return whether a model, or one that it may fall back to, is of OpenAI's API, without an import of its package."""
    if isinstance(model, FallbackModel):
        return any(map(_is_of_openai, model.models))
    if isinstance(model, WrapperModel):
        return _is_of_openai(model.wrapped)
    if isinstance(model, Model):
        return any(kind.__module__.startswith('pydantic_ai.models.openai') for kind in type(model).__mro__)
    return any(name.startswith('openai_') for profile in _profiles(model) for name in profile)
