"""What every binding does with HTTP: read a request, answer, turn an exception into an error. Knows no operation."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable
from os import urandom

from starlette.types import Receive, Scope, Send

from ..errors import (
    A2AError,
    InternalError,
    PayloadTooLargeError,
    UnsupportedMediaTypeError,
)

__all__ = (
    'JSON',
    'NO_SNIFF',
    'ClientGone',
    'as_error',
    'check_content_type',
    'header',
    'new_correlation_id',
    'read_body',
    'reply',
)

logger = logging.getLogger('pydantic_ai_a2a')

NO_SNIFF = (b'x-content-type-options', b'nosniff')
"""Keeps browsers from reading an answer as something else than it says it is."""

JSON = ('application/json',)

_DIGITS = re.compile('[0-9]{1,19}')
"""A length, as servers let it pass; what is none is counted while it is read."""


class ClientGone(Exception):
    """The client went away before its request was read: there is nobody to answer."""


def new_correlation_id() -> str:
    """Names one request in its answer and in the log."""
    return urandom(8).hex()


def header(scope: Scope, name: bytes) -> str | None:
    """The header's value, several joined with commas; None if it is absent."""
    found: bytes | None = None
    for key, value in scope['headers']:
        if key == name:
            if found is not None:
                return b','.join(value for key, value in scope['headers'] if key == name).decode('latin-1')
            found = value
    return None if found is None else found.decode('latin-1')


def check_content_type(scope: Scope, taken: Collection[str] = JSON) -> None:
    """Refuse what a foreign web page can send without asking: anything but JSON.

    Args:
        scope: The request.
        taken: The media types that are taken.

    Raises:
        UnsupportedMediaTypeError: The body is not declared as one of them.
    """
    declared = header(scope, b'content-type') or ''
    if declared not in taken and declared.partition(';')[0].strip().lower() not in taken:
        raise UnsupportedMediaTypeError(f'The request body must be {" or ".join(taken)}.')


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The request's body, of at most `limit` bytes.

    Raises:
        PayloadTooLargeError: It is larger; what was declared as such is not even read.
        ClientGone: The client disconnected in between.
    """
    declared = header(scope, b'content-length')
    if declared is not None and _DIGITS.fullmatch(declared) and int(declared) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message['type'] == 'http.disconnect':
            raise ClientGone
        chunk = message.get('body', b'')
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        if not message.get('more_body'):
            return b''.join([*chunks, chunk]) if chunks else chunk
        chunks.append(chunk)


def _too_large(limit: int) -> PayloadTooLargeError:
    return PayloadTooLargeError(f'The request body is larger than {limit} bytes.')


def as_error(exception: Exception, correlation_id: str) -> A2AError:
    """What the client is told: the protocol's error, or for anything else only that something broke."""
    if isinstance(exception, A2AError):
        return exception
    logger.error('Request failed (correlation id %s).', correlation_id, exc_info=exception)
    return InternalError()


async def reply(
    send: Send,
    status: int,
    body: bytes,
    correlation_id: str,
    headers: Iterable[tuple[str, str]] = (),
    *,
    media_type: bytes = b'application/json',
) -> None:
    """One whole answer, JSON unless said otherwise."""
    raw = [
        (b'content-type', media_type),
        (b'content-length', b'%d' % len(body)),
        (b'x-correlation-id', correlation_id.encode()),
        NO_SNIFF,
    ]
    raw += [(name.lower().encode('latin-1'), value.encode('latin-1')) for name, value in headers]
    await send({'type': 'http.response.start', 'status': status, 'headers': raw})
    await send({'type': 'http.response.body', 'body': body})
