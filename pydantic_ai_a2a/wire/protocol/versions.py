"""The choice of the codec of a request, among the served protocol versions.

The version in a request decides (§3.6). Without a version, the method and the parts of the request decide.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache, lru_cache
from typing import Any, NamedTuple, cast

from pydantic_core import from_json

from ...errors import A2AError, InvalidRequestError, VersionNotSupportedError
from ...json_values import as_list, as_object
from ...settings.access import SUPPORTED, Version
from .codec import Codec, HttpCodec
from .operations import OPERATIONS
from .refused_requests import RpcRefused
from .strict_json import parse_json
from .v1_0 import V1_0

HTTP: HttpCodec = V1_0()
"""The codec of the HTTP+JSON binding, which exists in one version."""
_V0_3 = '0.3'
_FASTA2A = 'fasta2a'
"""The dialect of FastA2A, which clients cannot name as a version."""
_ONLY_FASTA2A = {row.fasta2a for row in OPERATIONS.values()} - {row.v0_3 for row in OPERATIONS.values()}
"""FastA2A's names of methods that 0.3 does not have."""

_VERSION = re.compile(r'([0-9]{1,4})(?:\.([0-9]{1,4})(?:\.[0-9]{1,9})?)?')
_MAX_ECHO = 32
_KEPT = 32
"""Values of `A2A-Version` whose codec is cached."""


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
        self.served = tuple(name for name in SUPPORTED if name in served)
        """Names of the versions, the newest first."""
        self.default = codec_of(self.served[0])
        """The codec of requests that do not tell their version."""
        self.http = HTTP if HTTP.dialect in self.served else None
        """The codec of the HTTP+JSON binding; None if it is not served."""
        self.over_http = () if self.http is None else (HTTP.dialect,)
        """Names of the versions over the HTTP+JSON binding."""
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
        version = version_of(choice.codec)
        if version in self.served:
            return choice
        if is_certain:
            raise self.not_served(version, self.served)
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
        name = self._find(version, self.served)
        return None if name is None else codec_of(name)

    def _find_http(self, version: str) -> HttpCodec:
        self._find(version, self.over_http)
        if self.http is None:
            raise self.not_served(HTTP.dialect, self.over_http)
        return self.http

    def _find(self, version: str, served: Collection[str]) -> str | None:
        names = {name.strip() for name in version.split(',')} - {''}
        if not names:
            return None
        keys = {_key(name) for name in names}
        if len(keys) > 1:
            raise InvalidRequestError('Invalid request: A2A-Version must name one version')
        key = keys.pop()
        if key not in served:
            raise self.not_served(min(names)[:_MAX_ECHO], served)
        return key

    def not_served(self, name: str, served: Collection[str]) -> VersionNotSupportedError:
        """Return the refusal of a version.

        Args:
            name: The version.
            served: The versions served over the binding of the request; if there are none, the JSON-RPC versions are
                named.
        """
        usable = served or self.served
        over = '' if served else ' over JSON-RPC'
        return VersionNotSupportedError(
            f'A2A version {name!a} is not supported; use {" or ".join(usable)}{over}.',
            metadata={'supportedVersions': ', '.join(usable)},
        )


def in_dialect_of(choice: CodecChoice, dialect: str) -> Codec:
    """Return the codec of an answer about a task with the dialect."""
    return codec_of(_FASTA2A) if choice.task_decides and dialect == _FASTA2A else choice.codec


@cache
def codec_of(dialect: str) -> Codec:
    """Return the codec with the name."""
    if dialect == HTTP.dialect:
        return HTTP
    if dialect == _V0_3:
        from .v0_3 import V0_3  # noqa: PLC0415 - clients of 1.0 need none

        return V0_3()
    from .fasta2a_dialect import FastA2ADialect  # noqa: PLC0415 - clients of 1.0 need none

    return FastA2ADialect()


def version_of(codec: Codec) -> str:
    """Return the version of a codec; the dialect of FastA2A has the methods of 0.3."""
    return _V0_3 if codec.dialect == _FASTA2A else codec.dialect


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
    if method in _ONLY_FASTA2A:
        return CodecChoice(codec_of(_FASTA2A)), True
    message = _message(request.get('params'))
    if message is None and request.get('id', '') is None:  # only FastA2A's client sends requests with `"id": null`
        return CodecChoice(codec_of(_FASTA2A)), True
    if message is None:
        return CodecChoice(codec_of(_V0_3), task_decides=True), True
    return CodecChoice(codec_of(_V0_3 if 'kind' in message or not _has_bare_part(message) else _FASTA2A)), True


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        request = from_json(body)
    except ValueError:
        try:
            request = parse_json(body)  # accepts bodies that a codec refuses later with an exact error
        except RpcRefused:
            return {}
    return as_object(request)


def _message(params: object) -> dict[str, Any] | None:
    """Return the message of a request; None without a message."""
    message = as_object(params).get('message')
    return cast('dict[str, Any]', message) if isinstance(message, dict) else None


def _has_bare_part(message: dict[str, Any]) -> bool:
    """True if a part of the message has no `kind`: 0.3 requires it, and FastA2A's dialect does not have it."""
    return any(isinstance(part, dict) and 'kind' not in part for part in as_list(message.get('parts')))
