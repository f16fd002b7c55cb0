"""The media types of outputs: of files on the agent card, and those that a client accepts.

A client names them as `acceptedOutputModes` (A2A 1.0 §3.2.2). Text and data are converted to fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, get_args

from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import (
    AudioMediaType,
    AudioUrl,
    BinaryAudio,
    BinaryImage,
    ImageMediaType,
    ImageUrl,
    VideoMediaType,
    VideoUrl,
)
from pydantic_core import to_json

from ...types.a2a_objects import Part
from ...wire.parts.file_parts import File
from ...wire.parts.media_types import OCTET_STREAM, in_ranges, media_range

PLAIN = 'text/plain'

_STRING = {'json_schema': {'type': 'string'}, 'python_type': 'str'}
"""Metadata of text that is sent as data; shared, so it must not be changed."""


class OutputModes(NamedTuple):
    """The media types that one client accepts."""

    text: bool
    """True if text may be sent as text."""
    json: bool
    """True if data may be sent as JSON."""
    ranges: frozenset[str]
    """Media types, `type/*` and `*/*`, in lower case and without parameters."""
    text_type: str = PLAIN
    """The media type of the agent's text."""

    def takes(self, media_type: str) -> bool:
        """Return True if content of the type may be sent unchanged."""
        return in_ranges(media_range(media_type), self.ranges)


EVERYTHING = OutputModes(text=True, json=True, ranges=frozenset({'*/*'}))
"""The modes of a client that names none."""


class UnacceptableOutput(UnexpectedModelBehavior):
    """The client accepts nothing of the agent's output. Never sent to a client."""


def file_modes(kind: type[File]) -> tuple[str, ...]:
    """Return the media types of a class of files, for the agent card."""
    if issubclass(kind, BinaryImage | ImageUrl):
        return get_args(ImageMediaType)
    if issubclass(kind, BinaryAudio):
        return ('audio/wav', 'audio/mpeg')
    if issubclass(kind, AudioUrl):
        return get_args(AudioMediaType)
    return get_args(VideoMediaType) if issubclass(kind, VideoUrl) else (OCTET_STREAM,)


def output_modes(names: Sequence[str], *, text: Iterable[str] = (), json: Iterable[str] = ()) -> OutputModes:
    """Read the modes that a client names.

    Args:
        names: At least one: media types, with or without parameters, and ranges. A bare `text` is `text/*`, as clients
            of 0.3 write it.
        text: The media types of text on the agent's card, besides `text/plain`.
        json: The media types of data on the agent's card, besides `application/json`.
    """
    modes = OutputModes(False, False, frozenset(map(media_range, names)))
    return OutputModes(
        text=any(map(modes.takes, ('text/plain', *text))),
        json=any(map(modes.takes, ('application/json', *json))),
        ranges=modes.ranges,
    )


def fitting(named: Iterable[tuple[str, list[Part]]], accepted: OutputModes) -> list[tuple[str, list[Part]]]:
    """Return the named parts that the client accepts, with text and data converted.

    Raises:
        UnacceptableOutput: The client accepts none of the parts.
    """
    converted = ((name, [_converted(part, accepted) for part in parts]) for name, parts in named)
    taken = ((name, [part for part in parts if part is not None]) for name, parts in converted)
    if not (rest := [(name, parts) for name, parts in taken if parts]):
        raise UnacceptableOutput('The output has no media type that the client accepts.')
    return rest


def with_json(parts: Iterable[Part], accepted: OutputModes) -> list[Part]:
    """Return the parts, with a text part after each data part that holds its result as JSON."""
    followed = list[Part]()
    for part in parts:
        followed.append(part)
        if 'data' in part:
            followed.append(Part(text=_json(part['data']), media_type=_type_of_json(accepted)))
    return followed


def _json(data: Any) -> str:
    """Return the result of a data part as JSON."""
    return to_json(data['result']).decode()


def _type_of_json(accepted: OutputModes) -> str:
    """Return the media type of JSON as text. The type of the agent's text is another one, if the client accepts it."""
    return PLAIN if accepted.takes(PLAIN) else accepted.text_type


def _converted(part: Part, accepted: OutputModes) -> Part | None:
    if 'text' in part:
        if accepted.text or not accepted.json:
            return part if accepted.text else None
        return Part(data={'result': part['text']}, media_type='application/json', metadata=_STRING)
    if 'data' in part:
        if accepted.json or not accepted.text:
            return part if accepted.json else None
        return Part(text=_json(part['data']), media_type=_type_of_json(accepted), metadata=part.get('metadata', {}))
    return part if accepted.takes(part.get('media_type', OCTET_STREAM)) else None
