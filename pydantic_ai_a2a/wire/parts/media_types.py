"""Media types and ranges of them: their spelling, and the types of text."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

OCTET_STREAM = 'application/octet-stream'
"""Media type without information: the type is detected, as if none were declared."""

_ALIASES = {
    'application/x-pdf': 'application/pdf',
    'audio/mp3': 'audio/mpeg',
    'audio/vnd.wave': 'audio/wav',
    'audio/wave': 'audio/wav',
    'audio/x-wav': 'audio/wav',
    'image/jpg': 'image/jpeg',
}
"""Other spellings in use, with the spelling of Pydantic AI's models."""

_TEXT = frozenset(
    f'application/{subtype}'
    for subtype in (
        'graphql',
        'javascript',
        'json',
        'jsonl',
        'sql',
        'toml',
        'x-ndjson',
        'x-sh',
        'x-yaml',
        'xml',
        'yaml',
    )
)
_NAME = re.compile(r"[a-z0-9][\w!#$&^.+'*-]{0,126}/[\w!#$&^.+'*-]{1,127}", re.ASCII)
_CHARSET = re.compile(r'\bcharset="?([\w.:+-]+)', re.ASCII)


class MediaType(NamedTuple):
    """A media type in its usual spelling."""

    name: str
    """Type and subtype in lower case, without parameters, such as `image/png`."""
    charset: str | None
    """The `charset` parameter in lower case; None without one."""


def parse_media_type(value: str) -> MediaType | None:
    """Read a media type of a client; None if it is malformed."""
    name, _, parameters = value.lower().partition(';')
    name = name.strip()
    if not _NAME.fullmatch(name):
        return None
    charset = _CHARSET.search(parameters)
    return MediaType(_ALIASES.get(name, name), charset[1] if charset else None)


def media_range(value: str) -> str:
    """Return a media type or a range in its usual spelling, without parameters. A bare `text` is `text/*`."""
    if (media := parse_media_type(value)) is not None:
        return media.name
    name = value.partition(';')[0].strip().lower()
    return name if '/' in name else f'{name}/*'


def in_ranges(name: str, ranges: Collection[str]) -> bool:
    """Return True for a media type among media types, `type/*` and `*/*`."""
    return not {name, f'{name.partition("/")[0]}/*', '*/*'}.isdisjoint(ranges)


def is_text(name: str) -> bool:
    """Return True for text files, which every model can read."""
    return name.startswith('text/') or name in _TEXT or name.endswith(('+json', '+xml'))
