"""HTTP for all bindings: content types, bodies of requests, and answers."""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import parse_qs

from starlette.types import Receive, Scope, Send

from ..auth.callers import header
from ..errors import (
    PayloadTooLargeError,
    RequestTimeoutError,
    UnsupportedMediaTypeError,
)
from ..service.dispatch import ClientGone

__all__ = (
    'CHUNK',
    'JSON',
    'NO_SNIFF',
    'AnswerUnread',
    'check_content_type',
    'read_body',
    'reply',
    'request_late',
    'requested_version',
    'start',
)

NO_SNIFF = (b'x-content-type-options', b'nosniff')
"""The header that keeps browsers from guessing another content type."""

JSON = ('application/json',)

CHUNK = 65_536
"""Bytes of one send: servers wait for clients that do not read between two sends, and never during a send."""

_DIGITS = re.compile(b'[0-9]{1,19}')
"""A length as servers let it pass. A body without a valid length is counted while it is read."""


class AnswerUnread(ClientGone):
    """The client takes too long to read its answer, which is broken off. The text is for the log."""


def check_content_type(declared: str | None, taken: Collection[str] = JSON) -> None:
    """Refuse bodies that foreign web pages can send without a preflight: all but JSON.

    Args:
        declared: The `Content-Type` header of the body.
        taken: The media types to accept.

    Raises:
        UnsupportedMediaTypeError: The body has another media type.
    """
    if (declared or '').partition(';')[0].strip().lower() not in taken:
        raise UnsupportedMediaTypeError(f'The request body must be {" or ".join(taken)}.')


def requested_version(scope: Scope) -> str | None:
    """Return the protocol version that a request names, in a header or in the query (§3.6.1); None without a version.

    Several values are joined by commas.
    """
    version = header(scope['headers'], b'a2a-version')
    if version is None and (query := scope['query_string']):
        named = parse_qs(query.decode('latin-1')).get('A2A-Version')
        return ','.join(named) if named else None
    return version


def request_late() -> RequestTimeoutError:
    """Return the error for a request that takes too long to come. The answer closes the connection."""
    return RequestTimeoutError(headers={'Connection': 'close'})


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """Return the request's body, of at most `limit` bytes.

    Raises:
        PayloadTooLargeError: The body is larger. A body whose declared length is larger is not read.
        ClientGone: The client disconnected before the end of the body.
    """
    for name, value in scope['headers']:
        if name == b'content-length' and _DIGITS.fullmatch(value) and int(value) > limit:
            raise _too_large(limit)
    body = bytearray()  # not a list: small chunks need more memory than their bytes
    while True:
        message = await receive()
        if message['type'] == 'http.disconnect':
            raise ClientGone
        chunk = message.get('body', b'')
        if len(body) + len(chunk) > limit:
            raise _too_large(limit)
        if not message.get('more_body'):
            return b'%b%b' % (body, chunk) if body else chunk
        body += chunk


def _too_large(limit: int) -> PayloadTooLargeError:
    return PayloadTooLargeError(f'The request body is larger than {limit} bytes.')


async def reply(
    send: Send,
    status: int,
    body: bytes,
    correlation_id: str,
    headers: Collection[tuple[str, str]] = (),
    *,
    media_type: bytes = b'application/json',
) -> None:
    """Send one whole answer, JSON unless said otherwise."""
    await start(send, status, len(body), correlation_id, headers, media_type=media_type)
    await send({'type': 'http.response.body', 'body': body})


async def start(
    send: Send,
    status: int,
    size: int,
    correlation_id: str,
    headers: Collection[tuple[str, str]] = (),
    *,
    media_type: bytes = b'application/json',
) -> None:
    """Begin an answer whose body has so many bytes; `reply` sends one at once."""
    raw = [
        (b'content-type', media_type),
        (b'content-length', b'%d' % size),
        (b'x-correlation-id', correlation_id.encode()),
        NO_SNIFF,
    ]
    if headers:
        raw += [(name.lower().encode('latin-1'), value.encode('latin-1')) for name, value in headers]
    await send({'type': 'http.response.start', 'status': status, 'headers': raw})
