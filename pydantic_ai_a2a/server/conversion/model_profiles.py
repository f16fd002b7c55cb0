"""The files that the models of an agent accept, by the models' profiles."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from pydantic_ai.models import Model, infer_model_profile
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.profiles import DEFAULT_PROFILE, ModelProfile

from ...settings.messages import HTTPS_ONLY
from .accepted_content import DOCUMENTS, WAV_AND_MP3, Accepts


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
        documents=DOCUMENTS & profile.get('supported_document_media_types', DOCUMENTS) if documents else frozenset(),
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
    documents = (profile.get('supported_document_media_types', DOCUMENTS) for profile in profiles)
    return ModelProfile(
        supports_image_input=all(profile.get('supports_image_input', True) for profile in profiles),
        supports_document_input=all(profile.get('supports_document_input', True) for profile in profiles),
        supports_audio_file_input=all(profile.get('supports_audio_file_input', True) for profile in profiles),
        supports_video_input=all(profile.get('supports_video_input', True) for profile in profiles),
        supported_document_media_types=DOCUMENTS.intersection(*documents),
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
    return frozenset(WAV_AND_MP3) if of_openai else None


def _is_of_openai(model: Model | str) -> bool:
    """Return whether a model, or one that it may fall back to, is of OpenAI's API, without an import of its package."""
    if isinstance(model, FallbackModel):
        return any(map(_is_of_openai, model.models))
    if isinstance(model, WrapperModel):
        return _is_of_openai(model.wrapped)
    if isinstance(model, Model):
        return any(kind.__module__.startswith('pydantic_ai.models.openai') for kind in type(model).__mro__)
    return any(name.startswith('openai_') for profile in _profiles(model) for name in profile)
