"""Takes credentials out of the query of a URL before it is logged, also in forms in which they are not read."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import unquote_plus

__all__ = ('redacted',)

_DECODINGS = 4
"""Limit of how often a part of a query is decoded: proxies and clients encode twice by mistake."""


def redacted(query: bytes, name: str, is_secret: Callable[[str], bool]) -> bytes:
    """Return the query without the values of a parameter, and without secrets under other names.

    A parameter counts whatever its case, its encoding, and the separator before it (`&` or `;`). A part of the query
    that has the name as a word in it is replaced as a whole.

    Args:
        query: The query, as the client has sent it.
        name: The parameter's name.
        is_secret: Says whether a value is a secret, whatever its name.
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
