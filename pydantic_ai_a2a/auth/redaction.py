"""Removes credentials from the query of a URL before logging, in all encodings and spellings."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import unquote_plus

__all__ = ('redacted',)

_DECODINGS = 4
"""Limit of how often a part of a query is decoded: proxies and clients encode twice by mistake."""


def redacted(query: bytes, name: str, is_secret: Callable[[str], bool]) -> bytes:
    """Return the query without the values of a parameter, and without secrets under other names.

    A parameter is found in any case and encoding, after `&` or `;`. A part of the query with the name as a word is
    replaced as a whole.

    Args:
        query: The query of the request.
        name: Name of the parameter.
        is_secret: Returns True for a secret value, under any name.
    """
    word = re.compile(rf'(?<![a-z0-9]){re.escape(name.lower())}(?![a-z0-9])')
    parts = re.split('([&;])', query.decode('latin-1'))
    for index, part in enumerate(parts):
        decoded = _decoded(part)
        value = decoded.partition('=')[2] or decoded
        if word.search(decoded.lower()) or is_secret(value):
            parts[index] = f'{name}=redacted'
    return ''.join(parts).encode('latin-1')


def _decoded(part: str) -> str:
    for _ in range(_DECODINGS):
        part = unquote_plus(part)
    return part
