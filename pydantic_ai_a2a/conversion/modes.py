"""What a client takes as an answer (`acceptedOutputModes`, A2A 1.0 §3.2.2), and parts made to fit it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_core import to_json

from ..types import Part
from .media import OCTET_STREAM, parse

__all__ = ('EVERYTHING', 'OutputModes', 'UnacceptableOutput', 'fitting', 'output_modes', 'with_json')

_ALL = '*/*'
_STRING = {'json_schema': {'type': 'string'}, 'python_type': 'str'}
"""Metadata of text that is sent as data; shared, so nobody may change it."""


class UnacceptableOutput(UnexpectedModelBehavior):
    """The agent's output is nothing that the client takes. Never sent to a client."""


@dataclass(frozen=True, slots=True)
class OutputModes:
    """What one client takes."""

    text: bool
    """Whether text may be sent as text."""
    json: bool
    """Whether data may be sent as JSON."""
    ranges: frozenset[str]
    """Media types, `type/*` and `*/*`, in lower case and without parameters."""

    def takes(self, media_type: str) -> bool:
        """Whether something of the type may be sent as it is."""
        name = _name(media_type)
        return not self.ranges.isdisjoint((name, f'{name.partition("/")[0]}/*', _ALL))


EVERYTHING = OutputModes(text=True, json=True, ranges=frozenset({_ALL}))
"""What a client takes that names nothing."""


def output_modes(names: Sequence[str], *, text: Iterable[str] = (), json: Iterable[str] = ()) -> OutputModes:
    """Read the modes that a client names.

    Args:
        names: At least one: media types, with or without parameters, and ranges. A bare `text` is `text/*`, as clients
            of 0.3 write it.
        text: What the agent calls its text on its card, beside `text/plain`.
        json: What it calls its data, beside `application/json`.
    """
    modes = OutputModes(False, False, frozenset(map(_name, names)))
    return OutputModes(
        text=any(map(modes.takes, ('text/plain', *text))),
        json=any(map(modes.takes, ('application/json', *json))),
        ranges=modes.ranges,
    )


def _name(media_range: str) -> str:
    """A media type or range in its usual spelling, without parameters."""
    if (media := parse(media_range)) is not None:
        return media.name
    name = media_range.partition(';')[0].strip().lower()
    return name if '/' in name else f'{name}/*'


def fitting(named: Iterable[tuple[str, list[Part]]], accepted: OutputModes) -> list[tuple[str, list[Part]]]:
    """What the client takes of named parts: text and data converted, the rest left out.

    Raises:
        UnacceptableOutput: That is nothing.
    """
    converted = ((name, [_converted(part, accepted) for part in parts]) for name, parts in named)
    taken = ((name, [part for part in parts if part is not None]) for name, parts in converted)
    if not (left := [(name, parts) for name, parts in taken if parts]):
        raise UnacceptableOutput('The output is nothing that the client takes.')
    return left


def with_json(parts: Iterable[Part]) -> list[Part]:
    """The parts, and behind each data part a text part with its result as JSON."""
    followed = list[Part]()
    for part in parts:
        followed.append(part)
        if 'data' in part:
            followed.append(Part(text=_json(part['data']), media_type='text/plain'))
    return followed


def _json(data: Any) -> str:
    """The result that a data part holds, as JSON."""
    return to_json(data['result']).decode()


def _converted(part: Part, accepted: OutputModes) -> Part | None:
    if 'text' in part:
        if accepted.text or not accepted.json:
            return part if accepted.text else None
        return Part(data={'result': part['text']}, media_type='application/json', metadata=_STRING)
    if 'data' in part:
        if accepted.json or not accepted.text:
            return part if accepted.json else None
        return Part(text=_json(part['data']), media_type='text/plain', metadata=part.get('metadata', {}))
    return part if accepted.takes(part.get('media_type', OCTET_STREAM)) else None
