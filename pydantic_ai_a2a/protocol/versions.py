"""Which codec serves a request. Knows the `A2A-Version` value and the codecs; neither headers nor bodies (§3.6)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from ..errors import InvalidRequestError, VersionNotSupportedError
from .codec import Codec
from .v1_0 import V1_0

__all__ = ('CODECS', 'DEFAULT', 'SUPPORTED', 'choose')

CODECS: Mapping[str, Codec] = MappingProxyType({codec.version: codec for codec in (V1_0(),)})
"""The codecs by version, `Major.Minor`; the newest first."""

SUPPORTED: tuple[str, ...] = tuple(CODECS)
"""The versions that are served; the newest first."""

DEFAULT = CODECS['1.0']
"""Serves requests that name no version."""

_VERSION = re.compile(r'([0-9]{1,4})(?:\.([0-9]{1,4})(?:\.[0-9]{1,9})?)?')
_MAX_ECHO = 32


@lru_cache(maxsize=32)
def choose(version: str | None = None) -> Codec:
    """The codec of the version that a request names; patch numbers do not count.

    Args:
        version: Value of the `A2A-Version` header or query parameter; several of them joined by commas.

    Raises:
        VersionNotSupportedError: No codec serves it.
        InvalidRequestError: Several versions are named.
    """
    names = {name.strip() for name in (version or '').split(',')} - {''}
    if not names:
        return DEFAULT
    keys = {_key(name) for name in names}
    if len(keys) > 1:
        raise InvalidRequestError('Invalid request: A2A-Version must name one version')
    codec = CODECS.get(keys.pop())
    if codec is None:
        raise VersionNotSupportedError(
            f'A2A version {min(names)[:_MAX_ECHO]!a} is not supported; use {" or ".join(SUPPORTED)}.',
            metadata={'supportedVersions': ', '.join(SUPPORTED)},
        )
    return codec


def _key(name: str) -> str:
    """The version as `Major.Minor`; what is no version stays as it is."""
    match = _VERSION.fullmatch(name)
    return f'{int(match[1])}.{int(match[2] or 0)}' if match else name
