"""Which codec serves a request. Knows the `A2A-Version` value, method names and the codecs; neither headers nor HTTP.

The version that a request names decides (§3.6). One that names none says by its method and its parts what it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, cast

from pydantic_core import from_json

from ..errors import A2AError, InvalidRequestError, VersionNotSupportedError
from . import fasta2a, v0_3
from .codec import Codec, HttpCodec, RpcRefused
from .envelope import parse_json
from .fasta2a import FastA2ADialect
from .v0_3 import V0_3
from .v1_0 import V1_0

__all__ = (
    'CODECS',
    'DEFAULT',
    'SUPPORTED',
    'Choice',
    'before_reading',
    'choose',
    'choose_http',
    'codec_of',
    'in_dialect_of',
)

DEFAULT = V1_0()
"""Serves what cannot be told from its method."""

CODECS: Mapping[str, Codec] = MappingProxyType({codec.dialect: codec for codec in (DEFAULT, V0_3())})
"""The codecs by version, `Major.Minor`; the newest first."""

SUPPORTED: tuple[str, ...] = tuple(CODECS)
"""The versions that are served; the newest first."""

_HTTP_CODECS: Mapping[str, HttpCodec] = MappingProxyType({DEFAULT.dialect: DEFAULT})
_V0_3 = CODECS['0.3']
_FASTA2A = FastA2ADialect()
_VERSION = re.compile(r'([0-9]{1,4})(?:\.([0-9]{1,4})(?:\.[0-9]{1,9})?)?')
_MAX_ECHO = 32

AnyCodec = TypeVar('AnyCodec', bound=Codec)


class Choice(NamedTuple):
    """The codec of a request."""

    codec: Codec
    task_decides: bool = False
    """Whether the answer is in the dialect of the task that is asked for: nothing in the request tells it."""


def choose(version: str | None, body: bytes) -> Choice:
    """The codec of a request.

    Args:
        version: Value of the `A2A-Version` header or query parameter, of which patch numbers do not count; several of
            them joined by commas.
        body: The request, which decides if the version is absent or empty.

    Raises:
        VersionNotSupportedError: No codec serves the version.
        InvalidRequestError: Several versions are named.
    """
    codec = _named(version or '')
    return _told_by(body) if codec is None else Choice(codec)


@lru_cache(maxsize=32)
def choose_http(version: str | None) -> HttpCodec:
    """The codec of a request of the HTTP+JSON binding; one that names no version is in the default.

    Args:
        version: As for `choose`.

    Raises:
        VersionNotSupportedError: No codec of this binding serves the version.
        InvalidRequestError: Several versions are named.
    """
    return _codec(version or '', _HTTP_CODECS) or DEFAULT


def before_reading(version: str | None) -> Choice:
    """The codec of what is refused before its body is read: by the version alone, and the default if that is none."""
    try:
        return Choice(_named(version or '') or DEFAULT)
    except A2AError:
        return Choice(DEFAULT)


def in_dialect_of(choice: Choice, dialect: str) -> Codec:
    """The codec of an answer about a task that was created in a dialect."""
    return _FASTA2A if choice.task_decides and dialect == _FASTA2A.dialect else choice.codec


def codec_of(dialect: str) -> Codec:
    """The codec of this name."""
    return CODECS.get(dialect, _FASTA2A)


@lru_cache(maxsize=32)
def _named(version: str) -> Codec | None:
    return _codec(version, CODECS)


def _codec(version: str, codecs: Mapping[str, AnyCodec]) -> AnyCodec | None:
    names = {name.strip() for name in version.split(',')} - {''}
    if not names:
        return None
    keys = {_key(name) for name in names}
    if len(keys) > 1:
        raise InvalidRequestError('Invalid request: A2A-Version must name one version')
    codec = codecs.get(keys.pop())
    if codec is None:
        raise VersionNotSupportedError(
            f'A2A version {min(names)[:_MAX_ECHO]!a} is not supported; use {" or ".join(codecs)}.',
            metadata={'supportedVersions': ', '.join(codecs)},
        )
    return codec


def _key(name: str) -> str:
    """The version as `Major.Minor`; what is no version stays as it is."""
    match = _VERSION.fullmatch(name)
    return f'{int(match[1])}.{int(match[2] or 0)}' if match else name


def _told_by(body: bytes) -> Choice:
    request = _parsed(body)
    method = request.get('method')
    if not isinstance(method, str) or '/' not in method:
        return Choice(DEFAULT)
    if method in fasta2a.METHODS.keys() - v0_3.METHODS.keys():
        return Choice(_FASTA2A)
    message = _message(request.get('params'))
    if message is None:
        # FastA2A's client asks for a task with `"id": null`, which is no request of JSON-RPC to any other.
        return Choice(_FASTA2A) if request.get('id', '') is None else Choice(_V0_3, task_decides=True)
    return Choice(_V0_3 if 'kind' in message or not _has_bare_part(message) else _FASTA2A)


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        request = from_json(body)
    except ValueError:
        try:
            request = parse_json(body)  # takes what codecs refuse by name
        except RpcRefused:
            return {}
    return cast('dict[str, Any]', request) if isinstance(request, dict) else {}


def _message(params: object) -> dict[str, Any] | None:
    """The message of a request; None if it has no message."""
    message = cast('dict[str, Any]', params).get('message') if isinstance(params, dict) else None
    return cast('dict[str, Any]', message) if isinstance(message, dict) else None


def _has_bare_part(message: dict[str, Any]) -> bool:
    """True if a part of the message has no `kind`: 0.3 requires it, and FastA2A's dialect does not have it."""
    parts = message.get('parts')
    return isinstance(parts, list) and any(
        isinstance(part, dict) and 'kind' not in part for part in cast('list[Any]', parts)
    )
