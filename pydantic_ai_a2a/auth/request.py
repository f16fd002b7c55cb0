"""The values of a request that say who sends the request. Every transport fills them in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request, cookie_parser

__all__ = ('InvalidCredentials', 'RequestInfo', 'header')


class InvalidCredentials(Exception):
    """The request has credentials, but they are not valid. An `Authenticator` raises this error.

    Args:
        reason: A word or two for the audit log, such as `expired`. Never the credential.
        description: ASCII text that the client gets besides `invalid_token`, if any.
    """

    def __init__(self, reason: str, description: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.description = description


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestInfo:
    """The values of a request, without its body, that an `Authenticator` reads."""

    correlation_id: str
    """Names the request in its answer and in the logs."""
    headers: Iterable[tuple[bytes, bytes]] = field(default=(), repr=False)
    """Names in lower case, and values."""
    query: bytes = field(default=b'', repr=False)
    """The query of the URL as the client sent it."""
    address: str | None = None
    """The address of the client at the other end of the connection; None if the transport has no address."""
    scope: MutableMapping[str, Any] | None = field(default=None, repr=False)
    """The ASGI scope of a request over HTTP; None for other transports."""
    tls_names: tuple[str, ...] = field(default=(), repr=False)
    """The alternative names in the client's certificate, each after its kind: `URI:spiffe://example.com/planner`,
    `DNS:planner.example.com`, `IP:192.0.2.7` or `email:planner@example.com`. A certificate without alternative names
    has its common name, as `CN:planner`. The transport has verified the certificate. Empty without a certificate, and
    for one whose names have a NUL. Only gRPC with `client_ca` fills them in."""
    base_url: Callable[[], str] = field(default=str, repr=False)
    """Returns the URL under which the client reached the app; empty for transports without URLs."""

    def header(self, name: str) -> str | None:
        """Return the value of a header, or None without the header.

        Raises:
            InvalidCredentials: The header comes several times. A proxy may have read another value.
        """
        raw = name.lower().encode('latin-1')
        return _one([value.decode('latin-1') for key, value in self.headers if key == raw])

    def parameter(self, name: str) -> str | None:
        """Return the value of a query parameter, or None without the parameter.

        Raises:
            InvalidCredentials: The parameter comes several times. A proxy may have read another value.
        """
        parameters = parse_qsl(self.query.decode('latin-1'), keep_blank_values=True)
        return _one([value for key, value in parameters if key == name])

    def cookie(self, name: str) -> str | None:
        """Return the value of a cookie, or None without the cookie."""
        cookies = b'; '.join(value for key, value in self.headers if key == b'cookie')
        return cookie_parser(cookies.decode('latin-1')).get(name)

    def starlette(self) -> Request:
        """Return the request as Starlette's, without a body."""
        if self.scope is not None:
            return Request(self.scope)
        client = None if self.address is None else (self.address, 0)
        headers = list(self.headers)
        return Request({'type': 'http', 'headers': headers, 'query_string': self.query, 'client': client})


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    """Return the value of a header, several values joined with commas; None without the header."""
    first: bytes | None = None
    for key, value in headers:
        if key == name:
            if first is not None:
                return b','.join(value for key, value in headers if key == name).decode('latin-1')
            first = value
    return None if first is None else first.decode('latin-1')


def _one(values: list[str]) -> str | None:
    if len(values) > 1:
        raise InvalidCredentials('several')
    return values[0] if values else None
