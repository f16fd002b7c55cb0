"""The choice of the codec of a request, among the served protocol versions.

The version in a request decides (§3.6). Without a version, the method and the parts of the request decide.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, cast

from pydantic_core import from_json

from ..errors import A2AError, InvalidRequestError, VersionNotSupportedError
from ..settings import SUPPORTED, Version
from . import fasta2a, v0_3
from .codec import Codec, HttpCodec, RpcRefused
from .envelope import parse_json
from .fasta2a import FastA2ADialect
from .operations import OPERATIONS
from .v0_3 import V0_3
from .v1_0 import V1_0

__all__ = ('HTTP', 'CodecChoice', 'Versions', 'codec_of', 'in_dialect_of')

HTTP: HttpCodec = V1_0()
"""The codec of the HTTP+JSON binding, which exists in one version."""
_V0_3 = V0_3()
_FASTA2A = FastA2ADialect()
_CODECS: Mapping[str, Codec] = MappingProxyType({codec.dialect: codec for codec in (HTTP, _V0_3)})

_VERSION = re.compile(r'([0-9]{1,4})(?:\.([0-9]{1,4})(?:\.[0-9]{1,9})?)?')
_MAX_ECHO = 32
_KEPT = 32
"""Values of `A2A-Version` whose codec is cached."""

AnyCodec = TypeVar('AnyCodec', bound=Codec)


class CodecChoice(NamedTuple):
    """The codec of a request."""

    codec: Codec
    task_decides: bool = False
    """True if the answer is in the dialect of the requested task, because the request does not tell its dialect."""


class Versions:
    """The protocol versions that an app serves. FastA2A's dialect is served with 0.3.

    Args:
        served: Names of the versions.

    Raises:
        TypeError: `served` is a string instead of a list of strings.
        ValueError: `served` is empty, or names an unsupported version.
    """

    def __init__(self, served: Collection[Version] = SUPPORTED) -> None:
        if isinstance(served, str):
            raise TypeError(f'versions= takes a list of protocol versions, such as [{served!r}], not a string.')
        if unknown := [name for name in served if name not in SUPPORTED]:
            raise ValueError(f'versions= takes {" and ".join(map(repr, SUPPORTED))}, not {unknown[0]!r}.')
        if not served:
            raise ValueError(f'versions= is empty. Name at least one of {" and ".join(map(repr, SUPPORTED))}.')
        self._codecs = {name: codec for name, codec in _CODECS.items() if name in served}
        self.served = tuple(name for name in SUPPORTED if name in self._codecs)
        """Names of the versions, the newest first."""
        self.default = next(iter(self._codecs.values()))
        """The codec of requests that do not tell their version."""
        self.http = HTTP if HTTP.dialect in self._codecs else None
        """The codec of the HTTP+JSON binding; None if it is not served."""
        self._named = lru_cache(maxsize=_KEPT)(self._find_named)
        self._named_http = lru_cache(maxsize=_KEPT)(self._find_http)

    def choose(self, version: str | None, body: bytes) -> CodecChoice:
        """Return the codec of a JSON-RPC request.

        Args:
            version: Value of the `A2A-Version` header or query parameter; several values are joined by commas. Patch
                numbers are ignored.
            body: The request, which decides if the version is absent or empty.

        Raises:
            VersionNotSupportedError: The version is not served.
            InvalidRequestError: Several versions are named.
        """
        codec = self._named(version or '')
        if codec is not None:
            return CodecChoice(codec)
        choice, is_certain = _choice_of(body)
        if _version_of(choice.codec) in self._codecs:
            return choice
        if is_certain:
            raise self.not_served(_version_of(choice.codec), self._codecs)
        return CodecChoice(self.default)

    def choose_http(self, version: str | None) -> HttpCodec:
        """Return the codec of a request of the HTTP+JSON binding. Without a version, the request is of 1.0.

        Args:
            version: As for `choose`.

        Raises:
            VersionNotSupportedError: The version is not served over this binding.
            InvalidRequestError: Several versions are named.
        """
        return self._named_http(version or '')

    def before_reading(self, version: str | None) -> CodecChoice:
        """Return the codec for refusals before the body is read: the codec of the version, or the default codec."""
        try:
            return CodecChoice(self._named(version or '') or self.default)
        except A2AError:
            return CodecChoice(self.default)

    def _find_named(self, version: str) -> Codec | None:
        return self._find(version, self._codecs)

    def _find_http(self, version: str) -> HttpCodec:
        served = {} if self.http is None else {self.http.dialect: self.http}
        codec = self._find(version, served) or self.http
        if codec is None:
            raise self.not_served(HTTP.dialect, served)
        return codec

    def _find(self, version: str, codecs: Mapping[str, AnyCodec]) -> AnyCodec | None:
        names = {name.strip() for name in version.split(',')} - {''}
        if not names:
            return None
        keys = {_key(name) for name in names}
        if len(keys) > 1:
            raise InvalidRequestError('Invalid request: A2A-Version must name one version')
        codec = codecs.get(keys.pop())
        if codec is None:
            raise self.not_served(min(names)[:_MAX_ECHO], codecs)
        return codec

    def not_served(self, name: str, codecs: Collection[str]) -> VersionNotSupportedError:
        """Return the refusal of a version.

        Args:
            name: The version.
            codecs: The versions served over the binding of the request; if there are none, the JSON-RPC versions are
                named.
        """
        served = tuple(codecs) or self.served
        over = '' if codecs else ' over JSON-RPC'
        return VersionNotSupportedError(
            f'A2A version {name!a} is not supported; use {" or ".join(served)}{over}.',
            metadata={'supportedVersions': ', '.join(served)},
        )


def in_dialect_of(choice: CodecChoice, dialect: str) -> Codec:
    """Return the codec of an answer about a task with the dialect."""
    return _FASTA2A if choice.task_decides and dialect == _FASTA2A.dialect else choice.codec


def codec_of(dialect: str) -> Codec:
    """Return the codec with the name."""
    return _CODECS.get(dialect, _FASTA2A)


def _version_of(codec: Codec) -> str:
    """Return the version that must be served for a codec."""
    return codec.dialect if codec.dialect in _CODECS else _V0_3.dialect


def _key(name: str) -> str:
    """Return the version as `Major.Minor`; other text unchanged."""
    match = _VERSION.fullmatch(name)
    return f'{int(match[1])}.{int(match[2] or 0)}' if match else name


def _choice_of(body: bytes) -> tuple[CodecChoice, bool]:
    """Return the codec of a request without a version, and True if the request itself tells the version."""
    request = _parsed(body)
    method = request.get('method')
    if not isinstance(method, str) or '/' not in method:
        return CodecChoice(HTTP), isinstance(method, str) and method in OPERATIONS
    if method in fasta2a.METHODS.keys() - v0_3.METHODS.keys():
        return CodecChoice(_FASTA2A), True
    message = _message(request.get('params'))
    if message is None:
        # Only FastA2A's client sends requests with `"id": null`.
        return CodecChoice(_FASTA2A) if request.get('id', '') is None else CodecChoice(_V0_3, task_decides=True), True
    return CodecChoice(_V0_3 if 'kind' in message or not _has_bare_part(message) else _FASTA2A), True


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        request = from_json(body)
    except ValueError:
        try:
            request = parse_json(body)  # accepts bodies that a codec refuses later with an exact error
        except RpcRefused:
            return {}
    return cast('dict[str, Any]', request) if isinstance(request, dict) else {}


def _message(params: object) -> dict[str, Any] | None:
    """Return the message of a request; None without a message."""
    message = cast('dict[str, Any]', params).get('message') if isinstance(params, dict) else None
    return cast('dict[str, Any]', message) if isinstance(message, dict) else None


def _has_bare_part(message: dict[str, Any]) -> bool:
    """True if a part of the message has no `kind`: 0.3 requires it, and FastA2A's dialect does not have it."""
    parts = message.get('parts')
    return isinstance(parts, list) and any(
        isinstance(part, dict) and 'kind' not in part for part in cast('list[Any]', parts)
    )
