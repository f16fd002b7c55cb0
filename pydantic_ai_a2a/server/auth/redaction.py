"""Removes credentials from the query of a URL before logging, in all encodings and spellings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import unquote_plus

from ...types.a2a_objects import SecurityScheme

_TOKEN = re.compile(r'eyJ[\w-]*\.[\w-]*\.[\w-]*')
"""A JSON Web Token."""

_DECODINGS = 4
"""Limit of how often a part of a query is decoded: proxies and clients encode twice by mistake."""


def credential_parameters(schemes: Mapping[str, SecurityScheme]) -> list[str]:
    """Return the names of query parameters that may have credentials of the schemes.

    Clients put a bearer token into `access_token` (RFC 6750 §2.3), also where the server reads it from a header only.
    """
    keys = (scheme['api_key_security_scheme'] for scheme in schemes.values() if 'api_key_security_scheme' in scheme)
    return ['access_token', *(key['name'] for key in keys)]


def is_token(value: str) -> bool:
    """Return True for a JSON Web Token."""
    return _TOKEN.fullmatch(value) is not None


def redacted(query: bytes, names: Iterable[str], is_secret: Callable[[str], bool]) -> bytes:
    """Return the query without the values of parameters, and without secrets under other names.

    A parameter is found in any case and encoding, after `&` or `;`. A part of the query with one of the names as a word
    is replaced as a whole.

    Args:
        query: The query of the request.
        names: Names of the parameters.
        is_secret: Returns True for a secret value, under any name.
    """
    words = '|'.join(re.escape(name.lower()) for name in names)
    word = re.compile(rf'(?<![a-z0-9])(?:{words})(?![a-z0-9])')
    parts = re.split('([&;])', query.decode('latin-1'))
    for index, part in enumerate(parts):
        decoded = part
        for _ in range(_DECODINGS):
            decoded = unquote_plus(decoded)
        value = decoded.partition('=')[2] or decoded
        if (named := word.search(decoded.lower())) is not None or is_secret(value):
            parts[index] = f'{named[0] if named else "secret"}=redacted'
    return ''.join(parts).encode('latin-1')
